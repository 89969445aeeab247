"""Which Pythons of a machine wheels are made for."""

import json
import sys

import pytest

from wheels import interpreters


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """A machine whose Pythons only say what they are; `add` installs one."""
    folders = {"path": tmp_path / "bin", "pyenv": tmp_path / "pyenv"}
    folders["path"].mkdir()
    monkeypatch.setenv("PATH", f"{folders['path']}:/usr/bin:/bin")
    monkeypatch.setenv("PYENV_ROOT", str(folders["pyenv"]))
    # Those of the real machine are in /usr/bin, too.
    monkeypatch.setattr(interpreters, "MINORS", range(90, 95))

    def add(version, *, pyenv=False, has_header=True, is_cpython=True):
        number = ".".join(map(str, version))
        folder = folders["pyenv"] / "versions" / number / "bin" if pyenv else folders["path"]
        folder.mkdir(parents=True, exist_ok=True)
        program = folder / f"python{version[0]}.{version[1]}"
        facts = {"path": str(program), "version": version, "prefix": "/usr"}
        facts |= {"is_cpython": is_cpython, "has_header": has_header}
        program.write_text(f"#!/bin/sh\necho '{json.dumps(facts)}'\n")
        program.chmod(0o755)
        return program

    return add


def list_found(named=""):
    return [(str(each), each.path) for each in interpreters.find_interpreters(named)]


def test_one_of_each_version_and_the_newest(machine):
    machine((3, 92, 4))
    newest = machine((3, 92, 10), pyenv=True)
    other = machine((3, 91, 1), pyenv=True)
    assert list_found() == [("3.91.1", other), ("3.92.10", newest)]


def test_one_that_can_build_before_a_newer_that_cannot(machine):
    machine((3, 92, 9), has_header=False)
    builds = machine((3, 92, 1), pyenv=True)
    assert list_found() == [("3.92.1", builds)]


def test_what_does_not_run_is_no_python(machine, tmp_path):
    shim = tmp_path / "bin" / "python3.93"
    shim.write_text("#!/bin/sh\necho 'pyenv: version not set' >&2\nexit 127\n")
    shim.chmod(0o755)
    machine((3, 94, 0), is_cpython=False)
    assert list_found() == []


def test_named_ones_alone(machine):
    machine((3, 92, 1))
    named = machine((3, 91, 2))
    assert list_found(str(named)) == [("3.91.2", named)]


def test_one_that_is_named_and_too_old(machine):
    old = machine((3, 10, 9))
    with pytest.raises(SystemExit, match=rf"^nsqfast: no CPython from 3\.11 on: {old}$"):
        list_found(str(old))


def test_its_own():
    own = interpreters.find_own()
    assert own.version == sys.version_info[:3]
    assert own.tag == f"cp{sys.version_info[0]}{sys.version_info[1]}"
