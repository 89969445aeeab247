"""Which destination is next."""

import collections
import random

import pytest

from nsqfast.tools.shared.hostpool import EpsilonGreedy, HostPool, RoundRobin, make_pool


class Clock:
    now_s = 1000.0

    def __call__(self):
        return self.now_s


@pytest.fixture
def clock():
    return Clock()


def take(pool, count):
    return [pool.next() for _ in range(count)]


def test_round_robin_begins_with_the_second():
    pool = RoundRobin(3)
    assert take(pool, 4) == [1, 2, 0, 1]
    pool.fail(2)
    assert take(pool, 3) == [2, 0, 1]
    assert take(RoundRobin(1), 3) == [0, 0, 0]


def test_hostpool_takes_turns(clock):
    assert take(HostPool(3, clock), 7) == [0, 1, 2, 0, 1, 2, 0]


def test_hostpool_leaves_out_what_failed(clock):
    pool = HostPool(3, clock)
    pool.fail(1)
    assert take(pool, 4) == [0, 2, 0, 2]
    clock.now_s += 30.1
    # One trial, and nobody else tries meanwhile.
    assert sorted(take(pool, 5)) == [0, 0, 1, 2, 2]
    pool.succeed(1, 0.0)
    assert sorted(take(pool, 3)) == [0, 1, 2]


def test_hostpool_waits_longer_each_time(clock):
    pool = HostPool(2, clock)
    pool.fail(1)
    pauses = []
    for _ in range(7):
        begun_s = clock.now_s
        while 1 not in take(pool, 2):
            clock.now_s += 1
        pauses.append(clock.now_s - begun_s)
        pool.fail(1)  # the trial
    assert pauses == pytest.approx([30, 60, 120, 240, 480, 900, 900], abs=1.1)


def test_hostpool_with_none_left(clock):
    pool = HostPool(3, clock)
    for number in range(3):
        pool.fail(number)
    assert take(pool, 4) == [0, 0, 1, 2]


def test_epsilon_greedy_prefers_the_fast(clock):
    pool = EpsilonGreedy(3, clock, random.Random(1).random)
    counts = collections.Counter()
    for _ in range(5000):
        number = pool.next()
        counts[number] += 1
        pool.succeed(number, [0.002, 0.020, 0.200][number])
    assert counts[0] > 5 * counts[1] > counts[1] > counts[2] > 0


def test_epsilon_greedy_forgets(clock):
    pool = EpsilonGreedy(2, clock, random.Random(2).random)
    for _ in range(100):
        pool.succeed(0, 0.002)
        pool.succeed(1, 1.0)
    clock.now_s += 301
    for _ in range(100):
        pool.succeed(0, 1.0)
        pool.succeed(1, 0.002)
    counts = collections.Counter(take(pool, 2000))
    assert counts[1] > 5 * counts[0]


def test_epsilon_greedy_without_times(clock):
    """Less than a millisecond is no time: by turn then."""
    pool = EpsilonGreedy(2, clock, random.Random(3).random)
    for number in (0, 1):
        pool.succeed(number, 0.0004)
    assert take(pool, 4) == [0, 1, 0, 1]


def test_epsilon_greedy_leaves_out_what_failed(clock):
    pool = EpsilonGreedy(2, clock, random.Random(4).random)
    pool.succeed(0, 0.005)
    pool.succeed(1, 0.005)
    pool.fail(0)
    assert set(take(pool, 500)) == {1}
    clock.now_s += 31
    assert collections.Counter(take(pool, 500))[0] == 1


@pytest.mark.parametrize(
    ("mode", "kind"),
    [("hostpool", HostPool), ("epsilon-greedy", EpsilonGreedy), ("x", RoundRobin)],
)
def test_modes(mode, kind):
    assert type(make_pool(mode, 2)) is kind
