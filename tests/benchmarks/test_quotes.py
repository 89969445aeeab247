"""Figures in documents are those of the reports, and stand nowhere but in quotes."""

import re

import pytest

import quotes

FIGURE = re.compile(r"[0-9][0-9.,]* ?(?:[kM]\b|µs|ms\b|%|messages a second|times)|× ?[0-9]")
QUOTES = [found for path in quotes.PAGES for found in quotes.QUOTE.finditer(path.read_text())]


@pytest.mark.parametrize("found", QUOTES, ids=lambda found: found["wishes"][:60])
def test_a_quote_has_what_it_wishes(found):
    """Read without the code that fills it in."""
    wishes = dict(line.split(": ", 1) for line in found["wishes"].splitlines())
    columns, rows, only = (wishes.get(one, "") for one in ("columns", "rows", "only"))
    report = (quotes.RESULTS / found["file"]).read_text(encoding="utf-8")
    section = report.partition(f"\n## {wishes['section']}\n")[2] if "section" in wishes else report
    lines = found["quoted"].strip().splitlines()
    for line in lines:
        cells = [cell.strip() for cell in line.strip("|").split("|") if "---" not in cell]
        same = [one for one in section.splitlines() if all(cell in one for cell in cells)]
        assert [one for one in same if only.partition(" = ")[2] in one or line is lines[0]]
    if not lines[0].startswith("- "):
        heads, _, *others = [line.strip("|").split("|") for line in lines]
        for wished, texts in ((columns, heads), (rows, [cells[0] for cells in others])):
            names = [name.strip() for name in wished.split(" | ") if wished]
            assert all(map(str.startswith, map(str.strip, texts), names))
            assert len(names) in (0, len(texts))


@pytest.mark.parametrize("wish", ["section: None", "rows: None", "columns: None"])
def test_what_is_not_there_is_an_error(wish):
    with pytest.raises(ValueError, match="no"):
        quotes.fill_in(f"<!-- quote: TOOLS.md\n{wish}\n-->\n<!-- end of quote -->\n")


@pytest.mark.parametrize("path", quotes.PAGES, ids=lambda path: path.name)
def test_the_documents_are_as_the_reports_and_have_no_figure_in_their_prose(path):
    """`python benchmarks/quotes.py` makes them so; make bench and its kin call it."""
    text = path.read_text(encoding="utf-8")
    assert len(quotes.QUOTE.findall(text)) == text.count("<!-- quote:") > 10
    assert quotes.fill_in(text) == text
    prose = re.sub(r"```.*?```", "", quotes.QUOTE.sub("", text), flags=re.DOTALL)
    assert FIGURE.findall(prose) == []
