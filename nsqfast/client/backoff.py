"""When to slow down after failures, and how long to wait before reconnecting. Time and chance are arguments.

Backoff (spec client §3.4) belongs to a whole consumer. A failure raises the level and pauses all deliveries. After the
pause one message is let through on one connection, and its outcome raises or lowers the level. Outcomes during a pause
do not count, so a burst of failures counts as one. There are three differences from go-nsq: a pause can reach
`max_backoff_duration` (go-nsq stops at 64 s of 120 s), a multiplier of 0 does not crash, and a message that is given up
is neither success nor failure.

That is `backoff="nsq"`. By default the first pause waits for a share of failures: nothing pauses while fewer than half
of the last messages fail, so that a few bad ones do not hold up the others. A service that is down is spared as before.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Literal, get_args

from nsqfast.client.config import Config, seconds
from nsqfast.errors import OptionsError

BackoffRule = Literal["share", "nsq"]

RULES = get_args(BackoffRule)
RECENT_COUNT = 16  # messages whose failures are counted
FAILURES_MIN = RECENT_COUNT // 2
LEVEL_MAX = 62  # 2 to the power of this fits wherever durations are kept
RECONNECT_FIRST_S = 0.1
RECONNECT_LAST_S = 10.0
LIFE_S_MIN = 1.0  # of a connection that worked


def check_rule(rule: BackoffRule) -> BackoffRule:
    """Return it; OptionsError if it is none."""
    if rule not in RULES:
        raise OptionsError(f"backoff is {rule!r:.80}; it is one of {', '.join(RULES)}")
    return rule


class Action(Enum):
    """What a consumer has to do after an outcome."""

    NOTHING = "nothing"
    PAUSE = "pause"  # RDY 0 everywhere, for `pause_s`
    RESUME = "resume"  # RDY as it was before


@dataclass(slots=True)
class Backoff:
    """The state: a level (0 = no backoff) and whether deliveries are paused."""

    multiplier_s: float
    max_s: float  # 0 = never back off
    is_jittered: bool = False
    is_by_share: bool = False
    chance: Callable[[], float] = random.random
    level: int = 0
    is_paused: bool = False
    recent: int = 0  # a bit for each of the last messages, the last one lowest: 1 = it failed
    finished_before: int = 0  # as of the last failure

    @classmethod
    def of(cls, config: Config, rule: BackoffRule) -> "Backoff":
        return cls(
            multiplier_s=seconds(config.backoff_multiplier),
            max_s=seconds(config.max_backoff_duration),
            is_jittered=config.backoff_strategy == "full_jitter",
            is_by_share=rule == "share",
        )

    def failure(self, finished: int, count: int = 1) -> Action:
        """`count` messages were requeued because their handling failed; `finished` is how many were ever finished."""
        if self.max_s <= 0 or self.is_paused:
            return Action.NOTHING
        if self.is_by_share and self.level == 0 and not self._are_too_many(finished, count):
            return Action.NOTHING
        if self.level == 0 or self._step_s(self.level) < self.max_s:
            self.level = min(self.level + 1, LEVEL_MAX)
        return self._pause()

    def success(self) -> Action:
        """A message was finished."""
        if self.is_paused or self.level == 0:
            return Action.NOTHING
        self.level -= 1
        self.recent = 0
        return Action.RESUME if self.level == 0 else self._pause()

    def neutral(self) -> Action:
        """The outcome of the one message says nothing: it was requeued without backoff, or given up."""
        if self.is_paused or self.level == 0:
            return Action.NOTHING
        return self._pause()

    @property
    def reason(self) -> str:
        """Why it pauses."""
        if self.is_by_share:
            return f"{FAILURES_MIN} of the last {RECENT_COUNT} messages failed, or more"
        return "a message failed"

    def pause_over(self) -> None:
        """End the pause; outcomes count again."""
        self.is_paused = False

    def pause_s(self) -> float:
        """How long to pause at this level; with jitter the result varies from call to call."""
        pause_s = min(self._step_s(self.level), self.max_s)
        return pause_s * self.chance() if self.is_jittered else pause_s

    def _are_too_many(self, finished: int, count: int) -> bool:
        successes = min(max(0, finished - self.finished_before), RECENT_COUNT)
        failures = min(count, RECENT_COUNT)
        self.finished_before = finished
        self.recent = (((self.recent << successes) + 1) << failures) - 1
        self.recent &= (1 << RECENT_COUNT) - 1
        return self.recent.bit_count() >= FAILURES_MIN

    def _pause(self) -> Action:
        self.is_paused = True
        return Action.PAUSE

    def _step_s(self, level: int) -> float:
        return self.multiplier_s * float(1 << level)


@dataclass(slots=True)
class ReconnectDelays:
    """Pauses between attempts to reconnect.

    They double from 0.1 s to 10 s, or to `max_s` if that is less; each is between half of its nominal length and all of
    it. They begin anew after a connection that lasted.
    """

    max_s: float = RECONNECT_LAST_S
    chance: Callable[[], float] = random.random
    tries: int = 0

    def next_s(self) -> float:
        """How long to wait before the next attempt."""
        delay_s = min(RECONNECT_FIRST_S * float(1 << min(self.tries, 20)), self.max_s)
        self.tries += 1
        return delay_s * (0.5 + 0.5 * self.chance())

    def lost_after(self, life_s: float) -> None:
        """A connection was lost. One that ends as soon as it is made leaves the pauses as they are."""
        if life_s > LIFE_S_MIN:
            self.tries = 0
