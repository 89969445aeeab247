"""Current problems: applies the rules to each tick, and keeps the findings for pages and /metrics.

    Problems.take ─► Rules.judge ─► Cases ─► found, counts
                        └ Probes: queries for some channels only

A tick is judged in slices, the first of them at once: the list of a small cluster belongs to its tick, that of a large
one comes a little later. While a tick is judged, only the newest of the following ones waits. docs/ADMIN.md says what
each rule finds.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from urllib.parse import quote

from nsqfast.errors import OptionsError
from nsqfast.net.slices import run_slice
from nsqfast.nsqadmin.cluster.client import Upstream
from nsqfast.nsqadmin.cluster.model import Channel, Cluster, Topic
from nsqfast.nsqadmin.cluster.probes import Probes, Vitals
from nsqfast.nsqadmin.options import Options
from nsqfast.nsqadmin.problems.cases import Case, Cases, KeptCase, Key, Known, Severity
from nsqfast.nsqadmin.problems.node_rules import NodeRules, node_rules
from nsqfast.nsqadmin.problems.queue_rules import (
    ChannelRules,
    TopicRules,
    channel_rules,
    topic_rules,
)
from nsqfast.nsqadmin.problems.silences import Scope, Silence, Silences
from nsqfast.nsqadmin.problems.thresholds import ThresholdTable
from nsqfast.nsqadmin.problems.up_node_numbers import UpNodeNumbers

GAP_S_MIN = 60.0  # between two ticks: a longer gap is not time under observation


class Rules:
    """Judges one tick after the other; `cases` has the findings."""

    def __init__(self, options: Options, probes: Probes) -> None:
        every = [*node_rules(options), *topic_rules(options), *channel_rules(options)]
        self.by_name = {rule.name: rule for rule in every}
        self.thresholds = ThresholdTable(options, self.by_name)
        self.cases = Cases(max(GAP_S_MIN, 3 * options.poll_interval_ns / 1e9), self.thresholds)
        self._nodes = NodeRules(options, self.by_name, self.cases, probes)
        self._topics = TopicRules(options, self.by_name, self.cases)
        self._channels = ChannelRules(options, self.by_name, self.cases, probes, self.thresholds)

    def judge(self, cluster: Cluster) -> Iterator[None]:
        """Judge in steps, between which the caller may let others run: a topic, a channel or a case each."""
        fresh = UpNodeNumbers(cluster)
        self.cases.begin(cluster.at)
        yield from self._nodes.judge(fresh)
        for topic in cluster.topics.values():
            if topic.parts and not topic.is_ephemeral:
                yield from self._judge_topic(fresh, topic)
        yield from self.cases.end_tick(self.by_name, lambda key: self._find_known(fresh, key))
        yield from self._channels.forget(fresh)
        yield from self._topics.forget(fresh)

    def _judge_topic(self, fresh: UpNodeNumbers, topic: Topic) -> Iterator[None]:
        channels = self._channels
        self._topics.judge(fresh, topic, is_store=channels.is_store(fresh, topic.name))
        yield
        for name, channel in topic.channels.items():
            is_busy = _may_break_rule(channel) or channels.has_window((topic.name, name))
            if is_busy and not channel.is_ephemeral:
                channels.judge(fresh, channel)
                yield

    def _find_known(self, fresh: UpNodeNumbers, key: Key) -> Known:
        if not key.topic:
            return self._nodes.find_known(fresh, key)
        group = self._channels if key.channel else self._topics
        known = group.find_known(fresh, key)
        # A dead node may have it, of which only the previous nsqadmin knows what it had.
        is_unclear = known is Known.GONE and fresh.is_partial and self.cases.is_restored(key)
        return Known.UNKNOWN if is_unclear else known


def _may_break_rule(channel: Channel) -> bool:
    """Whether any rule could be broken: called for each channel at each tick, so it has to be cheap."""
    counts, rates = channel.counts, channel.rates
    if counts.depth or counts.in_flight_count or counts.deferred_count:
        return True
    if rates is not None and (rates.requeue_s or rates.timeout_s):
        return True
    return channel.parts.paused_count > 0


FOUND_MAX = 1000
STEP_UNITS = 4  # of a budget: the clock is read once in 16 steps


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
    """Takes each tick once it is published; see the module."""

    def __init__(self, options: Options, upstream: Upstream | None = None) -> None:
        if options.problem_window_ns <= 0:
            raise OptionsError("--problem-window must be above 0s")
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
        """Judge one more tick, or the newest one once the last is judged."""
        if self._task is not None and not self._task.done():
            self._next = cluster
            return
        steps = self._judge(cluster)
        if not run_slice(steps, STEP_UNITS):
            self._task = asyncio.get_running_loop().create_task(self._go_on(steps))

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        await self._probes.stop()

    def restore(self, kept: Iterable[KeptCase]) -> None:
        """Those of the previous nsqadmin, before the first tick; `silences` are read."""
        cases = self._rules.cases
        cases.restore(kept, self._rules.by_name)
        reported = islice(cases.reported(), FOUND_MAX)
        self.found = [self._problem(key, case) for key, case in reported]
        self._mute_found()
        self.counts = dict(cases.reported_counts)

    def kept(self) -> Iterator[KeptCase]:
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
            if not run_slice(steps, STEP_UNITS):
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
