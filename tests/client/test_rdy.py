"""How RDY is dealt, against what it promises: all of it, never more, and nobody left out."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nsqfast.client.flow import SECOND_NS, Distribution, Share, even_shares, possible

RULE = Distribution(idle_timeout_s=10, turn_timeout_s=30)


@settings(deadline=None)
@given(st.integers(0, 5000), st.lists(st.integers(0, 2500), max_size=20))
def test_even_shares(max_in_flight, maxima):
    shares = even_shares(max_in_flight, maxima)
    assert sum(shares) == min(max_in_flight, sum(maxima))
    assert all(0 <= share <= most for share, most in zip(shares, maxima, strict=True))
    # Whoever has less than another one, but for one, has all it takes.
    for share, most in zip(shares, maxima, strict=True):
        assert share == most or share >= max(shares) - 1


@pytest.mark.parametrize(
    ("max_in_flight", "count", "expected"),
    [(10, 1, [10]), (10, 2, [5, 5]), (10, 3, [4, 3, 3]), (2, 3, [1, 1, 0]), (0, 2, [0, 0])],
)
def test_known_shares(max_in_flight, count, expected):
    assert even_shares(max_in_flight, [2500] * count) == expected


SHARES = st.lists(
    st.builds(Share, st.just(2500), rdy=st.integers(0, 50), in_flight=st.integers(0, 50)),
    min_size=1,
    max_size=8,
)


@settings(deadline=None)
@given(st.integers(0, 200), SHARES)
def test_what_is_possible_now(max_in_flight, shares):
    wanted = even_shares(max_in_flight, [share.rdy_max for share in shares])
    allowed = possible(max_in_flight, shares, wanted)
    rows = list(zip(allowed, wanted, shares, strict=True))
    assert all(0 <= now <= want for now, want, _ in rows)
    used = sum(max(now, share.in_flight) for now, _, share in rows)
    before = sum(max(min(share.rdy, want), share.in_flight) for _, want, share in rows)
    assert used <= max(max_in_flight, before), "raising went beyond max_in_flight"
    # Nothing that fits is held back.
    if used < max_in_flight:
        assert all(now == want for now, want, _ in rows)


def simulate(dice, count, max_in_flight, is_busy, steps):
    """A second per step: deliveries where there is RDY, answers at random; returns who ever had RDY, and the most."""
    shares = [Share(2500) for _ in range(count)]
    had, most = set(), 0
    for step in range(1, steps + 1):
        now_ns = step * SECOND_NS
        wanted = RULE.wanted(max_in_flight, shares, now_ns)
        for share, rdy in zip(shares, possible(max_in_flight, shares, wanted), strict=True):
            if (rdy > 0) != (share.rdy > 0):
                share.rdy_since_ns = now_ns
            share.rdy = rdy
        for index, share in enumerate(shares):
            if share.rdy:
                had.add(index)
            if is_busy(index) and share.in_flight < share.rdy:
                share.in_flight = share.rdy
                share.message_ns = now_ns
            most = max(most, sum(one.in_flight for one in shares))
        for share in shares:
            share.in_flight -= dice.randint(0, share.in_flight)
    return had, most


@pytest.mark.parametrize("busy", ["none", "all", "one"])
@pytest.mark.parametrize(("count", "max_in_flight"), [(3, 1), (10, 3), (7, 6), (5, 5), (4, 100)])
def test_nobody_starves(busy, count, max_in_flight):
    seed = random.SystemRandom().getrandbits(32)
    print("seed", seed)
    is_busy = {"none": lambda _: False, "all": lambda _: True, "one": lambda index: index == 0}[
        busy
    ]
    # Everybody's turn comes round within a turn for each of those before.
    steps = (30 + 10) * count + 60
    had, most = simulate(random.Random(seed), count, max_in_flight, is_busy, steps)
    assert had == set(range(count))
    assert most <= max_in_flight


def test_an_idle_one_makes_room_after_ten_seconds_and_a_busy_one_after_thirty():
    shares = [
        Share(2500, rdy=1, rdy_since_ns=0, message_ns=0),
        Share(2500, rdy=1, rdy_since_ns=0, message_ns=0),
        Share(2500),
    ]
    for second in range(31):
        shares[0].message_ns = second * SECOND_NS
        wanted = RULE.wanted(2, shares, second * SECOND_NS)
        assert wanted == ([1, 1, 0] if second < 10 else [1, 0, 1] if second < 30 else wanted)
    assert wanted[2] == 1


def test_a_survivor_gets_the_whole():
    left = [Share(2500, rdy=5, in_flight=5)]
    assert possible(10, left, RULE.wanted(10, left, 0)) == [10]


def test_a_new_connection_waits_for_room_but_gets_the_first_of_it():
    shares = [Share(2500, rdy=10, in_flight=10), Share(2500)]
    wanted = RULE.wanted(10, shares, 0)
    assert wanted == [5, 5]
    assert possible(10, shares, wanted) == [5, 0]
    shares[0].rdy, shares[0].in_flight = 5, 9
    assert possible(10, shares, wanted) == [5, 1]
    shares[0].in_flight = 5
    assert possible(10, shares, wanted) == [5, 5]
