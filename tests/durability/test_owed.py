"""What a broker with a commit log owes, told of known facts and found in known folders."""

import pytest

from durability.crash.found import Found
from durability.crash.ledger import (
    ACCEPTED,
    DROP_ANSWERED,
    DROPPED,
    DUE,
    FINISH_CONFIRMED,
    FINISH_SENT,
    MOVED,
    MOVING,
    NAMED,
    RETURNED,
    SENT,
    TOGETHER,
    UNNAMED,
    Fact,
    Ledger,
)
from durability.crash.owed import log_owed

SECOND_NS = 1_000_000_000


def judge(state_ns, found, *facts):
    return log_owed(Ledger(Fact(*fact) for fact in facts), state_ns).judge(found)


def found(**more):
    bodies = more.pop("bodies", {"t:c": [b"1", b"2"]})
    return Found(bodies=bodies, names={"t", "t:c"}, **more)


def test_a_fin_that_a_publish_proves_stays():
    fact = (10, FINISH_CONFIRMED, "t:c", b"1", 1)
    assert judge(9, found(), fact) == []
    assert judge(10, found(), fact) == ["1 came back to t:c: b'1'"]


PUBLISHED = [(10, SENT, "", b"1"), (11, ACCEPTED, "t:c", b"1")]


@pytest.mark.parametrize(
    "gone",
    [
        [(20, FINISH_CONFIRMED, "t:c", b"1", 0)],
        [(18, DROPPED, "t:c"), (20, DROP_ANSWERED, "t:c")],
        [(18, DROPPED, "t"), (18, DROPPED, "t:c"), (20, DROP_ANSWERED, "t:c")],
    ],
)
def test_what_is_dropped_stays_so_when_that_was_answered(gone):
    facts = sorted([*PUBLISHED, *gone])
    assert judge(19, found(), *facts) == []
    assert len(judge(20, found(), *facts)) == 1


def test_attempts_are_no_fewer():
    fact = (10, RETURNED, "t:c", b"1", 3)
    assert judge(10, found(attempts={"t:c": {b"1": 3}}), fact) == []
    assert judge(10, found(attempts={"t:c": {b"1": 2}}), fact) == [
        "t:c: attempt 2 instead of 3 of b'1'"
    ]
    assert judge(10, found(), fact) == []


def test_a_deadline_is_not_early():
    fact = (10, DUE, "t:c", b"1", 60 * SECOND_NS)
    early = found(due={"t:c": {b"1"}}, due_ns=59 * SECOND_NS)
    assert judge(10, early, fact) == ["t:c: 1.000 s early b'1'"]
    assert judge(10, early, fact, (10, DUE, "t:c", b"1", 0)) == []
    assert judge(10, found(due={"t:c": {b"1"}}, due_ns=60 * SECOND_NS), fact) == []
    assert judge(10, found(due={"t:c": set()}, due_ns=59 * SECOND_NS), fact) == []


@pytest.mark.parametrize(("bodies", "count"), [([], 0), ([b"1"], 1), ([b"1", b"2"], 0)])
def test_what_is_published_together_is_there_or_is_not(bodies, count):
    facts = [(9, TOGETHER, "", b"1", 5), (9, TOGETHER, "", b"2", 5)]
    there = found(bodies={"t:c": bodies})
    assert len(judge(10, there, *facts)) == count
    # A part of it is finished, or it was answered and is owed anyway.
    assert judge(10, there, *facts, (10, FINISH_SENT, "t:c", b"2")) == []
    assert judge(11, there, *facts, *PUBLISHED) == []


def test_names_that_were_answered_are_there():
    facts = [(10, NAMED, "t:c"), (10, NAMED, "u"), (20, UNNAMED, "u")]
    assert judge(10, found(), *facts) == ["u is gone"]
    assert judge(20, found(), *facts) == []


@pytest.mark.parametrize(
    ("source", "place", "while_moving", "later"),
    [
        ([b"1"], [], [], ["1 came back to t:c: b'1'"]),
        ([], [b"1"], [], []),
        ([b"1"], [b"1"], ["t:c and u:d both have 1: b'1'"], ["1 came back to t:c: b'1'"]),
        ([], [], ["neither t:c nor u:d has 1: b'1'"], []),
    ],
)
def test_what_moves_is_in_one_place(source, place, while_moving, later):
    facts = [*PUBLISHED, (20, MOVING, "t:c u:d", b"1"), (30, MOVED, "t:c u:d", b"1")]
    there = found(bodies={"t:c": source, "u:d": place})
    assert judge(29, there, *facts) == while_moving
    assert judge(30, there, *facts) == later
    ledger = Ledger(Fact(*fact) for fact in facts)
    assert [ledger.must_have(now) for now in (19, 20, 30)] == [{"t:c": {b"1"}}, {}, {"u:d": {b"1"}}]


def test_what_moves_back():
    facts = [
        *PUBLISHED,
        (20, MOVING, "t:c u:d", b"1"),
        (30, MOVED, "t:c u:d", b"1"),
        (40, MOVING, "u:d t:c", b"1"),
        (50, MOVED, "u:d t:c", b"1"),
    ]
    there = found(bodies={"t:c": [b"1"], "u:d": []})
    assert [judge(now, there, *facts) for now in (40, 50)] == [[], []]
    assert Ledger(Fact(*fact) for fact in facts).must_have(50) == {"t:c": {b"1"}}
