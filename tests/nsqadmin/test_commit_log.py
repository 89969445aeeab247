"""The commit log of an nsqd on its page: of real nodes with and without one, and of one that lies about it."""

import copy
import math

import pytest

from nsqfast.nsqadmin.cluster.answers import CommitLogFigures, CommitTimes
from nsqfast.nsqadmin.cluster.commit_log import SPAN_S, CommitLogWatch
from nsqfast.nsqadmin.options import Options
from nsqfast.nsqadmin.web import texts
from support.access import Running
from support.admin import text_of
from support.fake_stats import FakeStats
from support.page_html import PageHtml
from support.server import start_nsqd
from support.waiting import wait_until
from support.web import get, stats
from support.wire import Client

SMALL = ("--commit-log-size=16777216", "--max-body-size=1048576", "--max-msg-size=262144")
HOSTILE = '<img src=x onerror="alert(1)">'
LEAST, MOST = -(1 << 53), 1 << 53
SENSELESS = {
    "mode": HOSTILE * 9,
    "refusal": HOSTILE * 9,
    "checkpoint_error": HOSTILE,
    "commit_times": {"count": MOST, "within_ms": [[1e15, LEAST], [0, MOST]] * 32},
}
# That of a node which says so nothing is taken, as if it did not answer.
INVALID = {
    "mode": 7,
    "failed": "yes",
    "size_bytes": 1 << 54,
    "needed_bytes": "many",
    "commit_count": 1.5,
    "message_count": None,
    "last_checkpoint": [],
    "commit_times": {"count": 1, "within_ms": [[0.1, 1]] * 65},
}


def figures(commits, messages=0, within=()):
    times = CommitTimes(commits, tuple(zip((1.0, 5.0, 10.0), within, strict=False)))
    return CommitLogFigures(commit_count=commits, message_count=messages, commit_times=times)


# -- from two answers


def test_nothing_is_known_of_a_node_without_a_log():
    watch = CommitLogWatch()
    watch.note(None, 1.0, is_same_life=False)
    watch.note(None, 2.0, is_same_life=True)
    assert watch.view() is None
    watch.note(figures(10, 20, (10, 10, 10)), 3.0, is_same_life=True)
    assert watch.view().median_ms == 1.0
    watch.note(None, 4.0, is_same_life=True)
    assert watch.view() is None


def test_the_first_answer_says_what_was_since_the_start():
    watch = CommitLogWatch()
    watch.note(figures(100, 400, (50, 98, 99)), 1.0, is_same_life=False)
    found = watch.view()
    assert (found.commits_s, found.messages_per_commit) == (None, 4.0)
    assert (found.median_ms, found.most_ms) == (1.0, 10.0)


def test_later_ones_say_what_was_in_the_last_minute():
    watch = CommitLogWatch()
    watch.note(figures(100, 400, (100, 100, 100)), 0.0, is_same_life=False)
    watch.note(figures(110, 420, (100, 109, 109)), 10.0, is_same_life=True)
    found = watch.view()
    assert (found.commits_s, found.messages_per_commit) == (1.0, 2.0)
    assert (found.median_ms, found.most_ms) == (5.0, math.inf)
    assert texts.within(found.most_ms) == "longer than 10 s"
    # An answer of each second: what is compared is between SPAN_S and twice that old.
    for second in range(11, 200):
        watch.note(figures(100 + 2 * second), float(second), is_same_life=True)
    assert watch.view().commits_s == 2.0
    # Nothing happens any more: means and quantiles are those of its whole life again.
    for second in range(200, 200 + 3 * int(SPAN_S)):
        watch.note(figures(500, 5000, (500, 500, 500)), float(second), is_same_life=True)
    found = watch.view()
    assert (found.commits_s, found.messages_per_commit, found.median_ms) == (0.0, 10.0, 1.0)


def test_a_restart_is_no_negative_rate():
    watch = CommitLogWatch()
    watch.note(figures(1000, 4000, (1000, 1000, 1000)), 0.0, is_same_life=False)
    watch.note(figures(5, 5, (5, 5, 5)), 2.0, is_same_life=False)
    assert watch.view().commits_s is None
    assert watch.view().messages_per_commit == 1.0
    watch.note(figures(3, 1, (1, 1, 1)), 4.0, is_same_life=True)  # it lies
    assert watch.view().commits_s == 0.0


def test_senseless_numbers_have_a_text():
    assert texts.short_time(0.31) == "310 ms"
    assert texts.short_time(0.0999) == "100 ms"
    assert texts.short_time(0.0013) == "1.3 ms"
    assert texts.within(2.5) == "within 2.5 ms"
    assert texts.mean(73.2) == "73"


