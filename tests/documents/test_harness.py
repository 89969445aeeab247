"""The harness itself: it runs what it should, and notices whatever is wrong with a page."""

import subprocess

import pytest

from documents.harness.blocks import PageError, read_blocks
from documents.harness.daemons import list_started
from documents.harness.matching import find_difference
from documents.harness.page import Page


def run(folder, text):
    """(blocks run, outputs compared) of that page."""
    path = folder / "page.md"
    path.write_text(text, encoding="utf-8")
    with Page(path) as page:
        page.run()
        return page.done, page.compared


def fenced(kind, text, mark=""):
    return f"{mark}\n```{kind}\n{text}\n```\n"


def test_blocks_are_read_with_their_marks():
    text = """# One

- A list:

    <!-- terminal: 2 -->
    <!-- not run: it
         installs -->
    ```sh
    pip install x
      indented
    ```

<!-- a remark -->
## Two

````python title="a.py"
```
````
<!-- run:
one
two
-->
"""
    first, second, third = read_blocks(text)
    assert (first.line, first.kind, first.section) == (8, "sh", 1)
    assert first.text == "pip install x\n  indented\n"
    assert first.marks.keys() == {"terminal", "not run"}
    assert first.terminal == "2"
    assert (second.kind, second.title, second.text) == ("python", "a.py", "```\n")
    assert not second.is_run
    assert second.section == 2
    assert (third.kind, third.text, third.is_run) == ("sh", "one\ntwo\n", True)


@pytest.mark.parametrize("text", ["```sh\n", "<!-- not run: x -->\ntext\n", "<!-- port: 1 -->"])
def test_a_page_that_cannot_be_read(text):
    with pytest.raises(PageError):
        list(read_blocks(text))


@pytest.mark.parametrize(
    ("kind", "expected", "printed"),
    [
        ("text", "a\nb", "a\nb\n"),
        ("text", "a\n...\nd", "a\nb\nc\nd\n"),
        ("text", "a\n...", "a\n"),
        ("text", "[nsqd] 2026/11/24 10:00:00.123456 INFO: x", "[nsqd] 2026/01/02 11:22:33.1 INFO: x"),
        ("text", "id 18a486d301e69000", "id 18a486d301e69fff"),
        ("text", "0.3 ms from 127.0.0.1:45678", "12.55 ms from 127.0.0.1:50000"),
        ("text", "at ... end", "at the end"),
        ("json", '{"depth": 3}', '{"depth":3}'),
        ("json", '{"depth": 3, "...": "..."}', '{"x": [], "depth": 3}'),
        ("json", '[{"a": 1}, "..."]', '[{"a": 1}, {"a": 2}]'),
        ("json", '{"timestamp": 1795364520478492360}', '{"timestamp": 1795364520478492999}'),
        ("json", '{"host": "..."}', '{"host": "machine"}'),
        ("json", "OK", "OK"),
    ],
)  # fmt: skip
def test_what_is_the_same(kind, expected, printed):
    assert find_difference(kind, expected, printed) == ""


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


def test_lines_in_any_order():
    assert find_difference("text", "b\na", "a\nb\n", is_ordered=False) == ""
    assert find_difference("text", "b\na", "a\nc\n", is_ordered=False) != ""
    assert find_difference("text", "b\na", "a\nb\n") != ""


def test_daemons_that_commands_start():
    text = """nsqfast-nsqlookupd &
    A=1 nsqfast-nsqd --data-path=a \\
        --tcp-address=x & nsqfast-nsqd &
    nsqfast-nsqd --version
    nsqfast-nsqd-like & echo nsqfast-nsqadmin
    nsqfast-nsqd --check --data-path=a
    """
    assert list_started(text) == ["nsqfast-nsqlookupd", "nsqfast-nsqd", "nsqfast-nsqd"]


@pytest.mark.slow
def test_blocks_share_a_shell_and_a_folder(tmp_path):
    text = (
        fenced("sh", "A=5; mkdir x; cd x")
        + fenced('txt title="x/file"', "in the file")
        + fenced("sh", "echo $A; cat file; echo told >&2")
        + "Prints:\n"
        + fenced("text", "5\nin the file")
        + fenced("sh", "pip install x", "<!-- not run: it installs -->")
        + fenced("sh", "cat nothing", "<!-- fails: there is no such file -->")
        + fenced("console", "cat: nothing: No such file or directory")
        + fenced("python", "import os; print(os.path.basename(os.getcwd()))")
        + fenced("text", "x")
        + fenced("sh", "(sleep 0.1; echo later) &")
        + fenced("text", "later")
    )
    assert run(tmp_path, text) == (5, 4)


@pytest.mark.slow
def test_a_second_terminal(tmp_path):
    sleeper = "B=7; python3 -c 'import time; print(1); time.sleep(60)'"
    text = (
        fenced("sh", sleeper, "<!-- terminal: 2 -->")
        + fenced("sh", "true")
        + fenced("text", "1", "<!-- terminal: 2 -->")
        + fenced("sh", "echo $B", "<!-- terminal: 2 -->")
        + fenced("text", "7")
    )
    assert run(tmp_path, text) == (3, 2)


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
    ],
)
def test_what_is_wrong_is_noticed(tmp_path, text, complaint):
    if "127" in complaint:
        text += fenced("sh", "sleep 0.3")
    with pytest.raises(PageError, match=complaint):
        run(tmp_path, text)


@pytest.mark.slow
def test_other_output_is_noticed(tmp_path, monkeypatch):
    monkeypatch.setattr("documents.harness.page.SHOWN_SECONDS_MAX", 0)
    with pytest.raises(
        PageError, match=r"page.md:6: printed something else:\nexpected: 2\nprinted:  1"
    ):
        run(tmp_path, fenced("sh", "echo 1") + fenced("text", "2"))


@pytest.mark.slow
def test_what_is_missing_is_left_out(tmp_path):
    need = "<!-- needs: no-such-command -->"
    text = (
        fenced("sh", "no-such-command", need)
        + fenced("text", "x")
        + "## On\n"
        + fenced("sh", "true")
    )
    assert run(tmp_path, text) == (1, 0)


@pytest.mark.slow
def test_nothing_is_left_running(tmp_path):
    run(tmp_path, fenced("sh", f"python3 -c 'import time; time.sleep(600)' {tmp_path} &"))
    left = subprocess.run(["ps", "-Ao", "args"], capture_output=True, text=True, check=True).stdout
    assert f"sleep(600) {tmp_path}" not in left
