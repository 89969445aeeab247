"""CHANGELOG.md names each release, and this one has its section."""

import re

from nsqfast import __version__
from support.imports import ROOT
from support.plain_install import read_project

TEXT = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
RELEASES = re.findall(r"^## \[(\S+)\](?: - (\d{4}-\d\d-\d\d))?$", TEXT, re.MULTILINE)


def test_this_release_has_its_section_below_what_is_not_released():
    (unreleased, no_date), *releases = RELEASES
    assert (unreleased, no_date) == ("Unreleased", "")
    assert __version__ in dict(releases)
    dates = [date for _, date in releases]
    assert all(dates)
    assert dates == sorted(dates, reverse=True)


def test_each_heading_is_a_link_to_the_source():
    links = dict(re.findall(r"^\[(\S+)\]: (\S+)$", TEXT, re.MULTILINE))
    assert list(links) == [name for name, _ in RELEASES]
    assert all(link.startswith(f"{read_project()['urls']['Source']}/") for link in links.values())


def test_the_kinds_of_changes_are_those_of_keep_a_changelog():
    kinds = ["Added", "Changed", "Deprecated", "Fixed", "Removed", "Security"]
    for section in re.split(r"^## ", TEXT, flags=re.MULTILINE)[1:]:
        found = re.findall(r"^### (.*)$", section, re.MULTILINE)
        assert found == [kind for kind in kinds if kind in found]
