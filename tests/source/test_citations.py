"""What the code cites is in this repository: `(spec nsqd-tcp §5)` is the section `## §5` of docs/spec/nsqd-tcp.md."""

import re
from collections.abc import Iterator
from pathlib import Path

from support.imports import ROOT

PAGES = ROOT / "docs" / "spec"
FOLDERS = ("_ext", "nsqfast", "spark_jobs", "tests", "benchmarks", "examples", "docs/spec")
SUFFIXES = {".py", ".pyx", ".pxd", ".pyi", ".h", ".md"}

# `spec nsqd-tcp §4, §5`, `spec nsqd-core §9, nsqlookupd §2`, `spec nsqd-tcp §4-§7`
CITATION = re.compile(r"[Ss]pec((?:(?:,|-)?\s*(?:[a-z][a-z-]*\s+)?§\d+(?:\.\d+)?)+)")
PART = re.compile(r"(?:([a-z][a-z-]*)\s+)?§(\d+(?:\.\d+)?)")
HEADING = re.compile(r"^#+ §(\d+(?:\.\d+)?)\b", re.MULTILINE)
ROW = re.compile(r"§(\d+) row (\d+)")


def list_sources() -> list[Path]:
    """Return the files that may cite."""
    return sorted(
        path
        for folder in FOLDERS
        for path in (ROOT / folder).rglob("*")
        if path.suffix in SUFFIXES and path != Path(__file__)
    )


def find_citations(text: str) -> Iterator[tuple[str, str]]:
    """Yield (page, section) of each; a section that names no page has that of the one before it."""
    for citation in CITATION.finditer(text):
        page = ""
        for name, section in PART.findall(citation[1]):
            page = name or page
            yield page, section


def read_headings(page: str) -> set[str]:
    """Return the numbers of a page's sections; none where there is no such page."""
    path = PAGES / f"{page}.md"
    return set(HEADING.findall(path.read_text(encoding="utf-8"))) if path.exists() else set()


def test_every_citation_names_a_section_that_exists():
    wrong = [
        f"{path.relative_to(ROOT)}: spec {page} §{section}"
        for path in list_sources()
        for page, section in find_citations(path.read_text(encoding="utf-8"))
        if section not in read_headings(page)
    ]
    assert wrong == []


def test_every_section_sign_belongs_to_a_citation():
    wrong = [
        f"{path.relative_to(ROOT)}: {line.strip()}"
        for path in list_sources()
        if path.suffix != ".md"  # a page has headings, and refers to itself
        for line in CITATION.sub("", path.read_text(encoding="utf-8")).splitlines()
        if "§" in line
    ]
    assert wrong == []


def test_rows_exist():
    rows = re.findall(
        r"^\| (\d+) \|", (PAGES / "nsqd-core.md").read_text(encoding="utf-8"), re.MULTILINE
    )
    cited = {
        row
        for path in list_sources()
        for section, row in ROW.findall(path.read_text(encoding="utf-8"))
        if section == "14"
    }
    assert cited <= set(rows)


def test_the_index_lists_every_page():
    linked = re.findall(r"\]\(([\w-]+\.md)\)", (PAGES / "README.md").read_text(encoding="utf-8"))
    assert set(linked) == {path.name for path in PAGES.glob("*.md")} - {"README.md"}


def test_finds_citations():
    text = "(spec nsqd-tcp §4,\n§5-§7, client §3.1). Spec nsqlookupd §4. Then timespec"
    cited = "nsqd-tcp 4, nsqd-tcp 5, nsqd-tcp 7, client 3.1, nsqlookupd 4"
    assert ", ".join(map(" ".join, find_citations(text))) == cited


# `Durability.end_batch` and `diskqueue.ackfile`, as the pages for those who read the code write them.
METHOD = re.compile(r"`([A-Z][a-z]\w*)\.([a-z]\w*)(?:\(\))?`")
MODULE = re.compile(
    r"`(core|commitlog|protocol|storage|diskqueue|broker|server|client|bench|dev)\.([a-z]\w*)`"
)


def test_methods_and_modules_that_a_page_names_exist():
    pages = ("CONTRIBUTING.md", "docs/ARCHITECTURE.md", "docs/GUARANTEES.md")
    text = "\n".join((ROOT / page).read_text(encoding="utf-8") for page in pages)
    code = [
        path.read_text(encoding="utf-8")
        for path in list_sources()
        if path.suffix in {".py", ".pyx"} and not path.is_relative_to(ROOT / "tests")
    ]
    missing = [
        f"{owner}.{name}"
        for owner, name in METHOD.findall(text)
        if not any(
            re.search(rf"\bclass {owner}\b", source) and re.search(rf"\b{name}\b", source)
            for source in code
        )
    ]
    missing += [
        f"{room}.{name}"
        for room, name in MODULE.findall(text)
        if not any((ROOT / "_ext").rglob(f"{room}/{name}.*"))
    ]
    assert missing == []


def test_every_attack_has_a_test_that_exists():
    text = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    rows = text.partition("### Attacks")[2].partition("\n## ")[0].splitlines()
    tests = [row.split(" | ")[1].strip("`") for row in rows if row.startswith("| ")][1:]
    assert tests
    for test in tests:
        path, _, name = test.partition("::")
        assert f"def {name}(" in (ROOT / path).read_text(encoding="utf-8"), test
