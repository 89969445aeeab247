"""The image and the compose file: what linters say, and that the cluster which they describe works.

Linters that are missing are skipped, in the other files of this folder, too. `pip install --group deploy`,
`apt install systemd man-db mandoc logrotate` and kustomize (`go install sigs.k8s.io/kustomize/kustomize/v5@latest`, or
kubectl) bring them all.
"""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from nsqfast.tools import probe
from support.deployed import FOLDER, defaults_of, ports_of, read_command
from support.namespaces import Network, why_not
from support.server import ROOT
from support.tools import Tool

DOCKERFILE = FOLDER / "docker" / "Dockerfile"
COMPOSE = FOLDER / "docker" / "compose.yaml"
SERVICES = yaml.safe_load(COMPOSE.read_text(encoding="utf-8"))["services"]
PROBE = ["python", "-m", probe.__name__]


def linter(name):
    """Where it is: beside this Python, or on PATH."""
    folder = str(Path(sys.executable).parent)
    found = shutil.which(name, path=folder) or shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is missing: pip install --group deploy")
    return found


def instruction(name):
    """The last one of this name, its lines joined."""
    text = DOCKERFILE.read_text(encoding="utf-8").replace("\\\n", " ")
    return re.findall(rf"^{name} +(.*)$", text, re.MULTILINE)[-1]


def test_hadolint_complains_about_nothing():
    command = [linter("hadolint"), str(DOCKERFILE)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.stdout, done.returncode) == ("", 0)


def test_the_compose_file_has_its_schema():
    schema = ["--builtin-schema", "vendor.compose-spec"]
    command = [linter("check-jsonschema"), *schema, str(COMPOSE)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_the_image_runs_and_probes_nsqd():
    program, settings = read_command(json.loads(instruction("CMD")))
    assert program == "nsqfast-nsqd"
    assert settings["data_path"] == instruction("VOLUME") == instruction("WORKDIR")
    _, _, check = instruction("HEALTHCHECK").partition("CMD ")
    *command, address = json.loads(check)
    assert command == PROBE
    assert f"0.0.0.0:{address.rpartition(':')[2]}" == settings["http_address"]


def test_the_image_exposes_every_port():
    programs = ("nsqfast-nsqd", "nsqfast-nsqlookupd", "nsqfast-nsqadmin")
    wanted = set().union(*(ports_of(defaults_of(program)) for program in programs))
    assert set(map(int, instruction("EXPOSE").split())) == wanted


def test_the_build_gets_what_it_names():
    lines = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    named = [line[1:] for line in lines if line.startswith("!")]
    assert [name for name in named if not (ROOT / name).exists()] == []
    assert {"pyproject.toml", "setup.py", "nsqfast", "_ext", "spark_jobs"} <= set(named)


def on_this_machine(command, data):
    """The same with the Python of this test, and a folder of it."""
    program, *flags = command
    module = f"nsqfast.{program.removeprefix('nsqfast-')}.main"
    return [sys.executable, "-m", module, *(flag.replace("=/data", f"={data}") for flag in flags)]


@pytest.mark.slow
def test_the_cluster_works(tmp_path):
    """Each service's command on a host of its own: published on one nsqd, consumed through an nsqlookupd."""
    if reason := why_not():
        pytest.skip(reason)
    tools, running = [], {}
    with Network() as network:
        for name in SERVICES:
            network.add(name)
        network.name_hosts()
        try:
            for name, service in SERVICES.items():
                data = tmp_path / name
                data.mkdir()
                running[name] = Tool(network.on(name, *on_this_machine(service["command"], data)))
            for name, service in SERVICES.items():
                running[name].wait_for(lambda tool: b"HTTP: listening" in tool.err)
                check = service["healthcheck"]["test"][2:]
                subprocess.run(network.on(name, sys.executable, *check), check=True)
            assert read_through(network, running, publish_at="nsqd-2") == b"hello\n"
        finally:
            tools += running.values()
            for tool in tools:
                tool.end()
                tool.kill()


def read_through(network, running, publish_at):
    source = "--lookupd-http-address=nsqlookupd-1:4161"
    tail = network.on(
        "nsqadmin",
        *(sys.executable, "-m", "nsqfast.tools.nsq_tail.main", "--topic=t", "-n=1", source),
    )
    publish = network.on(
        "nsqlookupd-2",
        *(sys.executable, "-m", "nsqfast.tools.to_nsq.main", "--topic=t"),
        f"--nsqd-tcp-address={publish_at}:4150",
    )
    subprocess.run(publish, input=b"hello\n", check=True, capture_output=True)
    # nsqlookupd logs what an nsqd reports.
    running["nsqlookupd-1"].wait_for(lambda tool: b"REGISTER category:topic key:t" in tool.err)
    return subprocess.run(tail, check=True, capture_output=True, timeout=40).stdout
