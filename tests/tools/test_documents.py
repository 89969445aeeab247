"""docs/TOOLS.md and docs/BACKUP.md: every tool has its page, every flag is on it, and no flag that there is not."""

import re

import pytest

from nsqfast.tools.completion.programs import programs
from support.server import ROOT

TEXT = (ROOT / "docs" / "TOOLS.md").read_text(encoding="utf-8")
SECTIONS = dict(re.findall(r"^## (.*?)\n(.*?)(?=^## |\Z)", TEXT, re.DOTALL | re.MULTILINE))
# These have pages of their own.
OTHERS = {"nsqfast-nsqd", "nsqfast-nsqlookupd", "nsqfast-nsqadmin", "nsqfast-bench"}
TOOLS = {program.name: program for program in programs() if program.name not in OTHERS}
FLAG = re.compile(r"(?<![\w-])--?([a-z][a-z0-9-]*)")


def test_every_tool_has_a_page():
    assert set(SECTIONS) - {"What they have in common"} == set(TOOLS)


@pytest.mark.parametrize("name", TOOLS)
def test_every_flag_is_named(name):
    common = {"version"}
    missing = {
        flag.name
        for flag in TOOLS[name].flags
        if not re.search(rf"(?<![\w-])--?{flag.name}(?![\w-])", SECTIONS[name])
    }
    assert missing <= common


@pytest.mark.parametrize("page", ["TOOLS.md", "BACKUP.md"])
def test_no_command_has_a_flag_that_there_is_not(page):
    text = (ROOT / "docs" / page).read_text(encoding="utf-8").replace("\\\n", " ")
    commands = re.findall(r"^\s*(?:.*\| )?(nsqfast-[a-z-]+)( .*)$", text, re.MULTILINE)
    assert commands
    known = {program.name: {flag.name for flag in program.flags} for program in programs()}
    for name, words in commands:
        if name in known:
            assert set(FLAG.findall(words.partition("#")[0].partition(" | ")[0])) <= known[name], (
                words
            )
