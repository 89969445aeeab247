"""Which interpreters wheels are made for, and what stays in dist/ when they are made again."""

import sys

import pytest

from wheels.build import put
from wheels.interpreters import find_interpreters, find_own, wheel_pattern

OWN = f"python3.{sys.version_info[1]}"
OTHER = f"python3.{sys.version_info[1] + 1}"


@pytest.fixture
def shims(tmp_path, monkeypatch):
    """pyenv with shims of two versions, of which none is chosen; they do as pyenv's do then."""
    folder = tmp_path / "pyenv" / "shims"
    folder.mkdir(parents=True)
    for name in (OWN, OTHER):
        (folder / name).write_text(
            f"#!/bin/sh\necho 'pyenv: {name}: command not found' >&2\nexit 127\n"
        )
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PYENV_ROOT", str(folder.parent))
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    return folder


def install(shims):
    place = shims.parent / "versions" / "3.9.9" / "bin"
    place.mkdir(parents=True)
    (place / OWN).symlink_to(sys.executable)


def test_a_shim_that_does_not_run_is_left_out(shims, capsys):
    own = find_own()
    assert find_interpreters(f"{OTHER} {sys.executable} {shims / OWN}") == [own]
    assert capsys.readouterr().out.splitlines() == [
        f"nsqfast: {name} is left out: it does not run, or is no CPython from 3.11 on"
        for name in (OTHER, shims / OWN)
    ]
    with pytest.raises(SystemExit, match="no CPython from 3.11 on"):
        find_interpreters(OTHER)
    with pytest.raises(SystemExit, match="there is no python3.99"):
        find_interpreters(f"{sys.executable} python3.99")


def test_the_version_of_a_shim_is_looked_up(shims, capsys):
    install(shims)
    (found,) = find_interpreters(OWN)
    assert found.version == sys.version_info[:3]
    assert capsys.readouterr().out == ""
    series = [each.series for each in find_interpreters()]
    assert series.count(found.series) == 1
    assert f"{shims / OTHER} is left out" in capsys.readouterr().out


def test_other_wheels_stay(tmp_path):
    pattern = wheel_pattern("cp312")
    machine = pattern.removesuffix(".whl").partition("manylinux*_")[2]
    stays = [
        f"nsqfast-0.1-cp311-cp311-manylinux_2_28_{machine}.whl",
        f"nsqfast-0.2-cp312-cp312-musllinux_1_2_{machine}.whl",
        "nsqfast-0.2-cp312-cp312-manylinux_2_28_riscv64.whl",
        f"other-0.2-cp312-cp312-manylinux_2_28_{machine}.whl",
    ]
    goes = f"nsqfast-0.1-cp312-cp312-manylinux_2_17_{machine}.whl"
    made = tmp_path / "made" / f"nsqfast-0.2-cp312-cp312-manylinux_2_28_{machine}.whl"
    dist = tmp_path / "dist"
    for folder in (dist, made.parent):
        folder.mkdir()
    for name in (*stays, goes):
        (dist / name).touch()
    made.touch()
    put(made, dist, pattern)
    assert {path.name for path in dist.iterdir()} == {*stays, made.name}