# -- the page


def start_admin(*addresses):
    options = Options(
        http_address="127.0.0.1:0",
        nsqd_http_addresses=list(addresses),
        poll_interval_ns=100_000_000,
    )
    return Running(options)


def page(admin, address):
    answer = get(admin.http, f"/nodes/{address}")
    assert answer.status in (200, 404), answer
    return answer.body.decode()


def wait_for_log(admin, address, holds):
    """The texts of the page's section, once they are so."""

    def look():
        found = get(admin.http, f"/ui/live?view=/nodes/{address}")
        view = found.json() if found.status == 200 else {"shown": {}}
        return view["shown"].get("log-shown") and holds(view) and view

    return wait_until(look, f"the log of {address} is shown")


@pytest.mark.slow
def test_a_real_node_with_a_log_and_one_without(tmp_path):
    for name in ("log", "off"):
        (tmp_path / name).mkdir()
    with (
        start_nsqd("nsqfast", tmp_path / "log", "--durable=always", *SMALL) as durable,
        start_nsqd("nsqfast", tmp_path / "off") as off,
        Client(durable.tcp) as client,
        start_admin(text_of(durable.http), text_of(off.http)) as admin,
    ):
        for _ in range(7):
            client.mpub("t", [b"x"] * 10)
        said = stats(durable.http)["commit_log"]
        count = f"{said['commit_count']} since it started"
        address = text_of(durable.http)
        found = wait_for_log(admin, address, lambda view: count in view["texts"]["log-commits"])
        assert found["texts"]["log-mode"] == "always"
        assert found["texts"]["log-needed"].endswith(" of 16 MiB")
        assert found["texts"]["log-checkpoint"] == "none yet"
        assert found["states"]["log"] == {"kind": "ok", "word": "works", "title": ""}
        assert not found["shown"]["log-trouble-shown"]
        html = PageHtml(page(admin, address))
        assert not html.hidden["log-shown"]
        wait_until(lambda: "Commit log" in page(admin, text_of(off.http)), "the other is known")
        assert PageHtml(page(admin, text_of(off.http))).hidden["log-shown"]


def lying(answers):
    """A node that says what stands in `answers` of its log."""

    def answer(path, _query):
        if path != "/stats":
            return None
        said = {"version": "1.3.0", "health": "OK", "start_time": 1, "topics": []}
        return said | {"commit_log": copy.deepcopy(answers)}

    return FakeStats(answer)


@pytest.mark.slow
@pytest.mark.parametrize("number", [LEAST, -1, 0, 1, MOST])
def test_a_node_that_lies_about_its_log(number):
    names = [name for name in CommitLogFigures.__struct_fields__ if name not in SENSELESS]
    answers = dict.fromkeys(names, number) | SENSELESS | {"failed": number == 1}
    with lying(answers) as liar, start_admin(liar.address) as admin:
        found = wait_for_log(admin, liar.address, lambda _: True)
        assert found["texts"]["log-trouble"] == (HOSTILE * 9)[:200]
        assert found["states"]["log"]["kind"] == "crit"
        assert found["states"]["log"]["word"] == ("failed" if number == 1 else "refuses messages")
        html = page(admin, liar.address)
        assert "<img" not in html
        assert HOSTILE[:4].replace("<", "&lt;") in html


@pytest.mark.slow
@pytest.mark.parametrize("name", INVALID)
def test_a_node_whose_log_is_none(name):
    answers = {"mode": "always", name: INVALID[name]}
    with lying(answers) as liar, start_admin(liar.address) as admin:
        wait_until(lambda: "is not what nsqd says" in page(admin, liar.address), "it is said")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("said", "kind", "word"),
    [
        ({}, "ok", "works"),
        ({"bad_quarters": 1}, "warn", "a file is bad"),
        ({"checkpoint_error": "no space left on device"}, "warn", "no checkpoint"),
        ({"refusal": "the commit log is full"}, "crit", "refuses messages"),
        ({"refusal": "it cannot be written", "failed": True}, "crit", "failed"),
    ],
)
def test_the_state_of_a_log(said, kind, word):
    with lying({"mode": "interval"} | said) as node, start_admin(node.address) as admin:
        found = wait_for_log(admin, node.address, lambda _: True)
        assert (found["states"]["log"]["kind"], found["states"]["log"]["word"]) == (kind, word)
        reason = said.get("refusal") or said.get("checkpoint_error") or ""
        assert found["texts"]["log-trouble"] == reason
        assert found["shown"]["log-trouble-shown"] == bool(reason)
