"""The public names of the client library are those that users were promised (docs/STABILITY.md)."""

import ast
import difflib
import inspect
import re
from pkgutil import resolve_name

import pytest

from support import public_names
from support.imports import ROOT
from support.public_names import describe_members, list_public_names

pytestmark = pytest.mark.built

LIST = ROOT / "tests" / "source" / "public_names.txt"
WHAT_TO_DO = """
The public names of the client library have changed. docs/STABILITY.md says in which release that may be.
If it is meant, say so in CHANGELOG.md and write the list anew:

    .venv/bin/python -P tests/support/public_names.py > tests/source/public_names.txt

A name that only the client's own modules use belongs to INTERNAL in tests/support/public_names.py.
"""


def test_the_public_names_are_as_listed():
    before = LIST.read_text(encoding="utf-8").splitlines(keepends=True)
    after = list_public_names().splitlines(keepends=True)
    change = "".join(difflib.unified_diff(before, after, "listed", "in the sources", n=0))
    assert not change, WHAT_TO_DO + change


@pytest.mark.parametrize("name", ["Consumer", "Producer", "sync.Consumer", "sync.Producer"])
def test_the_list_has_what_python_sees(name):
    """It is read from the sources; what `inspect` finds has to be in it."""
    path = f"nsqfast.client.{name}"
    block = re.search(
        rf"^class {path}\n((?: .*\n)*)", LIST.read_text(encoding="utf-8"), re.MULTILINE
    )
    listed = set(re.findall(r"^ +(?:async )?(?:def )?(\w+)", block[1], re.MULTILINE))
    hidden = set(public_names.INTERNAL[path].split())
    seen = {name for name, _ in inspect.getmembers(resolve_name(path)) if not name.startswith("_")}
    assert seen - hidden == {name for name in listed if not name.startswith("_")}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("async def f(self, a: int = 1) -> str: ...", {"f": "async def f(self, a: int=1) -> str"}),
        ("@property\ndef f(self) -> str: ...", {"f": "f: str"}),
        ("@classmethod\ndef f(cls): ...", {"f": "@classmethod def f(cls)"}),
        (
            (
                "@overload\ndef f(self) -> int: ...\n@overload\ndef f(self, a: int) -> str: ...\n"
                "def f(self, a: int = 1) -> object: ..."
            ),
            {"f": "def f(self) -> int\n    def f(self, a: int) -> str"},
        ),
        ("a: int\nb: str = 'x'", {"a": "a: int", "b": "b: str = 'x'"}),
        (
            "def __init__(self):\n    self.a = self.b = 1\n    self.c: int = 2",
            {"__init__": "def __init__(self)", "a": "a", "b": "b", "c": "c: int"},
        ),
    ],
)
def test_describes_members(text, expected):
    body = "\n".join(f"    {line}" for line in text.splitlines())
    (cls,) = ast.parse(f"class A:\n{body}").body
    assert dict(describe_members(cls)) == expected
