"""Which rules are broken, since when, and whether for long enough to report: hysteresis, and nothing else.

    broken ──► waiting ──hold_s, ticks_min──► reported ──3 good ticks in a row──► gone
                  └──── one good tick ────► gone          (three, for a patient rule)

A tick without knowledge (the node does not answer) is neither good nor bad: a waiting case keeps waiting and the time
does not count, a reported case stays reported. A case whose object no longer exists is gone at once. A case that the
previous nsqadmin reported is believed, so that its rule needs some time of good ticks to contradict.
"""

import bisect
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum, StrEnum
from functools import partial
from typing import NamedTuple

import msgspec

from nsqfast.nsqadmin.problems.thresholds import Thresholds, ThresholdTable

CLEAR_TICKS = 3


class Severity(StrEnum):
    CRIT = "crit"
    WARN = "warn"
    INFO = "info"


RANKS = {severity: rank for rank, severity in enumerate(Severity)}


@dataclass(frozen=True, slots=True)
class Rule:
    """When to report it, and how an operator looks into it."""

    name: str
    check: str  # one sentence; {node} stands for the node
    hold_s: float = 0.0
    hold: str = ""  # or the threshold that says how long
    ticks_min: int = 1
    is_patient: bool = False  # one good tick does not end the wait
    # Reported only while `measure` is above its minimum since the case began.
    has_to_grow: bool = False
    needs_rates: bool = False  # unknown while rates are unknown
    clear_s: float = 0.0  # so long its ticks have to be good until it is over
    belief_s: float = 0.0  # so long no good tick contradicts the previous nsqadmin


class Key(NamedTuple):
    """The object of a problem; '' for parts that do not matter to the rule."""

    rule: str
    topic: str = ""
    channel: str = ""
    node: str = ""


class Finding(NamedTuple):
    """A rule is broken at this tick. `text` gets the time of its begin."""

    severity: Severity
    text: Callable[[float], str]
    since: float | None = None  # Unix time, if it is known better than from observation
    measure: float = 0.0


class KeptCase(msgspec.Struct):
    """A reported case, for the next nsqadmin."""

    rule: str
    topic: str
    channel: str
    node: str
    severity: Severity
    since: float
    text: str
    least: float

    @property
    def essence(self) -> tuple[object, ...]:
        """It is written when this changes; its text changes at each tick."""
        return self.rule, self.topic, self.channel, self.node, self.severity


class Known(Enum):
    """What a tick says about an object for which no rule was found broken."""

    GOOD = 1
    UNKNOWN = 2
    GONE = 3
    HELD = 4  # paused, or part of another problem: not reported meanwhile, and since the same time when it goes on


@dataclass(slots=True, eq=False)
class Case:
    """One rule, broken for one object."""

    since: float  # Unix time
    seen_s: float  # on the clock of Cases
    finding: Finding
    least: float  # of its measures
    round: int = 0
    ticks: int = 0
    good_ticks: int = 0
    good_since_s: float = 0.0  # on the clock of Cases
    is_reported: bool = False
    is_restored: bool = False  # the previous nsqadmin saw it, and this one has not yet
    rank: int = 0  # while it is reported, its rank in the order


