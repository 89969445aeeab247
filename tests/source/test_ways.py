"""The ways through the code in docs/ARCHITECTURE.md: their steps exist, lead to one another, and cross few modules."""

import pytest

from support.imports import ROOT
from support.ways import Sources, read_ways

MODULES_MAX = {
    "A PUB to a consumer": 14,
    "A PUB with a commit log to its OK": 15,
    "A POST /pub": 7,
    "A channel's page": 25,
}


@pytest.fixture(scope="module")
def sources():
    return Sources()


def test_the_ways_are_true(sources):
    ways = read_ways((ROOT / "docs" / "ARCHITECTURE.md").read_text(encoding="utf-8"))
    wrong = {title: sources.find_wrong(way) for title, way in ways.items()}
    assert wrong == {title: [] for title in ways}
    assert [title for title, most in MODULES_MAX.items() if ways[title].count > most] == []


@pytest.mark.parametrize(
    ("line", "wrong"),
    [
        ("nsqadmin.web.view:Views.get", []),
        ("nsqadmin.web.view:Views.none", ["nsqfast.nsqadmin.web.view has no Views.none"]),
        ("nsqadmin.web.none:build", ["nsqfast.nsqadmin.web.none is no module"]),
        ("nsqd.main:main", ["nothing before leads to nsqfast.nsqd.main"]),
        (
            "_ext.broker.channel:Channel.put",
            ["nothing before leads to nsqfast._ext.broker.channel"],
        ),
    ],
)
def test_finds_what_is_wrong_of_a_way(sources, line, wrong):
    first = "    nsqadmin.web.site:Site.serve  it"
    text = f"\n## Four ways\n\n### A page: 2 modules\n\n{first}\n    {line}  that\n\n## Else\n"
    way = read_ways(text)["A page"]
    assert sources.find_wrong(way) == wrong
    assert sources.find_wrong(way._replace(count=3)) == [*wrong, "crosses 2 modules, not 3"]
