"""Kubernetes manifests: valid in several versions, and consistent in themselves and with the daemons."""

import re
import shutil
import stat
import subprocess
from base64 import b64encode
from pathlib import Path

import argon2
import pytest
import yaml

from nsqfast.version import __version__
from support.admin import start_nsqadmin
from support.deployed import FOLDER, ports_of, read_command
from support.waiting import wait_until
from support.web import get, request

MANIFESTS = FOLDER / "kubernetes"
VERSIONS = ("1.28", "1.31", "1.34")
UNITS = {"Mi": 1 << 20, "Gi": 1 << 30}


def load(path):
    return list(yaml.safe_load_all(path.read_text(encoding="utf-8")))


KUSTOMIZATION = load(MANIFESTS / "kustomization.yaml")[0]
RESOURCES = [each for name in KUSTOMIZATION["resources"] for each in load(MANIFESTS / name)]
WORKLOADS = {
    each["metadata"]["name"]: each
    for each in RESOURCES
    if each["kind"] in {"StatefulSet", "Deployment"}
}
of_each_workload = pytest.mark.parametrize("name", WORKLOADS)


def of_kind(kind):
    return {each["metadata"]["name"]: each["spec"] for each in RESOURCES if each["kind"] == kind}


def pod_of(name):
    return WORKLOADS[name]["spec"]["template"]["spec"]


def container_of(name):
    (container,) = pod_of(name)["containers"]
    return container


def labels_of(name):
    return WORKLOADS[name]["spec"]["template"]["metadata"]["labels"]


def in_bytes(text):
    number, unit = re.fullmatch(r"(\d+)(\w+)", text).groups()
    return int(number) * UNITS[unit]


def test_every_file_is_part_of_it():
    found = {path.name for path in MANIFESTS.glob("*.yaml")} - {"kustomization.yaml"}
    assert set(KUSTOMIZATION["resources"]) == found
    assert set(WORKLOADS) == {"nsqd", "nsqlookupd", "nsqadmin"}


@pytest.mark.parametrize("version", VERSIONS)
def test_kubernetes_knows_every_field(version):
    reason = "it is missing: pip install --group deploy"
    validator = pytest.importorskip("kubernetes_validate", reason=reason)
    assert RESOURCES
    for each in RESOURCES:
        validator.validate(each, version, strict=True)


