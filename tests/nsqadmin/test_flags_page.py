"""docs/ADMIN.md: every flag of nsqadmin with its default, and no flag that there is not."""

import re
from pathlib import Path

import pytest

from nsqfast.nsqadmin.options import Options, parse
from nsqfast.nsqd.options import Options as NsqdOptions
from nsqfast.options import declared

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "ADMIN.md").read_text(encoding="utf-8")
ROWS = re.findall(r"^\| `--([\w-]+)` \| `?(.+?)`? \| (.+) \|$", PAGE, re.MULTILINE)
FLAGS = {item.flag: item for item in declared(Options)}
EVERYWHERE = {"config", "version", "help"}
OF_MAKE = {"demo-cluster", "nsqd-only"}
NONE = "–"


def test_every_flag_has_one_row():
    assert sorted(flag for flag, _, _ in ROWS) == sorted(FLAGS)


@pytest.mark.parametrize(("flag", "value", "_text"), ROWS, ids=[row[0] for row in ROWS])
def test_a_row_has_the_default(flag, value, _text):
    default = getattr(parse([]), FLAGS[flag].attribute)
    if value == NONE:
        assert default in ("", [])
    else:
        assert getattr(parse([f"--{flag}={value}"]), FLAGS[flag].attribute) == default


def test_lists_are_called_so():
    lists = {flag for flag, item in FLAGS.items() if getattr(parse([]), item.attribute) == []}
    assert {flag for flag, _, text in ROWS if text.startswith("list: ")} == lists


def test_no_flag_is_named_that_there_is_not():
    named = set(re.findall(r"(?<![\w-])--([a-z][\w-]*)", PAGE.replace("problem-…", "")))
    of_nsqd = {item.flag for item in declared(NsqdOptions)}
    assert named - FLAGS.keys() - of_nsqd - EVERYWHERE - OF_MAKE == set()


def test_links_within_the_page_lead_somewhere():
    heads = re.findall(r"^#+ (.+)$", PAGE, re.MULTILINE)
    anchors = {re.sub(r"[^\w -]", "", head.lower()).replace(" ", "-") for head in heads}
    assert set(re.findall(r"\]\(#([\w-]+)\)", PAGE)) <= anchors
