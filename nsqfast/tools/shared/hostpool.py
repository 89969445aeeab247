"""Choose the next of several destinations: the modes of Go's tools. Time and chance are arguments.

round-robin     in turn; the first one comes last, as in Go's tools
hostpool        in turn among those that work: a failure keeps one out for 30 s, and for twice as long each time that a
                trial fails, up to 15 minutes; when all are out, all are in again
epsilon-greedy  those that answered faster lately get more; now and then the next in turn is tried regardless
"""

import random
import time
from collections.abc import Callable
from typing import Protocol

FIRST_PAUSE_S = 30.0
LAST_PAUSE_S = 900.0

EXPLORATION_FIRST = 0.3
EXPLORATION_DECAY = 0.9
EXPLORATION_LAST = 0.01
BUCKET_COUNT = 120
MEMORY_S = 300.0  # how far back an average of response times reaches

Clock = Callable[[], float]

MODES = ("round-robin", "hostpool", "epsilon-greedy")


class Pool(Protocol):
    """Destinations are numbers from 0 on."""

    def next(self) -> int:
        """The one to use now."""

    def succeed(self, number: int, took_s: float) -> None:
        """Note a success."""

    def fail(self, number: int) -> None:
        """Note a failure."""


class RoundRobin:
    """Failures change nothing."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._counter = 0

    def next(self) -> int:
        """Each in turn, beginning with the second."""
        self._counter += 1
        return self._counter % self._count

    def succeed(self, number: int, took_s: float) -> None:
        """No effect."""

    def fail(self, number: int) -> None:
        """No effect."""


class _Host:
    """One destination: whether it is out, and its speed."""

    def __init__(self) -> None:
        self.is_dead = False
        self.retry_s = 0.0  # when it may be tried again
        self.pause_s = FIRST_PAUSE_S
        self.counts = [0] * BUCKET_COUNT
        self.totals_ms = [0] * BUCKET_COUNT

    def may_be_tried(self, now_s: float) -> bool:
        return not self.is_dead or self.retry_s < now_s

    def begin_trial(self, now_s: float) -> None:
        """Begin a trial; nobody else tries it meanwhile."""
        self.pause_s = min(self.pause_s * 2, LAST_PAUSE_S)
        self.retry_s = now_s + self.pause_s

    def weighted_ms(self, newest: int) -> float:
        """Weighted sum of the buckets' averages, the newest weighing most; 0 = unknown, or less than 1 ms."""
        sum_ms = last_ms = 0.0
        for age in range(1, BUCKET_COUNT + 1):
            bucket = (newest + age) % BUCKET_COUNT
            if self.counts[bucket]:
                last_ms = self.totals_ms[bucket] / self.counts[bucket]
            sum_ms += last_ms * age / BUCKET_COUNT
        return sum_ms


class HostPool:
    """In turn among those that work."""

    def __init__(self, count: int, clock: Clock = time.monotonic) -> None:
        self._hosts = [_Host() for _ in range(count)]
        self._clock = clock
        self._next = 0

    def next(self) -> int:
        """The next one that works, or whose time for a trial has come."""
        now_s = self._clock()
        count = len(self._hosts)
        for step in range(count):
            number = (self._next + step) % count
            host = self._hosts[number]
            if host.may_be_tried(now_s):
                if host.is_dead:
                    host.begin_trial(now_s)
                self._next = number + 1
                return number
        for host in self._hosts:
            host.is_dead = False
        self._next = 0
        return 0

    def succeed(self, number: int, took_s: float) -> None:  # noqa: ARG002 - EpsilonGreedy needs it
        """It is in again."""
        self._hosts[number].is_dead = False

    def fail(self, number: int) -> None:
        """It is out; if it is out already, its time does not change."""
        host = self._hosts[number]
        if not host.is_dead:
            host.is_dead = True
            host.pause_s = FIRST_PAUSE_S
            host.retry_s = self._clock() + FIRST_PAUSE_S


class EpsilonGreedy(HostPool):
    """Random, weighted by speed; exploration tries those without a known time."""

    def __init__(
        self,
        count: int,
        clock: Clock = time.monotonic,
        chance: Callable[[], float] = random.random,
    ) -> None:
        super().__init__(count, clock)
        self._chance = chance
        self._exploration = EXPLORATION_FIRST
        self._bucket = 0
        self._bucket_end_s = clock() + MEMORY_S / BUCKET_COUNT

    def next(self) -> int:
        """One of the fast ones, or the next in turn."""
        self._forget_old()
        if self._chance() < self._exploration:
            self._exploration = max(self._exploration * EXPLORATION_DECAY, EXPLORATION_LAST)
            return super().next()
        number = self._choose()
        if number is None:
            return super().next()
        host = self._hosts[number]
        if host.is_dead:
            host.begin_trial(self._clock())
        return number

    def _choose(self) -> int | None:
        now_s = self._clock()
        scores = {
            number: 1 / weighted_ms
            for number, host in enumerate(self._hosts)
            if host.may_be_tried(now_s) and (weighted_ms := host.weighted_ms(self._bucket)) > 0
        }
        drawn = self._chance() * sum(scores.values())
        chosen = None
        for number, score in scores.items():
            chosen = number
            drawn -= score
            if drawn <= 0:
                break
        return chosen

    def succeed(self, number: int, took_s: float) -> None:
        """Record its time, in whole milliseconds."""
        super().succeed(number, took_s)
        self._forget_old()
        host = self._hosts[number]
        host.counts[self._bucket] += 1
        host.totals_ms[self._bucket] += int(took_s * 1000)

    def _forget_old(self) -> None:
        """Each bucket covers a part of the past; empty the oldest ones for new values."""
        late_s = self._clock() - self._bucket_end_s
        if late_s < 0:
            return
        width_s = MEMORY_S / BUCKET_COUNT
        steps = int(late_s / width_s) + 1
        self._bucket_end_s += steps * width_s
        for _ in range(min(steps, BUCKET_COUNT)):
            self._bucket = (self._bucket + 1) % BUCKET_COUNT
            for host in self._hosts:
                host.counts[self._bucket] = host.totals_ms[self._bucket] = 0


def make_pool(mode: str, count: int) -> Pool:
    """The pool for --mode; any unknown text means round-robin."""
    if mode == "hostpool":
        return HostPool(count)
    if mode == "epsilon-greedy":
        return EpsilonGreedy(count)
    return RoundRobin(count)
