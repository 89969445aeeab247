"""Units: what systemd's own tools say of them, and that they start what there is."""

import re
import shutil
import subprocess
import sys

import pytest

from support.deployed import FOLDER, read_command, read_unit

UNITS = sorted((FOLDER / "systemd").glob("*.service"))
EXPOSURE_MAX = 1.2  # of systemd-analyze security: 0 is best, 10 worst
ANALYZE = shutil.which("systemd-analyze")
needs_systemd = pytest.mark.skipif(ANALYZE is None, reason="it is missing: apt install systemd")
of_each_unit = pytest.mark.parametrize("unit", UNITS, ids=lambda path: path.name)


def values(unit, key):
    return [value for name, value in read_unit(unit.read_text(encoding="utf-8")) if name == key]


def test_there_is_a_unit_for_each_daemon_and_a_template():
    names = {path.name.removeprefix("nsqfast-") for path in UNITS}
    assert names == {f"{name}.service" for name in ("nsqd", "nsqd@", "nsqlookupd", "nsqadmin")}


@of_each_unit
def test_the_command_is_one_that_the_program_takes(unit):
    (command,) = values(unit, "ExecStart")
    program, settings = read_command(command.split())
    assert command.startswith("/opt/nsqfast/bin/")
    name = unit.name.removesuffix(".service").removesuffix("@")
    assert program == name
    instance = "-%i" if "@" in unit.name else ""
    short = name.removeprefix("nsqfast-") + instance
    assert settings["config"] == f"/etc/nsqfast/{short}.toml"
    assert values(unit, "User") == [short.removesuffix("-%i")]
    if "data_path" in settings:
        assert settings["data_path"] == f"/var/lib/{values(unit, 'StateDirectory')[0]}"
        assert short in settings["data_path"]


@of_each_unit
def test_what_a_unit_refers_to_exists(unit):
    users = (FOLDER / "systemd" / "sysusers.conf").read_text(encoding="utf-8")
    assert re.search(rf"^u {values(unit, 'User')[0]} ", users, re.MULTILINE)
    (page,) = re.findall(r"man:([\w-]+)\(1\)", values(unit, "Documentation")[0])
    assert (FOLDER / "man" / f"{page}.1").exists()
    assert values(unit, "Type") == ["notify"]


def test_all_are_confined_alike():
    """What differs is what each daemon needs, and stands before."""

    def confinement(unit):
        text = unit.read_text(encoding="utf-8").partition("NoNewPrivileges")[2]
        return text.splitlines()

    assert {tuple(confinement(unit)) for unit in UNITS} == {tuple(confinement(UNITS[0]))}


@pytest.fixture
def root(tmp_path):
    """A file system with the units, and something to execute where they expect it."""
    folder = tmp_path / "etc" / "systemd" / "system"
    folder.mkdir(parents=True)
    for unit in UNITS:
        text = unit.read_text(encoding="utf-8").replace("/opt/nsqfast/bin/nsqfast-", "/bin/")
        (folder / unit.name).write_text(text, encoding="utf-8")
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("nsqd", "nsqlookupd", "nsqadmin", "kill"):
        (programs / name).symlink_to(sys.executable)
    return folder


@needs_systemd
def test_systemd_understands_every_line(root):
    names = [path.name.replace("@.", "@1.") for path in UNITS]
    paths = [str(root / path.name) for path in UNITS]
    command = [ANALYZE, "verify", "--man=no", *paths]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    complaints = [
        line for line in done.stderr.splitlines() if any(name in line for name in [*names, *paths])
    ]
    # The programs stand below the root of the test alone.
    assert [line for line in complaints if "is not executable" not in line] == []


@needs_systemd
@of_each_unit
def test_a_unit_is_confined(unit):
    command = [ANALYZE, "security", "--offline=yes", "--no-pager", str(unit)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if "--offline" in done.stderr:
        pytest.skip("systemd is older than 250")
    found = re.search(r"exposure level for \S+: ([\d.]+)", done.stdout)
    assert found, done.stdout + done.stderr
    assert float(found[1]) <= EXPOSURE_MAX


@pytest.mark.parametrize(
    ("tool", "name"), [("systemd-sysusers", "sysusers.conf"), ("systemd-tmpfiles", "tmpfiles.conf")]
)
def test_users_and_folders(tool, name, tmp_path):
    if shutil.which(tool) is None:
        pytest.skip(f"{tool} is missing: apt install systemd")
    kept = tmp_path / "etc"
    kept.mkdir()
    for file in ("passwd", "group", "shadow", "gshadow"):
        (kept / file).touch()
    (kept / "passwd").write_text("root:x:0:0:root:/root:/bin/sh\n")
    (kept / "group").write_text("root:x:0:\n")
    options = ["--create"] if tool == "systemd-tmpfiles" else []
    command = [tool, f"--root={tmp_path}", *options, str(FOLDER / "systemd" / name)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    if options:
        assert (kept / "nsqfast").is_dir()
    else:
        users = [line.partition(":")[0] for line in (kept / "passwd").read_text().splitlines()]
        assert users == ["root", "nsqd", "nsqlookupd", "nsqadmin"]
