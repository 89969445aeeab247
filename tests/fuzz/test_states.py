"""The state fuzzer itself: it passes over a broker that is well, and its books notice each way of being wrong."""

import subprocess
import sys
from pathlib import Path

import pytest

from fuzz.states.books import BrokenError, ChannelBooks
from support.seeds import seeds

ROOT = Path(__file__).resolve().parents[2]
SECONDS = 6


@pytest.mark.soak
@pytest.mark.slow
@pytest.mark.timeout(180)
@pytest.mark.parametrize("seed", seeds("states", 1))
def test_the_books_hold(tmp_path, seed):
    command = [sys.executable, str(ROOT / "tests/fuzz/states/run.py"), f"--folder={tmp_path}"]
    command += [f"--seconds={SECONDS}", "--life=3", f"--seed={seed}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture
def books():
    """Of a channel with three messages that were accepted."""
    made = ChannelBooks("t", "c")
    made.end_creation(made.begin_creation())
    made.accept([1, 2, 3], made.send([1, 2, 3]))
    return made


def finish(books, serial, attempts=1):
    books.deliver(serial, attempts)
    books.send_fin(serial)
    books.confirm_fin(serial, attempts)


def test_what_is_right(books):
    books.check(came=3, finished=0, left=3)
    for serial in (1, 2, 3):
        finish(books, serial)
        books.check(came=3, finished=serial, left=3 - serial)
    books.check_drained()


@pytest.mark.parametrize(
    ("counts", "complaint"),
    [
        ((3, 0, 2), "2 messages are left, not 3 to 3"),
        ((4, 0, 4), "4 messages are left"),
        ((4, 0, 3), "1 are missing"),
        ((4, 1, 3), "1 finished, not 0 to 0"),
    ],
)
def test_a_lost_message_one_too_many_and_wrong_counters(books, counts, complaint):
    with pytest.raises(BrokenError, match=complaint):
        books.check(*counts)


def test_what_was_never_delivered(books):
    finish(books, 1)
    with pytest.raises(BrokenError, match="2 messages were never delivered"):
        books.check_drained()


def test_what_was_finished_and_comes_again(books):
    finish(books, 1, attempts=2)
    books.deliver(1, 1)  # it was under way to another one
    with pytest.raises(BrokenError, match="finished at attempt 2"):
        books.deliver(1, 3)
    with pytest.raises(BrokenError, match="was not owed"):
        books.deliver(4, 1)


def test_a_fin_that_was_refused_or_lost(books):
    books.send_fin(1)
    books.refuse_fin(1)
    books.check(came=3, finished=0, left=3)
    books.send_fin(1)
    books.lose_fin(1)
    for finished in (0, 1):
        books.check(came=3, finished=finished, left=3 - finished)
    books.forget_unsure(left=2)
    with pytest.raises(BrokenError, match="was counted out"):
        books.deliver(1, 2)


def test_a_fin_that_was_lost_before_the_ok_of_its_publish_came(books):
    wipes = books.send([4])
    books.deliver(4, 1)
    books.send_fin(4)
    books.lose_fin(4)
    books.accept([4], wipes)
    for finished in (0, 1):
        books.check(came=4, finished=finished, left=4 - finished)


def test_what_was_emptied_may_be_there_or_not(books):
    wipes = books.send([4])
    books.begin_wipe()
    under_way = books.send([5])
    books.end_wipe()
    books.accept([4], wipes)
    books.accept([5], under_way)
    for left in (0, 5):
        books.check(came=5, finished=0, left=left)
    books.accept([6], books.send([6]))
    with pytest.raises(BrokenError, match="0 messages are left, not 1 to 6"):
        books.check(came=6, finished=0, left=0)


def test_a_channel_that_is_deleted_was_not_made_by_what_came_before(books):
    wipes = books.begin_creation()
    books.begin_wipe(is_deletion=True)
    books.end_wipe()
    books.end_creation(wipes)
    assert not books.exists
    books.accept([4], books.send([4]))
    books.check(came=0, finished=0, left=0)
