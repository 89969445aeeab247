"""Each extra of a wheel, installed alone as a user would, in an environment without a compiler.

`make wheel-extras` runs this: installing all of them takes minutes and half a gigabyte.
"""

import os
import re
import sys

import pytest

from support.extras import EXTRAS, FLAGS
from support.plain_install import read_project
from support.wheels import WHEELS
from wheels.clean_room import CleanRoom
from wheels.interpreters import find_own

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.skipif("NSQFAST_EXTRAS" not in os.environ, reason="only in make wheel-extras"),
]

PLAIN = ""
CLIENT_MB_MAX = 40
MISSING = r".* needs .*, which (is|are) not installed: pip install 'nsqfast\[{}\]'\n"
IMPORT_ALL = """
import importlib, pkgutil, sys
for name in sys.argv[1:]:
    package = importlib.import_module(name)
    for each in pkgutil.walk_packages(package.__path__, name + "."):
        importlib.import_module(each.name)
"""
# What has to be importable with an extra, as far as it is a whole package.
BROUGHT = {
    PLAIN: ["nsqfast.client.sync"],
    "admin": ["nsqfast.nsqadmin"],
    "server": ["nsqfast.nsqd", "nsqfast.nsqlookupd", "nsqfast.streams"],
    "spark": ["nsqfast.nsqd", "nsqfast.spark", "nsqfast.tools", "nsqfast.archives"],
}
BROUGHT["all"] = [*BROUGHT["spark"], "nsqfast.nsqadmin"]


def list_working(extra):
    """The programs that start with an extra."""
    project = read_project()
    inside = {
        extra,
        *re.findall(
            r"nsqfast\[([\w,]+)\]", " ".join(project["optional-dependencies"].get(extra, []))
        ),
    }
    inside = {each for names in inside for each in names.split(",")}
    return {name for name in project["scripts"] if EXTRAS.get(name, "server") in {*inside, PLAIN}}


def find_wheel():
    tag = f"cp{sys.version_info[0]}{sys.version_info[1]}"
    found = [path for path in WHEELS if path.name.split("-")[2] == tag]
    if not found:
        pytest.skip(f"no wheel for {tag}: run `make wheel`")
    return found[0]


@pytest.mark.parametrize("extra", [PLAIN, *read_project()["optional-dependencies"]])
def test_extra(extra):
    wheel, working = find_wheel(), list_working(extra)
    with CleanRoom(find_own()) as room:
        # PySpark has no wheel; what it is made of is Python.
        named = f"{wheel}[{extra}]" if extra else str(wheel)
        room.install(named, is_pure=extra in {"spark", "all"})
        print(f"nsqfast[{extra}]: {room.measure_mb():.0f} MB")
        if extra == PLAIN:
            assert room.measure_mb() < CLIENT_MB_MAX
        done = room.ask("python", "-c", IMPORT_ALL, *BROUGHT.get(extra, BROUGHT[PLAIN]))
        assert done.returncode == 0, done.stderr
        for name, flags in FLAGS.items():
            check_program(room, name, flags, is_working=name in working)


def check_program(room, name, flags, *, is_working):
    if is_working:
        done = room.ask(name, "--help")
        assert done.returncode == 0, done.stderr
        assert done.stdout + done.stderr
    else:
        done = room.ask(name, *flags)
        assert re.fullmatch(MISSING.format(EXTRAS.get(name, "server")), done.stderr), done.stderr
        assert done.returncode == 1
