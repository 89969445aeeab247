"""Rates, from the counters of one node and from living nodes with a consumer whose rate is known."""

import asyncio
import random
import statistics
import time

import msgspec
import numpy as np
import orjson
import pytest

from nsqfast.net.slices import Slices
from nsqfast.nsqadmin.cluster import answers
from nsqfast.nsqadmin.cluster.answers import ChannelFigures, TopicFigures
from nsqfast.nsqadmin.cluster.model import Rates, make_rates
from nsqfast.nsqadmin.cluster.samples import (
    Layouts,
    Sample,
    channel_rates,
    make_sample,
    read,
    read_figures,
)
from support.fake_stats import FakeStats, channel, stats, topic
from support.polling import Polling
from support.seeds import seeds

IDLE = Rates(0.0)
LAYOUTS = Layouts()


def figures(**counts):
    return ChannelFigures(channel_name="c", client_count=counts.pop("client_count", 1), **counts)


def values(channel):
    return read_figures([TopicFigures(topic_name="t", channels=(channel,))]).channel_values


def rates_of(old, new, elapsed_s):
    (found,) = channel_rates(values(old), values(new), elapsed_s)
    return make_rates(found.tolist())


def test_out_is_what_left_the_channel():
    old = figures(message_count=1000, depth=100, in_flight_count=10, deferred_count=5)
    new = figures(
        message_count=1500, depth=150, in_flight_count=20, deferred_count=0, requeue_count=6,
        timeout_count=2,
    )  # fmt: skip
    assert rates_of(old, new, 2.0) == Rates(250.0, (500 - 50 - 10 + 5) / 2, 3.0, 1.0)


def test_a_channel_in_which_nothing_moves_is_idle():
    assert rates_of(figures(depth=7), figures(depth=7), 2.0) == IDLE
    assert rates_of(figures(depth=7, client_count=0), figures(depth=7, client_count=0), 2.0) == IDLE


def test_counters_that_went_back_make_no_rate():
    for name in ("message_count", "requeue_count", "timeout_count"):
        assert rates_of(figures(**{name: 10}), figures(**{name: 9}), 1.0) is None


def test_messages_that_went_without_a_consumer_were_emptied():
    old = figures(message_count=10, depth=10, client_count=0)
    assert rates_of(old, figures(message_count=10, client_count=0), 1.0) is None
    assert rates_of(old, figures(message_count=10), 1.0) == Rates(0.0, 10.0)


def test_a_negative_rate_is_none_of_a_consumer():
    # nsqd reads one counter after the other while messages move.
    assert rates_of(figures(), figures(depth=1), 1.0) == Rates(0.0, 0.0)


def make_topic(count, *channels, name="t"):
    return TopicFigures(topic_name=name, message_count=count, channels=channels)


def one(name, count):
    return ChannelFigures(channel_name=name, message_count=count, depth=count)


def sample(topics, old=None, elapsed_s=0.0, emptied=None):
    made = make_sample(
        read_figures(topics), old or Sample(), LAYOUTS, elapsed_s, emptied or {}, Slices()
    )
    return asyncio.run(made)


def rates(rows):
    return [make_rates(row) for row in rows.tolist()]


def test_samples_are_compared_by_name():
    old = sample([make_topic(5, one("b", 5), one("c", 5))])
    assert rates(old.topic_rates) == [None]
    assert rates(old.channel_rates) == [None, None]
    topics = [make_topic(9, one("a", 2), one("b", 6), one("c", 7))]
    new = sample(topics, old, 2.0)
    assert rates(new.topic_rates) == [Rates(2.0)]
    assert [found.in_s for found in rates(new.channel_rates)] == [1.0, 0.5, 1.0]
    same = sample(topics, new, 2.0)
    assert same.layout is new.layout
    assert rates(same.topic_rates) == [IDLE]
    assert rates(same.channel_rates) == [IDLE] * 3
    emptied = sample([make_topic(9, one("a", 3))], same, 2.0, {"t": frozenset({"a"})})
    assert rates(emptied.channel_rates) == [None]
    assert emptied.counts().depth == 3
    assert emptied.rates() == IDLE


def test_the_same_channels_under_other_topics_are_others():
    old = sample([make_topic(1, one("c", 1), name="t"), make_topic(1, name="u")])
    new = sample([make_topic(1, name="t"), make_topic(1, one("c", 5), name="u")], old, 1.0)
    assert new.layout is not old.layout
    assert new.layout.pairs == [("u", "c")]
    assert rates(new.channel_rates)[0].in_s == 5.0


