"""One word, one thing: the glossary of docs/ARCHITECTURE.md, and the words that it retires."""

import re
from collections import Counter

import pytest

from support.imports import ROOT, list_package_sources

WORDS_MAX = 40
# What these are alone says nothing, so that each of them has one owner at most.
OWNED = ("Table", "Part", "Connection", "Publisher")
CLASS = re.compile(r"^(?:cdef )?class (\w+)", re.MULTILINE)
ROW = re.compile(r"^\| \*\*(.+?)\*\* \| (.+?) \| (.*?) ?\|$", re.MULTILINE)
NO_NAMES = re.compile(r'"""[\s\S]*?"""|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|#.*')


def read_glossary():
    """{word: (meaning, retired identifiers)} of the page's first section."""
    text = (ROOT / "docs" / "ARCHITECTURE.md").read_text(encoding="utf-8")
    first = text.partition("\n## ")[2].partition("\n## ")[0]
    return {
        word: (meaning, re.findall(r"`(\w+)`", instead))
        for word, meaning, instead in ROW.findall(first)
    }


def find_names(text, retired):
    """The identifiers of a source with a retired word in them: `put_off` is in `is_put_off`, not in `output_offset`."""
    code = set(re.findall(r"\w+", NO_NAMES.sub("", text)))
    pattern = re.compile(rf"(?:^|_)(?:{'|'.join(retired)})(?:_|$)")
    return sorted(name for name in code if pattern.search(name))


def test_the_page_opens_with_a_glossary():
    assert 20 <= len(read_glossary()) <= WORDS_MAX


def test_retired_words_are_gone():
    retired = [name for _, names in read_glossary().values() for name in names]
    assert retired
    found = {}
    for path in [*list_package_sources(), *ROOT.glob("_ext/**/*.h")]:
        if names := find_names(path.read_text(encoding="utf-8"), retired):
            found[str(path.relative_to(ROOT))] = names
    assert found == {}


def test_plain_names_of_classes_have_one_owner():
    owners = Counter(
        name
        for path in list_package_sources()
        if path.suffix in {".py", ".pyx"}
        for name in CLASS.findall(path.read_text(encoding="utf-8"))
    )
    assert {name: owners[name] for name in OWNED if owners[name] > 1} == {}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("cdef bint is_put_off\n", ["is_put_off"]),
        ("self.put_off(1)  # put_offs", ["put_off"]),
        ('output_offset = "put_off"\n', []),
    ],
)
def test_finds_names(text, found):
    assert find_names(text, ["put_off"]) == found
