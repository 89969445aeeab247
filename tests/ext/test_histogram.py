"""The histogram against a naive count, at random and around each bound."""

import itertools
import random

import pytest
from nsqfast._ext.core.histogram import BOUNDS_S, Histogram

from support.core import Peer, make_registry
from support.seeds import seeds

SEEDS = seeds("histogram", 3)
BOUNDS_NS = [round(bound_s * 1e9) for bound_s in BOUNDS_S]


def counted(values):
    return [sum(value <= bound for value in values) for bound in [*BOUNDS_NS, 1 << 63]]


def test_bounds_are_what_one_comparison_needs():
    assert all(after >= 2 * before for before, after in itertools.pairwise(BOUNDS_NS))
    assert (BOUNDS_S[0], BOUNDS_S[-1]) == (0.0001, 3600.0)


@pytest.mark.parametrize("bound_ns", BOUNDS_NS)
def test_a_bound_is_within_itself(bound_ns):
    for value in (bound_ns - 1, bound_ns, bound_ns + 1):
        histogram = Histogram()
        histogram.note(value)
        assert histogram.cumulative() == counted([value])


@pytest.mark.parametrize("value", [-(1 << 63), -1, 0, 1, (1 << 63) - 1])
def test_every_value_has_a_place(value):
    histogram = Histogram()
    histogram.note(value)
    assert histogram.cumulative() == counted([value])
    assert histogram.sum_s == max(value, 1) / 1e9


@pytest.mark.parametrize("seed", SEEDS)
def test_at_random(seed):
    dice = random.Random(seed)
    histogram = Histogram()
    values = [dice.getrandbits(dice.randrange(1, 50)) for _ in range(3000)]
    for value in values:
        histogram.note(value)
    assert histogram.cumulative() == counted(values)
    assert histogram.sum_s == pytest.approx(sum(values) / 1e9)


def test_a_fin_is_what_counts(tmp_path):
    registry = make_registry(tmp_path, metrics_latency_histogram=True)
    peer = Peer(registry)
    peer.subscribe(b"t", b"c", 10)
    registry.topics.ensure("t").put(b"one")
    registry.topics.ensure("t").put(b"two")
    first, second = [data[10:26] for kind, data in peer.receive() if kind == 2]
    histogram = registry.topics.ensure("t").find_channel("c").histogram
    peer.send(b"REQ %s 0\n" % first)
    assert histogram.cumulative()[-1] == 0
    peer.send(b"FIN %s\n" % second)
    assert histogram.cumulative()[-1] == 1
    assert 0 < histogram.sum_s < 10
    registry.topics.close()


def test_nobody_asked_for_it(tmp_path):
    registry = make_registry(tmp_path)
    assert registry.topics.ensure("t").channel("c").histogram is None
    registry.topics.close()