def test_what_comes_twice_counts_once():
    twice = [
        make_topic(1, one("c", 1), one("d", 2), one("c", 3)),
        make_topic(7, one("e", 7)),
        make_topic(2, one("c", 4), name="u"),
    ]
    found = sample(twice)
    assert found.layout.topics == ["t", "u"]
    assert found.layout.pairs == [("t", "c"), ("t", "d"), ("u", "c")]
    assert (found.counts().depth, found.counts().message_count) == (7, 3)


def test_numbers_that_no_nsqd_counts_to_are_refused():
    for number in (1 << 70, 1 << 53 | 1, -(1 << 60)):
        with pytest.raises(msgspec.DecodeError):
            read_figures([make_topic(number)])


def test_a_large_answer_in_pieces_is_the_same_as_in_one(monkeypatch):
    names = [f'"topics":[{{"topic_name":"{n}' for n in range(50)]
    topics = [{"topic_name": name, "depth": n, "channels": []} for n, name in enumerate(names)]
    answer = {"version": "1", "topics": topics, "health": "OK", "start_time": 7}
    body = orjson.dumps(answer)
    ((node, whole),) = read(body)
    monkeypatch.setattr(answers, "PIECE_SIZE_MAX", 500)
    pieces = list(read(body))
    assert len(pieces) > 5
    assert [one for one, _ in pieces] == [None] * (len(pieces) - 1) + [node]
    assert [name for _, piece in pieces for name in piece.topics] == whole.topics == names
    depths = np.concatenate([piece.topic_values for _, piece in pieces])
    assert np.array_equal(depths, whole.topic_values)


@pytest.mark.parametrize("seed", seeds("restarts", 50))
def test_whatever_a_restart_loses_does_not_count_as_out(seed):
    """A channel that restarts at any time: the rate of what left is unknown, or not above the truth."""
    dice = random.Random(seed)
    count = memory = disk = 0
    for _ in range(20):
        old, left, came = figures(message_count=count, depth=memory + disk), 0, 0
        for _ in range(dice.randrange(1, 4)):
            if dice.random() < 0.3:
                if dice.random() < 0.5:
                    disk += memory  # it was stopped in order, else what was in memory is lost
                count = memory = 0
            new = dice.choice([0, 10, 1000, 100_000])
            count, memory, came = count + new, memory + new, came + new
            gone = dice.randrange(memory + disk + 1)
            left += gone
            memory, disk = memory - min(gone, memory), disk - max(gone - memory, 0)
        rates = rates_of(old, figures(message_count=count, depth=memory + disk), 1.0)
        assert rates is None or rates.out_s <= left
        assert rates is None or rates.in_s <= came


def answer(count, depth):
    found = channel("c", message_count=count, depth=depth, client_count=1)
    return lambda *_: stats(topic("t", found, count=count))


def test_an_empty_of_ours_and_a_restart_within_a_second_are_no_peaks():
    """nsqd tells its start in whole seconds, so that only its counters show it: they begin anew."""

    async def watch(node):
        async with Polling(nsqd_http_addresses=[node.address]) as polling:
            await polling.until(lambda c: c.totals.in_s is not None, "rates")
            polling.poller.note_emptied("t", "c", node.address)
            node.answer = answer(90_000, 0)
            after = await polling.until(lambda c: not c.channel("t", "c").counts.depth, "empty")
            assert after.channel("t", "c").rates is None
            later = await polling.until(lambda c: c.channel("t", "c").rates, "known again")
            assert later.channel("t", "c").rates.out_s == 0
            node.answer = answer(3, 1)
            after = await polling.until(lambda c: c.channel("t", "c").counts.depth == 1, "restart")
            assert after.channel("t", "c").rates is None
            assert after.topics["t"].rates is None
            node.answer = answer(5, 0)
            later = await polling.until(lambda c: not c.channel("t", "c").counts.depth, "messages")
            assert later.channel("t", "c").rates.out_s > 0
            assert max(c.totals.out_s or 0 for c in polling.ticks) < 10 / 0.05

    with FakeStats(answer(90_000, 80_000)) as node:
        asyncio.run(watch(node))


def test_rates_are_those_of_counters_that_go_on_steadily():
    began, rate = time.monotonic(), 1000

    async def watch(node):
        async with Polling(
            nsqd_http_addresses=[node.address], poll_interval_ns=3 * 10**8
        ) as polling:
            await polling.until(lambda c: c.totals.out_s, "rates")
            del polling.ticks[:]
            await polling.until(lambda _: len(polling.ticks) == 8, "eight ticks")
            seen = [cluster.totals.out_s for cluster in polling.ticks]
            assert statistics.median(seen) == pytest.approx(rate, rel=0.2)

    with FakeStats(lambda *_: answer(int(rate * (time.monotonic() - began)), 0)()) as node:
        asyncio.run(watch(node))
