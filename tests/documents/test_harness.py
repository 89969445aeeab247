"""The harness itself: it runs what it should, and notices whatever is wrong with a page."""

import pytest

from documents.harness.blocks import PageError
from documents.harness.matching import find_difference
from documents.harness.page import Page


def run(folder, text):
    path = folder / "page.md"
    path.write_text(text, encoding="utf-8")
    with Page(path) as page:
        page.run()


def fenced(kind, text, mark=""):
    return f"{mark}\n```{kind}\n{text}\n```\n"


@pytest.mark.parametrize(
    ("kind", "expected", "printed"),
    [
        ("text", "a", "b"),
        ("text", "a", "a\nb"),
        ("text", "a\nb", "a"),
        ("text", "a", ""),
        ("text", "a\n...\nd", "a\nb"),
        ("text", "depth: 3", "depth: 4"),
        ("text", "version 1.3.0", "version 1.3.1"),
        ("text", "127.0.0.1:4150", "127.0.0.1:4151"),
        ("text", "127.0.0.1:32768", "127.0.0.1:32767"),
        ("json", '{"depth": 3}', '{"depth": 4}'),
        ("json", '{"depth": 3}', '{"depth": 3, "more": 1}'),
        ("json", '{"depth": 3, "x": 1}', '{"depth": 3}'),
        ("json", '{"depth": true}', '{"depth": 1}'),
        ("json", '[{"a": 1}]', '[{"a": 1}, {"a": 2}]'),
        ("json", '[{"a": 1}, "..."]', "[]"),
        ("json", '{"a": null}', '{"a": "null"}'),
        ("json", "OK", "NOK"),
    ],
)
def test_what_is_not(kind, expected, printed):
    assert find_difference(kind, expected, printed) != ""


@pytest.mark.parametrize("port", [32768, 32999, 33000, 60999])
def test_the_port_of_a_connection_is_any(port):
    assert find_difference("text", "127.0.0.1:54776", f"127.0.0.1:{port}") == ""


def test_what_asyncio_says_of_a_slow_step_is_not_compared():
    assert find_difference("text", "..\nOK", "Executing <Task x> took 0.170 seconds\n..\nOK") == ""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (fenced("sh", "false\ntrue"), "page.md:2: ended with status 1"),
        (fenced("sh", "false | cat"), "status 1"),
        (fenced("sh", "true", "<!-- fails: it should -->"), "status 1"),
        (fenced("python", "raise SystemExit(4)"), "status 4"),
        (fenced("python", "x = (", "<!-- not run: a part -->"), "never closed"),
        (fenced("go", "package main"), "needs a title"),
        (fenced("sh", "nothing-like-that", "<!-- terminal: 2 -->"), "terminal 2: status 127"),
        (fenced("text", "x", "<!-- terminal: 2 -->"), "nothing was typed"),
        (
            fenced("sh", "echo 1") + fenced("text", "2"),
            r"page.md:6: printed something else:\nexpected: 2\nprinted:  1",
        ),
    ],
)
def test_what_is_wrong_is_noticed(tmp_path, monkeypatch, text, complaint):
    monkeypatch.setattr("documents.harness.page.SHOWN_SECONDS_MAX", 0)
    if "127" in complaint:
        text += fenced("sh", "sleep 0.3")
    with pytest.raises(PageError, match=complaint):
        run(tmp_path, text)