class Cases:
    """All cases of one nsqadmin. For each tick: `begin`, `add` for each finding, `end_tick`."""

    def __init__(self, gap_s_max: float, thresholds: ThresholdTable) -> None:
        # If the clock was set, or the machine slept, that is not time under observation.
        self._gap_s_max = gap_s_max
        self._thresholds = thresholds
        self._cases: dict[Key, Case] = {}
        self._order: list[tuple[int, float, Key]] = []
        self._round = 0
        self._at = 0.0
        self.now_s = 0.0  # seconds under observation
        self.step_s = 0.0  # of them, since the previous tick
        self.reported_counts = dict.fromkeys(Severity, 0)

    def kept(self, count_max: int) -> Iterator[KeptCase]:
        """The first of those that are reported; ticks may be judged meanwhile."""
        for _, _, key in self._order[:count_max]:
            case = self._cases.get(key)
            if case is not None and case.is_reported:
                text = case.finding.text(case.since)
                yield KeptCase(*key, case.finding.severity, case.since, text, case.least)

    def restore(self, kept: Iterable[KeptCase], rules: Mapping[str, Rule]) -> None:
        """Report those of the previous nsqadmin, before the first tick."""
        for one in kept:
            key = Key(one.rule, one.topic, one.channel, one.node)
            if one.rule in rules and key not in self._cases:
                finding = Finding(one.severity, partial(_said, one.text), measure=one.least)
                case = self._cases[key] = Case(one.since, self.now_s, finding, one.least)
                case.is_restored = True
                self._report(key, case)

    def is_reported(self, key: Key) -> bool:
        case = self._cases.get(key)
        return case is not None and case.is_reported

    def is_restored(self, key: Key) -> bool:
        """Whether only the previous nsqadmin has seen it."""
        case = self._cases.get(key)
        return case is not None and case.is_restored

    def begin(self, at: float) -> None:
        """The next tick, at this unix time."""
        self.step_s = min(max(at - self._at, 0.0), self._gap_s_max) if self._round else 0.0
        self.now_s += self.step_s
        self._at = at
        self._round += 1

    def add(self, rule: Rule, key: Key, finding: Finding) -> None:
        thresholds = self._thresholds.of(key.topic, key.channel)
        if (wanted := thresholds.severity.get(rule.name)) is not None:
            if wanted == "off":
                return
            finding = finding._replace(severity=Severity(wanted))
        case = self._cases.get(key)
        if case is None:
            # What a node says of a time may be anything.
            since = self._at if finding.since is None else min(max(finding.since, 0.0), self._at)
            case = self._cases[key] = Case(since, self.now_s, finding, finding.measure)
        case.round = self._round
        case.is_restored = False
        case.finding = finding
        case.ticks += 1
        case.least = min(case.least, finding.measure)
        if rule.has_to_grow and case.is_reported and finding.measure <= case.least:
            self._count_good(rule, key, case)
            return
        case.good_ticks = 0
        if case.is_reported:
            if case.rank != RANKS[finding.severity]:
                self._remove(key, case)
                self._report(key, case)
        elif self._is_due(rule, case, thresholds):
            self._report(key, case)

    def keep(self, key: Key) -> None:
        """This tick does not know."""
        case = self._cases.get(key)
        if case is not None:
            self._wait(case)

    def end_tick(
        self, rules: dict[str, Rule], find_known: Callable[[Key], Known]
    ) -> Iterator[None]:
        """Settle all cases without a finding, one per step."""
        for key, case in list(self._cases.items()):
            if case.round == self._round:
                continue
            known, rule = find_known(key), rules[key.rule]
            if known is Known.GOOD and case.is_restored and self.now_s < rule.belief_s:
                known = Known.UNKNOWN
            if known is Known.UNKNOWN:
                self._wait(case)
            elif known is Known.HELD:
                self._hold(key, case)
            elif known is Known.GONE:
                self._drop(key, case)
            else:
                self._count_good(rule, key, case)
            yield

    def reported(self) -> Iterator[tuple[Key, Case]]:
        """By severity, then by time."""
        for _, _, key in self._order:
            yield key, self._cases[key]

    def _is_due(self, rule: Rule, case: Case, thresholds: Thresholds) -> bool:
        hold_s: float = getattr(thresholds, rule.hold) if rule.hold else rule.hold_s
        if self.now_s - case.seen_s < hold_s or case.ticks < rule.ticks_min:
            return False
        return not rule.has_to_grow or case.finding.measure > case.least

    def _wait(self, case: Case) -> None:
        case.round = self._round
        if not case.is_reported:
            case.seen_s += self.step_s

    def _hold(self, key: Key, case: Case) -> None:
        self._wait(case)
        case.good_ticks = 0
        if case.is_reported:
            self._remove(key, case)
            case.is_reported = False

    def _count_good(self, rule: Rule, key: Key, case: Case) -> None:
        if not case.good_ticks:
            case.good_since_s = self.now_s
        case.good_ticks += 1
        is_over = case.good_ticks >= CLEAR_TICKS and self.now_s - case.good_since_s >= rule.clear_s
        if is_over or not (case.is_reported or rule.is_patient):
            self._drop(key, case)

    def _report(self, key: Key, case: Case) -> None:
        case.is_reported = True
        case.rank = RANKS[case.finding.severity]
        self.reported_counts[case.finding.severity] += 1
        bisect.insort(self._order, (case.rank, case.since, key))

    def _remove(self, key: Key, case: Case) -> None:
        place = bisect.bisect_left(self._order, (case.rank, case.since, key))
        del self._order[place]
        self.reported_counts[list(Severity)[case.rank]] -= 1

    def _drop(self, key: Key, case: Case) -> None:
        if case.is_reported:
            self._remove(key, case)
        del self._cases[key]


def _said(text: str, _since: float) -> str:
    return text
