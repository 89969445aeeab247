"""--status-every, against a naive reading of what Go's tools log."""

import logging
import math
import random

import pytest

from nsqfast.tools.shared.timings import Timings


def lines(caplog):
    return [record.getMessage() for record in caplog.records]


class Naive:
    """Keeps every duration, in the order of their coming."""

    def __init__(self, every):
        self.every = every
        self.all = []
        self.said = []

    def add(self, took_s):
        self.all.append(took_s)
        if len(self.all) > self.every and len(self.all) % self.every == 1 % self.every:
            last = sorted(self.all[-self.every :])
            shown = [self.percentile(last, part) for part in (0.99, 0.95)]
            average = sum(last) / len(last)
            self.said.append(
                f"[x]: finished {len(last)} - 99th: {shown[0] * 1000:.2f}ms - "
                f"95th: {shown[1] * 1000:.2f}ms - avg: {average * 1000:.2f}ms"
            )

    @staticmethod
    def percentile(ordered, part):
        return ordered[min(math.ceil(part * len(ordered) + 0.5), len(ordered) - 1)]


@pytest.mark.parametrize("every", [100, 250, 1000])
@pytest.mark.parametrize("count_max", [1, 30, 999])
def test_lines(caplog, every, count_max):
    caplog.set_level(logging.INFO, "nsqfast.tools")
    chance = random.Random(every * count_max)
    timings, naive = Timings("[x]:", every), Naive(every)
    while len(naive.all) < every * 5:
        took_s, count = chance.randint(1, 1000) / 4096, chance.randint(1, count_max)
        timings.add(took_s, count)
        for _ in range(count):
            naive.add(took_s)
    assert lines(caplog) == naive.said
    assert len(naive.said) >= 4


def test_never(caplog):
    caplog.set_level(logging.INFO, "nsqfast.tools")
    timings = Timings("[x]:", 0)
    timings.add(1.0, 10_000)
    assert lines(caplog) == []


def test_few(caplog):
    """Each message has its line from the second on, and a warning comes first."""
    caplog.set_level(logging.INFO, "nsqfast.tools")
    timings = Timings("[x]:", 1)
    timings.add(0.001, 3)
    assert lines(caplog) == [
        "Warning: use more than 100 status values for accurate percentiles (configured with 1)",
        *["[x]: finished 1 - 99th: 1.00ms - 95th: 1.00ms - avg: 1.00ms"] * 2,
    ]
