"""Current problems: applies the rules to each tick, and keeps the findings for pages and /metrics.

    Problems.take ─► Rules.judge ─► Cases ─► found, counts
                        └ Probes: queries for some channels only

A tick is judged in slices, the first of them at once: the list of a small cluster belongs to its tick, that of a large
one comes a little later. While a tick is judged, only the newest of the following ones waits.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from urllib.parse import quote

from nsqfast.errors import OptionsError
from nsqfast.nsqadmin.live.cases import Case, KeptCase, Key, Severity
from nsqfast.nsqadmin.live.model import Cluster
from nsqfast.nsqadmin.live.probes import Probes
from nsqfast.nsqadmin.live.rules import Rules
from nsqfast.nsqadmin.live.silences import Scope, Silence, Silences
from nsqfast.nsqadmin.live.vitals import Vitals
from nsqfast.nsqadmin.options import Options
from nsqfast.nsqadmin.upstream.client import Upstream

__all__ = ["Problem", "Problems", "Severity"]

SLICE_S = 0.002
FOUND_MAX = 1000
STEPS_PER_LOOK = 16  # between two reads of the clock


@dataclass(frozen=True, slots=True)
class Problem:
    """One row. `text` is the evidence, `check` says how to look into it; one line each."""

    id: str  # constant as long as it lasts
    rule: str
    severity: Severity
    topic: str  # '' if it concerns no topic
    channel: str
    node: str  # key of Cluster.nodes, or address of an nsqlookupd
    since: float  # unix time
    text: str
    check: str
    muted_until: float = 0.0  # unix time; 0: not muted
    muted_by: Silence | None = None


class Problems:
    """Takes each tick after History did."""

    def __init__(self, options: Options, upstream: Upstream | None = None) -> None:
        check_options(options)
        self.found: list[Problem] = []  # the first FOUND_MAX, by severity, then by time
        self.counts = dict.fromkeys(Severity, 0)  # of all
        self.tick = 0  # that was judged
        self._probes = Probes(upstream)
        self._rules = Rules(options, self._probes)
        self.silences = Silences(options)
        self._listeners: list[Callable[[], None]] = []
        self._next: Cluster | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def total(self) -> int:
        """The number of problems; `found` has no more than FOUND_MAX."""
        return sum(self.counts.values())

    def listen(self, listener: Callable[[], None]) -> None:
        """It is called after each tick that was judged."""
        self._listeners.append(listener)

    def vitals(self, node: str) -> Vitals | None:
        """What the rules know of the disk and the process of an nsqd."""
        return self._probes.vitals(node)

    def is_reported(self, problem: Problem) -> bool:
        """Whether it is one now, be it beyond FOUND_MAX."""
        key = Key(problem.rule, problem.topic, problem.channel, problem.node)
        return self._rules.cases.is_reported(key)

    def reload(self) -> None:
        """Read --problem-file again; after an OptionsError all is as before."""
        self._rules.thresholds.reload()

    def take(self, cluster: Cluster) -> None:
        """One more tick."""
        if self._task is not None and not self._task.done():
            self._next = cluster
            return
        steps = self._judge(cluster)
        if not _run_slice(steps):
            self._task = asyncio.get_running_loop().create_task(self._go_on(steps))

    async def stop(self) -> None:
        """Stop judging and asking."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        await self._probes.stop()

    def believe(self, kept: Iterable[KeptCase]) -> None:
        """Those of the previous nsqadmin, before the first tick; `silences` are read."""
        cases = self._rules.cases
        cases.believe(kept, self._rules.by_name)
        reported = islice(cases.reported(), FOUND_MAX)
        self.found = [self._problem(key, case) for key, case in reported]
        self._mute_found()
        self.counts = dict(cases.reported_counts)

    def kept(self) -> Iterator[KeptCase]:
        """For the next nsqadmin."""
        return self._rules.cases.kept(FOUND_MAX)

    def find(self, problem_id: str) -> Problem | None:
        """None: it is over, or beyond FOUND_MAX."""
        return next((problem for problem in self.found if problem.id == problem_id), None)

    def silence(self, silence: Silence) -> bool:
        """It counts from now on, even if problems go and come back; False: there are too many.

        The caller saves the silences.
        """
        is_begun = self.silences.begin(silence)
        self._mute_found()
        return is_begun

    def end_silence(self, scope: Scope, target: str) -> bool:
        """Like `silence`; False: there is none."""
        is_ended = self.silences.end(scope, target)
        self._mute_found()
        return is_ended

    def _mute_found(self) -> None:
        self.found = [self._with_mute(problem) for problem in self.found]

    async def _go_on(self, steps: Iterator[None]) -> None:
        while True:
            await asyncio.sleep(0)
            if not _run_slice(steps):
                continue
            if self._next is None:
                return
            cluster, self._next = self._next, None
            steps = self._judge(cluster)

    def _judge(self, cluster: Cluster) -> Iterator[None]:
        yield from self._rules.judge(cluster)
        found = []
        self.silences.forget(time.time())
        # Nothing changes the cases between the steps: the next tick waits.
        for key, case in islice(self._rules.cases.reported(), FOUND_MAX):
            found.append(self._problem(key, case))
            yield
        self.found = found
        self._mute_found()  # a silence between two steps counts, too
        self.counts = dict(self._rules.cases.reported_counts)
        self.tick = cluster.tick
        self._probes.ask(cluster)
        for listener in self._listeners:
            listener()

    def _problem(self, key: Key, case: Case) -> Problem:
        finding = case.finding
        return Problem(
            id="/".join([quote(part, safe="", errors="replace") for part in key]),
            rule=key.rule,
            severity=finding.severity,
            topic=key.topic,
            channel=key.channel,
            node=key.node,
            since=case.since,
            text=finding.text(case.since),
            check=self._rules.by_name[key.rule].check.replace("{node}", key.node),
        )

    def _with_mute(self, problem: Problem) -> Problem:
        silence = self.silences.find(problem.id, problem.node, problem.topic)
        if silence is problem.muted_by:
            return problem
        until = silence.until if silence else 0.0
        return replace(problem, muted_until=until, muted_by=silence)


def check_options(options: Options) -> None:
    """OptionsError for values that no rule can use."""
    if options.problem_window_ns <= 0:
        raise OptionsError("--problem-window must be above 0s")


def _run_slice(steps: Iterator[None]) -> bool:
    """Run a slice; returns whether all is done."""
    due_s = time.perf_counter() + SLICE_S
    while True:
        for _ in islice(steps, STEPS_PER_LOOK):
            pass
        done = object()
        if next(steps, done) is done:
            return True
        if time.perf_counter() >= due_s:
            return False
