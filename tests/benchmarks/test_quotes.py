"""Figures in documents are those of the reports, and stand nowhere but in quotes."""

import re

import pytest

import quotes

REPORT = """
| what | ours | theirs | ours |
|---|---|---|---|
| first table | 1 | 2 | 3 |

## Rates

| what | by | rate, in M |
| --- | --- | ---: |
| PUB | a | 3.53 M (3.36 M–3.85 M) |
| PUB, 50 | a | 2 |
| PUB | b | 4 (of 5 wanted) |

More words.

## Machine

- cores: 2
- memory: 4 GiB
"""
FIGURE = re.compile(r"[0-9][0-9.,]* ?(?:[kM]\b|µs|ms\b|%|messages a second|times)|× ?[0-9]")


@pytest.fixture
def quote(tmp_path, monkeypatch):
    (tmp_path / "REPORT.md").write_text(REPORT, encoding="utf-8")
    monkeypatch.setattr(quotes, "RESULTS", tmp_path)

    def fill(*wishes):
        lines = "".join(f"{wish}\n" for wish in wishes)
        text = f"a\n<!-- quote: REPORT.md\n{lines}-->\nold\n<!-- end of quote -->\nb\n"
        found = quotes.fill_in(text)
        assert quotes.fill_in(found) == found
        return found[found.index("-->\n") + 4 : found.rindex("<!--")].strip().splitlines()

    return fill


@pytest.mark.parametrize(
    ("wishes", "lines"),
    [
        (
            [],
            [
                "| what | ours | theirs | ours |",
                "| --- | --- | --- | --- |",
                "| first table | 1 | 2 | 3 |",
            ],
        ),
        (
            ["section: Rates", "columns: what | rate", "rows: PUB, 50 | PUB"],
            ["| what | rate, in M |", "| --- | ---: |", "| PUB, 50 | 2 |", "| PUB | 3.53 M |"],
        ),
        (
            ["section: Rates", "only: by = b", "columns: what | rate"],
            ["| what | rate, in M |", "| --- | ---: |", "| PUB | 4 (of 5 wanted) |"],
        ),
        (["section: Machine"], ["- cores: 2", "- memory: 4 GiB"]),
    ],
)
def test_tables_and_lists(quote, wishes, lines):
    assert quote(*wishes) == lines


@pytest.mark.parametrize(
    "wishes", [["section: None"], ["section: Rates", "rows: SUB"], ["section: Rates", "columns: x"]]
)
def test_what_is_not_there_is_an_error(quote, wishes):
    with pytest.raises(ValueError, match="no"):
        quote(*wishes)


@pytest.mark.parametrize("path", quotes.PAGES, ids=lambda path: path.name)
def test_the_documents_are_as_the_reports_and_have_no_figure_in_their_prose(path):
    """`python benchmarks/quotes.py` makes them so; make bench and its kin call it."""
    text = path.read_text(encoding="utf-8")
    assert len(quotes.QUOTE.findall(text)) == text.count("<!-- quote:") > 10
    assert quotes.fill_in(text) == text
    prose = re.sub(r"```.*?```", "", quotes.QUOTE.sub("", text), flags=re.DOTALL)
    assert FIGURE.findall(prose) == []
