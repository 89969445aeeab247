"""The consumers in Go, Node and Rust in examples/: built as their first lines say, and run against nsqfast-nsqd.

What is built stays in build/examples. A language is skipped where its programs (go, npm, cargo) are missing, or its
packages cannot be reached.
"""

import os
import re
import shutil
import signal
import subprocess
from pathlib import Path
from textwrap import indent

import pytest

from support.namespaces import Network, why_not
from support.programs import EXAMPLES, Program, left, publish
from support.server import ROOT, Server, program, start_nsqd, start_nsqlookupd
from support.waiting import eventually
from support.web import get, post, topic_stats

pytestmark = [pytest.mark.slow, pytest.mark.timeout(500)]

BUILT = ROOT / "build" / "examples"
UNREACHABLE = re.compile(
    r"dial tcp|no such host|ENOTFOUND|EAI_AGAIN|ECONN|ETIMEDOUT|network|resolve host|connect to|spurious"
)


def make(*command, folder, **environment):
    """Skip where what it downloads cannot be reached; fail for any other reason."""
    lines = []
    with subprocess.Popen(
        command, cwd=folder, env=os.environ | environment, stderr=subprocess.PIPE, text=True
    ) as process:
        for line in process.stderr:
            print(line, end="", flush=True)  # a suite that says nothing for long counts as hanging
            lines.append(line)
    # Of what could be reached the second time cargo warns.
    said = "".join(line for line in lines if not line.startswith("warning"))
    if process.returncode and UNREACHABLE.search(said):
        pytest.skip(f"{command[0]} reaches no packages: {lines[-1].strip()}")
    assert process.returncode == 0, said


def build_go():
    target = BUILT / "go" / "consume"
    command = ["go", "build", "-mod=readonly", "-o", str(target), "."]
    make(*command, folder=EXAMPLES / "go")
    return [str(target)]


def build_node():
    folder = BUILT / "node"
    folder.mkdir(parents=True, exist_ok=True)
    for path in (EXAMPLES / "node").iterdir():
        if path.is_file():
            shutil.copy(path, folder)
    make("npm", "ci", "--omit=optional", "--no-audit", "--no-fund", folder=folder)
    return ["node", str(folder / "consume.js")]


def build_rust():
    command = ["cargo", "build", "--locked"]
    # What a debugger needs takes a fifth of the time.
    settings = {"CARGO_TARGET_DIR": str(BUILT / "rust"), "CARGO_PROFILE_DEV_DEBUG": "0"}
    make(*command, folder=EXAMPLES / "rust", **settings)
    return [str(BUILT / "rust" / "debug" / "consume")]


BUILDERS = {"go": build_go, "npm": build_node, "cargo": build_rust}
# A minute of processor time, in a folder without a build; on a busy machine more than a test may take.
PARAMS = ["go", "npm", pytest.param("cargo", marks=[pytest.mark.soak, pytest.mark.timeout(0)])]


@pytest.fixture(scope="module", params=PARAMS)
def consumer(request):
    """The command that runs it: main.go, consume.js or main.rs."""
    if shutil.which(request.param) is None:
        pytest.skip(f"{request.param} is not installed")
    with request.config.pluginmanager.getplugin("capturemanager").global_and_fixture_disabled():
        return BUILDERS[request.param]()


@pytest.fixture(scope="module")
def lookup():
    with start_nsqlookupd("nsqfast") as server:
        yield server


@pytest.fixture(scope="module")
def broker(lookup, tmp_path_factory):
    flags = ["--lookupd-tcp-address={}:{}".format(*lookup.tcp), "--broadcast-address=127.0.0.1"]
    with start_nsqd("nsqfast", tmp_path_factory.mktemp("nsqd"), *flags) as server:
        yield server


def is_subscribed(http, topic, channel):
    found = topic_stats(http, topic)
    return bool(found) and channel in found["channels"] and found["channels"][channel]["clients"]


def check(running, number):
    """It has printed both messages, the one that failed at first later; the signal ends it in order."""
    assert running.read_until("^(one|fail)$")[1] == "one"
    running.read_until("^fail$")
    assert running.end(number) == 0, running.text
    # Not always the last line: go-nsq may log the end of a connection after that of its consumer.
    assert running.lines.count("messages finished: 2") == 1


def test_messages_are_finished_and_requeued(broker, address, topic, consumer):
    with Program(*consumer, topic, "c", "--nsqd", address) as running:
        eventually(lambda: is_subscribed(broker.http, topic, "c"))
        publish(address, topic, b"one", b"fail")
        check(running, signal.SIGINT)
    eventually(lambda: left(broker, topic) == 0)
    assert topic_stats(broker.http, topic)["channels"]["c"]["requeue_count"] == 1


def test_nsqlookupd_is_asked(broker, lookup, address, topic, consumer):
    publish(address, topic, b"one", b"fail")
    eventually(lambda: get(lookup.http, f"/lookup?topic={topic}").json().get("producers"))
    place = "{}:{}".format(*lookup.http)
    with Program(*consumer, topic, "--nsqlookupd", place, "c") as running:
        check(running, signal.SIGTERM)
    eventually(lambda: left(broker, topic) == 0)


@pytest.mark.skipif(bool(why_not()), reason=why_not())
def test_without_arguments(tmp_path, consumer):
    """Beside a broker on the default ports, in a network of their own."""
    with Network() as network:
        network.add("here")
        nsqd = [*program("nsqd", "nsqfast"), f"--data-path={tmp_path}"]
        with (
            Server(network.on("here", *nsqd)) as server,
            Program(*network.on("here", *consumer)) as running,
        ):

            def is_ready():
                return network.call("here", lambda: is_subscribed(server.http, "test", "printer"))

            eventually(is_ready)
            for body in (b"one", b"fail"):
                network.call("here", lambda body=body: post(server.http, "/pub?topic=test", body))
            check(running, signal.SIGINT)


def test_lock_files_name_the_public_registries():
    """Whoever builds them elsewhere gets the same packages from where everybody gets them."""
    node, rust = (EXAMPLES / name for name in ("node/package-lock.json", "rust/Cargo.lock"))
    hosts = re.findall(r'https?://([^/"]+)', node.read_text(encoding="utf-8"))
    assert set(hosts) <= {"registry.npmjs.org", "github.com"}
    sources = re.findall(r'^source = "(.*)"$', rust.read_text(encoding="utf-8"), re.MULTILINE)
    assert set(sources) == {"registry+https://github.com/rust-lang/crates.io-index"}
    assert not Path(EXAMPLES / "node" / "node_modules").exists()


def test_the_page_shows_what_is_in_the_programs():
    text = (ROOT / "docs" / "howto" / "other-languages.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```(python|go|js|rust)\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    names = {
        "python": "consume.py",
        "go": "go/main.go",
        "js": "node/consume.js",
        "rust": "rust/src/main.rs",
    }
    assert [kind for kind, _ in blocks] == ["python", "go", "go", "js", "rust"]
    for kind, block in blocks:
        source = (EXAMPLES / names[kind]).read_text(encoding="utf-8")
        assert any(indent(block, " " * depth) in source for depth in (0, 4, 8)), block
