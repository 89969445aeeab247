"""Levels and pauses, against a model that keeps the pauses it promised; no clock but the test's."""

import random

import pytest

from nsqfast.client import Config
from nsqfast.client.backoff import RECONNECT_LAST_S, Action, Backoff, ReconnectDelays


class Model:
    """Spec client §3.4 with time: what a consumer with these outcomes does, written as one list of pauses."""

    def __init__(self, multiplier_s, max_s):
        self.multiplier_s, self.max_s = multiplier_s, max_s
        self.level, self.paused_until_s = 0, None

    def pause_s(self):
        return min(self.multiplier_s * 2**self.level, self.max_s)

    def outcome(self, now_s, good):
        if self.paused_until_s is not None:
            if now_s < self.paused_until_s:
                return
            self.paused_until_s = None
        if good:
            self.level = max(0, self.level - 1)
        elif self.max_s > 0 and (self.level == 0 or self.multiplier_s * 2**self.level < self.max_s):
            self.level += 1
        if self.level:
            self.paused_until_s = now_s + self.pause_s()


def test_against_the_model():
    seed = random.SystemRandom().getrandbits(32)
    print("seed", seed)
    dice = random.Random(seed)
    for _ in range(200):
        multiplier_s, max_s = dice.choice([0.1, 1.0, 3.0]), dice.choice([0.0, 0.5, 10.0, 120.0])
        backoff, model = Backoff(multiplier_s, max_s), Model(multiplier_s, max_s)
        now_s, until_s = 0.0, None
        for _ in range(100):
            now_s += dice.choice([0.0, 0.01, 1.0, 50.0])
            good = dice.random() < 0.4
            if until_s is not None and now_s >= until_s:
                backoff.pause_over()
                until_s = None
            action = backoff.success() if good else backoff.failure(0)
            if action is Action.PAUSE:
                until_s = now_s + backoff.pause_s()
            model.outcome(now_s, good)
            assert backoff.level == model.level
            assert until_s == model.paused_until_s
            assert (action is Action.RESUME) <= (backoff.level == 0)


def test_the_sequence_of_the_defaults():
    """2, 4, 8 ... and then the maximum itself, which go-nsq never reaches."""
    backoff = Backoff.of(Config(), "nsq")
    pauses = []
    for _ in range(8):
        assert backoff.failure(0) is Action.PAUSE
        pauses.append(backoff.pause_s())
        assert backoff.failure(0) is Action.NOTHING, "a burst of failures is one"
        backoff.pause_over()
    assert pauses == [2, 4, 8, 16, 32, 64, 120, 120]
    back = []
    while backoff.level:
        backoff.success()
        back.append(backoff.pause_s())
        backoff.pause_over()
    assert back == [64, 32, 16, 8, 4, 2, 1]
    assert backoff.success() is Action.NOTHING


def test_neutral_pauses_again_and_leaves_the_level():
    backoff = Backoff(1.0, 10.0)
    assert backoff.neutral() is Action.NOTHING
    backoff.failure(0)
    backoff.pause_over()
    assert backoff.neutral() is Action.PAUSE
    assert backoff.level == 1


def test_off():
    backoff = Backoff.of(Config(max_backoff_duration_s=0), "nsq")
    assert backoff.failure(0) is Action.NOTHING
    assert backoff.level == 0


@pytest.mark.parametrize("multiplier_s", [0.0, 1.0])
def test_full_jitter(multiplier_s):
    dice = random.Random(7)
    backoff = Backoff(multiplier_s, 60.0, is_jittered=True, chance=dice.random)
    for _ in range(4):
        backoff.failure(0)
        backoff.pause_over()
    pauses = [backoff.pause_s() for _ in range(1000)]
    assert all(0 <= pause <= 16 * multiplier_s for pause in pauses)
    if multiplier_s:
        assert min(pauses) < 2
        assert max(pauses) > 14


def test_levels_have_an_end():
    backoff = Backoff(0.0, 60.0)
    for _ in range(200):
        backoff.failure(0)
        backoff.pause_over()
    assert backoff.pause_s() == 0


def test_reconnect_delays():
    delays = ReconnectDelays(chance=lambda: 1.0)
    assert [round(delays.next_s(), 3) for _ in range(9)] == [
        0.1,
        0.2,
        0.4,
        0.8,
        1.6,
        3.2,
        6.4,
        10,
        10,
    ]
    delays.lost_after(1.5)
    assert delays.next_s() == pytest.approx(0.1)
    low = ReconnectDelays(chance=lambda: 0.0)
    assert low.next_s() == pytest.approx(0.05)
    assert all(0 < ReconnectDelays(tries=n).next_s() <= RECONNECT_LAST_S for n in range(1000))
