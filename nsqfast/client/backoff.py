"""When to slow down after failures, and how long to wait before a connection is tried again. Time and chance are
arguments.

Backoff (spec client §3.4) belongs to a whole consumer. A failure raises the level and pauses all deliveries; after the
pause one message is let through on one connection, and its outcome raises or lowers the level. During a pause outcomes
do not count, so a burst of failures is one. Unlike go-nsq's, a pause reaches `max_backoff_duration` (there 64 s of the
120 s are the most), a multiplier of 0 is no crash, and a message that is given up is neither success nor failure.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from nsqfast.client.config import Config, seconds

LEVEL_MAX = 62  # 2 to the power of it fits wherever durations are kept
RECONNECT_FIRST_S = 0.1
RECONNECT_LAST_S = 10.0


class Action(Enum):
    """What a consumer has to do about an outcome."""

    NOTHING = "nothing"
    PAUSE = "pause"  # RDY 0 everywhere, for `pause_s`
    RESUME = "resume"  # RDY as it was before


@dataclass(slots=True)
class Backoff:
    """The state: a level, 0 = all is well, and whether deliveries are paused."""

    multiplier_s: float
    max_s: float  # 0 = never back off
    is_jittered: bool = False
    chance: Callable[[], float] = random.random
    level: int = 0
    is_paused: bool = False

    @classmethod
    def of(cls, config: Config) -> "Backoff":
        return cls(
            multiplier_s=seconds(config.backoff_multiplier),
            max_s=seconds(config.max_backoff_duration),
            is_jittered=config.backoff_strategy == "full_jitter",
        )

    def failure(self) -> Action:
        """A message was requeued because its handling failed."""
        if self.max_s <= 0 or self.is_paused:
            return Action.NOTHING
        if self.level == 0 or self._step_s(self.level) < self.max_s:
            self.level = min(self.level + 1, LEVEL_MAX)
        return self._pause()

    def success(self) -> Action:
        """A message was finished."""
        if self.is_paused or self.level == 0:
            return Action.NOTHING
        self.level -= 1
        return Action.RESUME if self.level == 0 else self._pause()

    def neutral(self) -> Action:
        """The message that was let through says nothing: it was requeued without backoff, or given up."""
        if self.is_paused or self.level == 0:
            return Action.NOTHING
        return self._pause()

    def pause_over(self) -> None:
        """Outcomes count again."""
        self.is_paused = False

    def pause_s(self) -> float:
        """How long to pause at this level; with jitter another number every time."""
        pause_s = min(self._step_s(self.level), self.max_s)
        return pause_s * self.chance() if self.is_jittered else pause_s

    def _pause(self) -> Action:
        self.is_paused = True
        return Action.PAUSE

    def _step_s(self, level: int) -> float:
        return self.multiplier_s * float(1 << level)


@dataclass(slots=True)
class ReconnectDelays:
    """Doubling from 0.1 s to 10 s, or less if `max_s` says so, each between half of it and all."""

    max_s: float = RECONNECT_LAST_S
    chance: Callable[[], float] = random.random
    tries: int = 0

    def next_s(self) -> float:
        """How long to wait before the next try."""
        delay_s = min(RECONNECT_FIRST_S * float(1 << min(self.tries, 20)), self.max_s)
        self.tries += 1
        return delay_s * (0.5 + 0.5 * self.chance())

    def reset(self) -> None:
        """The connection was good."""
        self.tries = 0
