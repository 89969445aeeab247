"""Quantiles against the sorted values, windows against the clock."""

import random

import pytest
from nsqfast._ext.core.latency import Latency, summarize
from nsqfast._ext.dev.probes import let_pass

from support.core import SECOND_NS, Peer, make_registry
from support.seeds import seeds

QUANTILES = [1.0, 0.999, 0.99, 0.95, 0.5, 0.01]


def exact(values, quantile):
    """The smallest that this part of them does not exceed."""
    ordered = sorted(values)
    rank = -int(-quantile * len(ordered) // 1)
    return ordered[max(rank, 1) - 1]


@pytest.mark.parametrize("seed", seeds("latency", 5))
def test_quantiles_are_off_by_less_than_a_hundredth(seed):
    dice = random.Random(seed)
    channels = [Latency(600 * SECOND_NS) for _ in range(3)]
    values = []
    for _ in range(3000):
        value = int(dice.choice([10, 1000, 1e6, 1e10]) * dice.expovariate(1))
        values.append(value)
        dice.choice(channels).note(value)
    count, found = summarize(channels, QUANTILES)
    assert count == len(values)
    for quantile, value in zip(QUANTILES, found, strict=True):
        assert abs(value - exact(values, quantile)) <= 0.01 * exact(values, quantile)


@pytest.mark.parametrize("value", [0, 1, 63, 64, 65, 127, 128, 2**40, 2**62, 2**63 - 1])
def test_every_value_has_a_place(value):
    latency = Latency(SECOND_NS)
    latency.note(value)
    count, [found] = summarize([latency], [0.5])
    assert count == 1
    assert abs(found - value) <= 0.01 * value


def test_a_clock_that_was_set_back():
    latency = Latency(SECOND_NS)
    latency.note(-5)
    assert summarize([latency], [1.0]) == (1, [0])


def test_nothing_came():
    assert summarize([], [0.5]) == (0, [0])
    assert summarize([Latency(SECOND_NS)], [0.5, 1.0]) == (0, [0, 0])


def test_what_is_older_than_the_window_is_forgotten():
    latency = Latency(100 * SECOND_NS)
    latency.note(1)
    let_pass(30 * SECOND_NS)
    latency.note(2)
    assert summarize([latency], [1.0]) == (2, [2])
    let_pass(40 * SECOND_NS)
    latency.note(3)
    # Half of the window at a time: the first two are still there.
    assert summarize([latency], [0.01, 1.0]) == (3, [1, 3])
    let_pass(50 * SECOND_NS)
    assert summarize([latency], [0.01, 1.0]) == (1, [3, 3])
    let_pass(50 * SECOND_NS)
    assert summarize([latency], [1.0]) == (0, [0])
    latency.note(4)
    let_pass(10_000 * SECOND_NS)
    assert summarize([latency], [1.0]) == (0, [0])
    latency.note(5)
    assert summarize([latency], [1.0]) == (1, [5])


def test_a_fin_is_what_counts(tmp_path):
    registry = make_registry(tmp_path, e2e_processing_latency_percentiles=[1.0])
    peer = Peer(registry)
    peer.subscribe(b"t", b"c", 10)
    registry.topics.ensure("t").put(b"one")
    registry.topics.ensure("t").put(b"two")
    first, second = [data[10:26] for kind, data in peer.receive() if kind == 2]
    channel = registry.topics.ensure("t").find_channel("c")
    peer.send(b"REQ %s 0\n" % first)
    assert summarize([channel.latency], [1.0]) == (0, [0])
    peer.send(b"FIN %s\n" % second)
    count, [value] = summarize([channel.latency], [1.0])
    assert count == 1
    assert value > 0
    registry.topics.close()


def test_nobody_asked_for_it(tmp_path):
    registry = make_registry(tmp_path)
    assert registry.topics.ensure("t").channel("c").latency is None
    registry.topics.close()
