"""The judge of crash states, judged: what a ledger says is owed at any moment."""

import pytest

from durability.crash.ledger import (
    ACCEPTED,
    DROP_ANSWERED,
    DROPPED,
    FINISH_CONFIRMED,
    FINISH_SENT,
    SENT,
    Fact,
    Ledger,
)


def facts(*rows):
    return Ledger(Fact(time_ns, kind, *rest) for time_ns, kind, *rest in rows)


def test_what_was_accepted_is_owed_from_when_its_ok_was_read():
    ledger = facts((10, SENT, "", b"1"), (20, ACCEPTED, "t:c", b"1"))
    assert [ledger.must_have(now) for now in (19, 20)] == [{}, {"t:c": {b"1"}}]


def test_each_channel_owes_it_until_its_own_fin_is_sent():
    ledger = facts(
        (10, SENT, "", b"1"),
        (20, ACCEPTED, "t:a", b"1"),
        (20, ACCEPTED, "t:b", b"1"),
        (30, FINISH_SENT, "t:a", b"1"),
        (40, FINISH_CONFIRMED, "t:a", b"1"),
    )
    assert ledger.must_have(29).keys() == {"t:a", "t:b"}
    assert ledger.must_have(30) == {"t:b": {b"1"}}
    assert [ledger.must_not_have(now) for now in (39, 40)] == [{}, {"t:a": {b"1"}}]


def test_a_topic_owes_what_none_of_its_channels_was_told_to_finish_or_drop():
    rows = [(10, SENT, "", b"1"), (20, ACCEPTED, "t", b"1"), (20, ACCEPTED, "u", b"1")]
    finished = facts(*rows, (30, FINISH_SENT, "t:c", b"1"))
    dropped = facts(*rows, (30, DROPPED, "t:c", b""), (40, DROP_ANSWERED, "t:c", b""))
    for ledger in (finished, dropped):
        assert ledger.must_have(29).keys() == {"t", "u"}
        assert ledger.must_have(30) == {"u": {b"1"}}


@pytest.mark.parametrize(("now_ns", "owed"), [(29, {b"1"}), (30, set()), (59, set()), (60, {b"3"})])
def test_a_drop_excuses_what_was_sent_before_its_answer(now_ns, owed):
    ledger = facts(
        (10, SENT, "", b"1"),
        (20, ACCEPTED, "t:c", b"1"),
        (30, DROPPED, "t:c", b""),
        (32, SENT, "", b"2"),
        (34, ACCEPTED, "t:c", b"2"),
        (40, DROP_ANSWERED, "t:c", b""),
        (50, SENT, "", b"3"),
        (60, ACCEPTED, "t:c", b"3"),
    )
    assert ledger.must_have(now_ns).get("t:c", set()) == owed


def test_clients_write_it_down_in_order():
    ledger = Ledger()
    ledger.sent(b"1", b"2")
    ledger.accepted([b"1", b"2"], ["t:c"])
    ledger.finish_sent("t:c", b"1")
    ledger.finish_confirmed("t:c", b"1")
    times_ns = [fact.time_ns for fact in ledger.facts]
    assert times_ns == sorted(times_ns)
    assert ledger.must_have(times_ns[-1]) == {"t:c": {b"2"}}
    assert ledger.all_sent() == {b"1", b"2"}