def build(folder):
    """What kustomize makes of it."""
    commands = [["kustomize", "build"], ["kubectl", "kustomize"]]
    command = next((each for each in commands if shutil.which(each[0])), None)
    if command is None:
        pytest.skip("kustomize is missing, and so is kubectl")
    done = subprocess.run([*command, str(folder)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return list(yaml.safe_load_all(done.stdout))


def test_kustomize_builds_all_of_it():
    built = build(MANIFESTS)
    assert len(built) == len(RESOURCES)
    placed = {each["metadata"].get("namespace") for each in built if each["kind"] != "Namespace"}
    assert placed == {"nsq"}


def test_kustomize_builds_the_overlay_of_the_page(tmp_path):
    page = (FOLDER.parent / "docs" / "howto" / "deploy.md").read_text(encoding="utf-8")
    text = re.search(r"```yaml.*?\n(.*?)```", page, re.DOTALL)[1]
    # A base stands beside or above its overlay, as it does on the page.
    (tmp_path / "nsqfast" / "deploy").mkdir(parents=True)
    shutil.copytree(MANIFESTS, tmp_path / "nsqfast" / "deploy" / "kubernetes")
    overlay = tmp_path / "overlay"
    overlay.mkdir()
    (overlay / "kustomization.yaml").write_text(text, encoding="utf-8")
    built = build(overlay)
    (nsqd,) = (
        each
        for each in built
        if each["kind"] == "StatefulSet" and each["metadata"]["name"] == "nsqd"
    )
    assert nsqd["spec"]["replicas"] == 3
    (container,) = nsqd["spec"]["template"]["spec"]["containers"]
    assert container["image"] == "registry.example.com/nsqfast:0.2.0"


@of_each_workload
def test_a_container_runs_a_daemon_on_its_ports(name):
    container = container_of(name)
    program, settings = read_command(container["command"])
    assert program == f"nsqfast-{name}"
    assert {each["containerPort"] for each in container["ports"]} == ports_of(settings)
    ports = {each["name"]: each["containerPort"] for each in container["ports"]}
    for service, spec in of_kind("Service").items():
        if service.startswith(name):
            assert {each["name"]: each["port"] for each in spec["ports"]} == ports
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        if probe in container:
            assert container[probe]["httpGet"]["port"] == "http"


@of_each_workload
def test_every_selector_finds_its_pods(name):
    labels = labels_of(name).items()
    spec = WORKLOADS[name]["spec"]
    assert spec["selector"]["matchLabels"].items() <= labels
    for service, found in of_kind("Service").items():
        if service.startswith(name):
            assert found["selector"].items() <= labels
    for budget, found in of_kind("PodDisruptionBudget").items():
        if budget == name:
            assert found["selector"]["matchLabels"].items() <= labels
    for constraint in pod_of(name).get("topologySpreadConstraints", []):
        assert constraint["labelSelector"]["matchLabels"].items() <= labels


@of_each_workload
def test_a_pod_is_confined(name):
    """As the standard `restricted` of the namespace demands, and no more than that."""
    pod, container = pod_of(name), container_of(name)
    assert pod["securityContext"]["runAsNonRoot"]
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert not pod["automountServiceAccountToken"]
    wanted = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    assert container["securityContext"] == {**wanted, "readOnlyRootFilesystem": True}


@pytest.mark.parametrize("name", ["nsqd", "nsqlookupd"])
def test_pods_announce_a_name_that_resolves(name):
    spec = WORKLOADS[name]["spec"]
    service = of_kind("Service")[spec["serviceName"]]
    # Without a name of its own while it is not ready, a broker that drains would lose its consumers.
    assert (service["clusterIP"], service["publishNotReadyAddresses"]) == ("None", True)
    _, settings = read_command(container_of(name)["command"])
    assert settings["broadcast_address"].startswith(f"$(POD_NAME).{spec['serviceName']}")
    variables = {each["name"] for each in container_of(name)["env"]}
    assert set(re.findall(r"\$\((\w+)\)", settings["broadcast_address"])) == variables


@pytest.mark.parametrize(
    ("name", "key", "port"),
    [
        ("nsqd", "nsqlookupd_tcp_addresses", 4160),
        ("nsqadmin", "nsqlookupd_http_addresses", 4161),
    ],
)
def test_every_nsqlookupd_is_known(name, key, port):
    _, settings = read_command(container_of(name)["command"])
    count = WORKLOADS["nsqlookupd"]["spec"]["replicas"]
    assert settings[key] == [f"nsqlookupd-{i}.nsqlookupd:{port}" for i in range(count)]


def test_the_data_is_on_the_volume():
    _, settings = read_command(container_of("nsqd")["command"])
    (mount,) = container_of("nsqd")["volumeMounts"]
    (claim,) = WORKLOADS["nsqd"]["spec"]["volumeClaimTemplates"]
    assert mount == {"name": claim["metadata"]["name"], "mountPath": settings["data_path"]}


@pytest.mark.parametrize("name", ["nsqd", "nsqadmin"])
def test_the_user_of_the_image_may_write_to_the_volume(name):
    group = pod_of(name)["securityContext"]["fsGroup"]
    dockerfile = (FOLDER / "docker" / "Dockerfile").read_text(encoding="utf-8")
    assert f"\nUSER {group}:{group}\n" in dockerfile


def test_nsqadmin_writes_to_its_volume_alone_and_asks_for_a_login(tmp_path):
    """Its command, with a folder for the volume and another one for the Secret."""
    command = container_of("nsqadmin")["command"]
    _, settings = read_command(command)
    mounts = {
        each["name"]: Path(each["mountPath"]) for each in container_of("nsqadmin")["volumeMounts"]
    }
    (claim,) = WORKLOADS["nsqadmin"]["spec"]["volumeClaimTemplates"]
    (volume,) = pod_of("nsqadmin")["volumes"]
    data, secret = mounts[claim["metadata"]["name"]], mounts[volume["name"]]
    assert len(mounts) == 2
    assert {Path(settings[key]).parent for key in ("history_file", "audit_file")} == {data}
    assert not volume["secret"]["defaultMode"] & stat.S_IROTH
    (tmp_path / "data").mkdir()
    (tmp_path / "secret").mkdir()
    users = tmp_path / "secret" / Path(settings["auth_file"]).relative_to(secret)
    users.write_text(f"mona:viewer:{argon2.PasswordHasher().hash('her password')}\n")
    users.chmod(0o440)
    flags = [
        re.sub(f"={secret}/", f"={users.parent}/", re.sub(f"={data}/", f"={tmp_path}/data/", flag))
        for flag in command[1:]
        if not flag.startswith("--lookupd")
    ]
    with start_nsqadmin("nsqfast", "--nsqd-http-address=127.0.0.1:1", *flags) as admin:
        for probe in ("readinessProbe", "livenessProbe"):
            path = container_of("nsqadmin")[probe]["httpGet"]["path"]
            wait_until(lambda path=path: get(admin.http, path).status == 200, path)
        assert get(admin.http, "/metrics").status == 401
        known = {"Authorization": "Basic " + b64encode(b"mona:her password").decode()}
        assert request(admin.http, "GET", "/metrics", headers=known).status == 200
    written = {path.name for path in (tmp_path / "data").iterdir()}
    assert written >= {Path(settings[key]).name for key in ("history_file", "audit_file")}


def test_prometheus_finds_every_daemon_at_a_port_of_its_pod():
    monitors = load(MANIFESTS / "prometheus" / "podmonitor.yaml")
    found = []
    for spec in (each["spec"] for each in monitors):
        selector, (endpoint,) = spec["selector"], spec["podMetricsEndpoints"]
        for name in WORKLOADS:
            wanted = selector.get("matchLabels", {}).items()
            are_in = all(
                labels_of(name)[each["key"]] in each["values"] and each["operator"] == "In"
                for each in selector.get("matchExpressions", [])
            )
            if are_in and wanted <= labels_of(name).items():
                found.append(labels_of(name)[spec["jobLabel"]])
                assert endpoint["port"] in {each["name"] for each in container_of(name)["ports"]}
                assert endpoint["path"] == "/metrics"
                _, settings = read_command(container_of(name)["command"])
                assert ("basicAuth" in endpoint) == bool(settings.get("auth_file"))
    assert sorted(found) == sorted(WORKLOADS)


def test_messages_go_to_disk_before_the_kernel_kills():
    _, settings = read_command(container_of("nsqd")["command"])
    limit = in_bytes(container_of("nsqd")["resources"]["limits"]["memory"])
    assert limit / 2 < settings["max_memory"] <= limit * 0.8


def test_a_drain_leaves_time_for_the_stop():
    command = container_of("nsqd")["lifecycle"]["preStop"]["exec"]["command"]
    (drain_s,) = (int(found[1]) for word in command if (found := re.match(r"--drain=(\d+)", word)))
    assert pod_of("nsqd")["terminationGracePeriodSeconds"] >= drain_s + 300
    assert command[-1] == "127.0.0.1:4151"


def test_no_restart_because_the_disk_is_full():
    """/readyz says NOK then, and while it drains; a restart would lose what is only in memory."""
    container = container_of("nsqd")
    assert container["readinessProbe"]["httpGet"]["path"] == "/readyz"
    assert container["livenessProbe"]["httpGet"]["path"] == "/livez"


# ---- who may connect


def policies_for(labels, direction):
    return [
        spec
        for spec in of_kind("NetworkPolicy").values()
        if spec["podSelector"]["matchLabels"].items() <= labels.items()
        and direction in spec["policyTypes"]
    ]


def is_let(policies, direction, peer, port):
    """Whether a rule of one of them names that peer; it is of this namespace."""
    end = "from" if direction == "ingress" else "to"
    return any(
        {"protocol": "TCP", "port": port} in rule["ports"]
        and any(
            each["podSelector"]["matchLabels"].items() <= peer.items() for each in rule.get(end, [])
        )
        for policy in policies
        for rule in policy[direction]
    )


CLIENT, PROXY, STRANGER = {"nsq-client": "true"}, {"nsq-admin": "true"}, {"app": "other"}


@pytest.mark.parametrize(
    ("source", "target", "ports"),
    [
        (CLIENT, "nsqd", {4150, 4151}),
        (CLIENT, "nsqlookupd", {4161}),
        (CLIENT, "nsqadmin", set()),
        (PROXY, "nsqadmin", {4171}),
        (PROXY, "nsqd", set()),
        *((STRANGER, name, set()) for name in WORKLOADS),
        ("nsqd", "nsqlookupd", {4160, 4161}),
        ("nsqd", "nsqadmin", set()),
        ("nsqadmin", "nsqd", {4150, 4151}),
        ("nsqadmin", "nsqlookupd", {4161}),
        ("nsqlookupd", "nsqd", set()),
        ("nsqlookupd", "nsqadmin", set()),
    ],
)
def test_who_may_connect_to_whom(source, target, ports):
    labels = labels_of(source) if isinstance(source, str) else source
    found = set()
    for port in (each["containerPort"] for each in container_of(target)["ports"]):
        into = policies_for(labels_of(target), "Ingress")
        out = policies_for(labels, "Egress")
        assert into
        assert bool(out) == isinstance(source, str)  # of others nothing is said
        if is_let(into, "ingress", labels, port) and (
            not out or is_let(out, "egress", labels_of(target), port)
        ):
            found.add(port)
    assert found == ports


@of_each_workload
def test_a_pod_takes_no_more_than_its_limits_and_a_known_image(name):
    container = container_of(name)
    assert container["image"] == f"nsqfast:{__version__}"
    assert {"cpu", "memory", "ephemeral-storage"} <= container["resources"]["limits"].keys()
