"""Rules for topics and channels.

Ephemeral ones break none: they may lose unread messages, and end with their consumers.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from functools import partial
from typing import NamedTuple

from nsqfast.nsqadmin.cluster.answers import Client
from nsqfast.nsqadmin.cluster.model import Channel, NodePart, Rates, Topic
from nsqfast.nsqadmin.cluster.probes import Probes
from nsqfast.nsqadmin.options import Options
from nsqfast.nsqadmin.problems.cases import Cases, Finding, Key, Known, Rule, Severity
from nsqfast.nsqadmin.problems.texts import clock, count, number, percent, printable, span, waiting
from nsqfast.nsqadmin.problems.thresholds import Thresholds, ThresholdTable
from nsqfast.nsqadmin.problems.up_node_numbers import UpNodeChannel, UpNodeNumbers

STEPS = 10
# A window younger than this part of its span says nothing yet: a burst in a busy channel proves no share.
YOUNG = 1 / 5


class Deliveries(NamedTuple):
    """What was delivered within a window, and what came of it."""

    requeued: float
    timed_out: float
    delivered: float


class DeliveryWindow:
    """The window of one channel (or topic: then `delivered` counts its messages)."""

    __slots__ = ("_began_s", "_now_s", "_span_s", "_steps")

    def __init__(self, span_s: float, now_s: float) -> None:
        self._span_s = span_s
        self._began_s = self._now_s = now_s
        self._steps: deque[tuple[float, Deliveries]] = deque()

    def add(self, now_s: float, requeued: float, timed_out: float, delivered: float) -> None:
        self._now_s = now_s
        steps = self._steps
        if steps and now_s - steps[-1][0] < self._span_s / STEPS:
            began_s, old = steps[-1]
            requeued, timed_out = old.requeued + requeued, old.timed_out + timed_out
            steps[-1] = began_s, Deliveries(requeued, timed_out, old.delivered + delivered)
        else:
            steps.append((now_s, Deliveries(requeued, timed_out, delivered)))
        while now_s - steps[0][0] > self._span_s:
            steps.popleft()

    def sums(self) -> Deliveries:
        """What was delivered within the last `span_s`."""
        columns = zip(*(step for _, step in self._steps), strict=True)
        return Deliveries(*map(sum, columns)) if self._steps else Deliveries(0.0, 0.0, 0.0)

    @property
    def age_s(self) -> float:
        """How long it has observed, at most its span."""
        return min(self._now_s - self._began_s, self._span_s)


NO_CONSUMERS = "no_consumers"
STUCK = "stuck_in_flight"
CONSUMER_STUCK = "consumer_stuck"
BACKLOG = "backlog_grows"
REQUEUES = "high_requeue"
TIMEOUTS = "high_timeouts"
PAUSED = "paused_and_filling"
PARTLY_PAUSED = "paused_on_some_nodes"
FAILING = "paused_by_policy"
REFUSED = "dead_letters_refused"
NOT_READY = "consumers_not_ready"


def channel_rules(options: Options) -> list[Rule]:
    window_s = options.problem_window_ns / 1e9
    return [
        Rule(
            NO_CONSUMERS,
            "See whether the program that reads this channel runs, and whether its log tells of errors from nsqd "
            "or nsqlookupd.",
            hold="no_consumers",
        ),
        Rule(
            STUCK,
            "Look at the channel's clients: which of them holds the messages, and what does that program wait for?",
            hold="stuck",
            needs_rates=True,
        ),
        Rule(
            CONSUMER_STUCK,
            "Find out what that program waits for. Its connection can be ended on the page of the channel's clients; "
            "what it holds goes to others then.",
            is_patient=True,
        ),
        Rule(
            BACKLOG,
            "Compare what is published and finished on the channel's page: add consumers, raise their "
            "max_in_flight, or find out what slows them down.",
            hold="backlog_time",
            is_patient=True,
            needs_rates=True,
        ),
        Rule(
            REQUEUES,
            "Read in the consumers' log why they requeue, and look at the attempts of the messages in flight.",
            needs_rates=True,
            belief_s=window_s,
        ),
        Rule(
            TIMEOUTS,
            "Compare the time that the handler takes with --msg-timeout: let it touch long jobs, or lower "
            "max_in_flight.",
            needs_rates=True,
            belief_s=window_s,
        ),
        Rule(
            PAUSED,
            "Find in the audit who paused it and whether the reason holds; unpause it if not.",
            hold="paused",
            has_to_grow=True,
        ),
        Rule(
            PARTLY_PAUSED,
            "Pause or unpause it on all nodes; a node that was added after the pause does not know of it.",
        ),
        Rule(
            FAILING,
            "Read in the consumers' log why they give messages back: it goes on by itself when one is finished.",
        ),
        Rule(
            REFUSED,
            "Make room in that topic, by its policy, its consumers or the disk: until then these messages are tried "
            "again and again.",
        ),
        Rule(
            NOT_READY,
            "See in the consumers' log whether they back off after errors, or have a max_in_flight below the number "
            "of nsqd.",
            hold="not_ready",
            needs_rates=True,
        ),
    ]


class ChannelRules:
    """Keeps sums only for channels that requeue or time out."""

    def __init__(
        self,
        options: Options,
        rules: dict[str, Rule],
        cases: Cases,
        probes: Probes,
        thresholds: ThresholdTable,
    ) -> None:
        self._thresholds = thresholds
        self._rules = rules
        self._cases = cases
        self._probes = probes
        self._span_s = options.problem_window_ns / 1e9
        self._windows: dict[tuple[str, str], DeliveryWindow] = {}
        self._dead_letter_ending = options.problem_dead_letter_suffix

    def judge(self, fresh: UpNodeNumbers, channel: Channel) -> None:
        """Judge a channel with activity that is not ephemeral."""
        share = fresh.share(channel)
        if share.paused:
            rule, finding = _pause(share.active_count, share.paused, fresh.at)
            self._add(rule, channel, finding)
        if not share.active_count:
            return
        failing = fresh.failing_nodes(channel)
        if failing:
            text = partial(_paused_by_policy, share.active_count, failing, share.depth, fresh.at)
            self._add(FAILING, channel, Finding(Severity.WARN, text))
        refusing = fresh.refusing_nodes(channel)
        if refusing:
            letters = self._probes.ready((channel.topic, channel.name, refusing[0])).letters
            text = partial(_refused, share.active_count, refusing, letters, fresh.at)
            self._add(REFUSED, channel, Finding(Severity.WARN, text))
        if self._is_left_alone(fresh, channel.topic, share):
            text = partial(_no_consumers, share.depth, _age_of(channel), fresh.at)
            self._add(NO_CONSUMERS, channel, Finding(Severity.CRIT, text))
        if share.rates is not None:
            self._judge_flow(fresh, channel, share, share.rates, is_failing=bool(failing))
        if share.in_flight:
            self._judge_consumers(fresh, channel)

    def _is_left_alone(self, fresh: UpNodeNumbers, topic: str, share: UpNodeChannel) -> bool:
        """Messages wait for consumers, of which there are none: that its backlog grows is no problem of its own."""
        return share.depth > 0 and not share.clients and not self.is_store(fresh, topic)

    def is_store(self, fresh: UpNodeNumbers, topic: str) -> bool:
        """Whether it is a topic of dead letters, which wait for a person, not for a consumer."""
        ending = self._dead_letter_ending
        is_named_so = bool(ending) and topic.endswith(ending)
        return (is_named_so and topic.removesuffix(ending) in fresh.cluster.topics) or (
            fresh.has_dead_letters(topic)
        )

    def find_known(self, fresh: UpNodeNumbers, key: Key) -> Known:
        channel = fresh.cluster.channel(key.topic, key.channel)
        if channel is None or not channel.parts:
            return Known.GONE  # nsqlookupd may still know its name
        share = fresh.share(channel)
        if fresh.is_unclear(channel.parts) or not (share.active_count or share.paused):
            return Known.UNKNOWN
        if self._rules[key.rule].needs_rates and share.active_count and share.rates is None:
            return Known.UNKNOWN
        if key.rule == BACKLOG and self._is_left_alone(fresh, key.topic, share):
            return Known.HELD
        if key.rule == CONSUMER_STUCK and self._is_reported_stuck(channel):
            return Known.HELD
        is_held = not share.active_count and key.rule not in (PAUSED, PARTLY_PAUSED)
        return Known.HELD if is_held else Known.GOOD

    def forget(self, fresh: UpNodeNumbers) -> Iterator[None]:
        """Drop the sums of channels that are gone, or had no requeues or timeouts for the whole window."""
        for names, window in list(self._windows.items()):
            sums = window.sums()
            if fresh.cluster.channel(*names) is None or not (sums.requeued or sums.timed_out):
                del self._windows[names]
            yield

    def has_window(self, names: tuple[str, str]) -> bool:
        """Whether it requeued, or timed out, in the last minutes."""
        return names in self._windows

    def _of(self, channel: Channel) -> Thresholds:
        return self._thresholds.of(channel.topic, channel.name)

    def _add(self, rule: str, channel: Channel, finding: Finding) -> None:
        self._cases.add(self._rules[rule], Key(rule, channel.topic, channel.name), finding)

    def _judge_flow(
        self,
        fresh: UpNodeNumbers,
        channel: Channel,
        share: UpNodeChannel,
        rates: Rates,
        *,
        is_failing: bool,
    ) -> None:
        is_still = rates.out_s <= 0
        if share.in_flight and is_still:
            text = partial(_stuck, share, rates, fresh.at)
            self._add(STUCK, channel, Finding(Severity.CRIT, text))
        if share.depth and share.clients and not share.in_flight and is_still and not is_failing:
            self._judge_ready(fresh, channel, share)
        if not self._is_left_alone(fresh, channel.topic, share):
            self._judge_backlog(channel, share, rates)
        self._judge_window(channel, rates)

    def _is_reported_stuck(self, channel: Channel) -> bool:
        """Nobody finishes anything: that one of them does not is no problem of its own."""
        return self._cases.is_reported(Key(STUCK, channel.topic, channel.name))

    def _judge_consumers(self, fresh: UpNodeNumbers, channel: Channel) -> None:
        held_ms, node = fresh.longest_held(channel)
        is_short = held_ms < self._of(channel).stuck * 1e3
        if is_short or self._is_reported_stuck(channel):
            return
        holder = self._probes.ready((channel.topic, channel.name, node)).holder
        text = partial(_consumer_stuck, holder, node, fresh.at)
        since = fresh.at - held_ms / 1e3
        self._add(CONSUMER_STUCK, channel, Finding(Severity.WARN, text, since))

    def _judge_backlog(self, channel: Channel, share: UpNodeChannel, rates: Rates) -> None:
        thresholds, slope = self._of(channel), channel.depth_slope
        if slope is None:
            self._cases.keep(Key(BACKLOG, channel.topic, channel.name))
            return
        is_growing = slope > 0 and slope >= thresholds.backlog_growth
        if is_growing and share.depth > thresholds.backlog_depth and rates.in_s > rates.out_s:
            is_old = (channel.oldest_s or 0.0) > thresholds.backlog_age
            severity = Severity.CRIT if is_old else Severity.WARN
            text = partial(_backlog, share.depth, slope, _age_of(channel))
            self._add(BACKLOG, channel, Finding(severity, text))

    def _judge_ready(self, fresh: UpNodeNumbers, channel: Channel, share: UpNodeChannel) -> None:
        """Among the nodes that hold messages for consumers and deliver none: is any consumer ready?"""
        ready = [
            self._probes.ready((channel.topic, channel.name, node)).count
            for node in fresh.serving_nodes(channel)
        ]
        if any(ready):
            return
        if not ready or None in ready:
            self._cases.keep(Key(NOT_READY, channel.topic, channel.name))
            return
        text = partial(_not_ready, share.depth, share.clients, fresh.at)
        self._add(NOT_READY, channel, Finding(Severity.WARN, text))

    def _judge_window(self, channel: Channel, rates: Rates) -> None:
        names, step_s, now_s = (channel.topic, channel.name), self._cases.step_s, self._cases.now_s
        window = self._windows.get(names)
        if window is None:
            if not (rates.requeue_s or rates.timeout_s):
                return
            window = self._windows[names] = DeliveryWindow(self._span_s, now_s - step_s)
        requeued, timed_out = rates.requeue_s * step_s, rates.timeout_s * step_s
        delivered = max(rates.out_s, 0.0) * step_s + requeued + timed_out
        window.add(now_s, requeued, timed_out, delivered)
        if window.age_s < self._span_s * YOUNG:
            return
        thresholds, sums = self._of(channel), window.sums()
        for rule, total, warning, critical in (
            (REQUEUES, sums.requeued, thresholds.requeue_warning, thresholds.requeue_critical),
            (TIMEOUTS, sums.timed_out, thresholds.timeout_warning, thresholds.timeout_critical),
        ):
            if not sums.delivered or total / window.age_s < thresholds.rate:
                continue
            share = total / sums.delivered
            if share >= min(warning, critical):
                severity = Severity.CRIT if share >= critical else Severity.WARN
                text = partial(_high_share, SHARE_WORDS[rule], total, sums.delivered, window.age_s)
                self._add(rule, channel, Finding(severity, text))


SHARE_WORDS = {REQUEUES: "were requeued", TIMEOUTS: "timed out"}
NODES_SHOWN = 5
REFUSAL_SIZE_MAX = 200

Age = tuple[float | None, bool]  # age of the oldest message in seconds; whether it is a lower bound


# Texts are made when somebody reads them, and outlive their tick: they keep numbers, not the cluster.


def _no_consumers(depth: int, age: Age, now: float, since: float) -> str:
    return f"{waiting(depth)}{_oldest(age)}; no consumers since {clock(since, now)}"


def _age_of(channel: Channel) -> Age:
    return channel.oldest_s, channel.oldest_is_minimum


def _oldest(age: Age) -> str:
    oldest_s, is_minimum = age
    if oldest_s is None:
        return ""
    least = "at least " if is_minimum else ""
    return f", the oldest for {least}{span(oldest_s)}"


def _stuck(share: UpNodeChannel, rates: Rates, now: float, since: float) -> str:
    tail = f", {number(rates.timeout_s)}/s time out" if rates.timeout_s else ""
    return (
        f"{count(share.in_flight, 'message')} in flight at {count(share.clients, 'consumer')}, "
        f"none finished since {clock(since, now)}{tail}; {waiting(share.depth)} behind"
    )


def _consumer_stuck(holder: Client | None, node: str, now: float, since: float) -> str:
    who, held = "a consumer", "messages"
    if holder is not None:
        name = holder.client_id or holder.hostname
        who = printable(f"{holder.remote_address} ({name})" if name else holder.remote_address)
        held = count(holder.in_flight_count, "message")
    return f"{who} on {node} holds {held}, none finished since {clock(since, now)}"


def _backlog(depth: int, slope: float, age: Age, _since: float) -> str:
    return f"{waiting(depth)}{_oldest(age)}; {number(slope)}/s more over the last 5 min"


def _high_share(done: str, total: float, delivered: float, span_s: float, _since: float) -> str:
    return (
        f"{number(round(total))} of {number(round(delivered))} deliveries in the last {span(span_s)} "
        f"{done}: {percent(total / delivered)}"
    )


def _pause(active_count: int, paused: Sequence[NodePart], at: float) -> tuple[str, Finding]:
    """Of a channel or a topic that is paused somewhere: the rule, and what it finds."""
    if active_count:
        text = partial(_partly_paused, active_count + len(paused), paused, at)
        return PARTLY_PAUSED, Finding(Severity.WARN, text)
    depth = sum(part.counts.depth for part in paused)
    return PAUSED, Finding(Severity.WARN, partial(_paused, depth, at), measure=depth)


def _partly_paused(total: int, paused: Sequence[NodePart], now: float, since: float) -> str:
    nodes = _name_some([part.node for part in paused])
    return f"paused on {len(paused)} of {total} nodes since {clock(since, now)}: {nodes}"


def _paused_by_policy(
    total: int, failing: Sequence[str], depth: int, now: float, since: float
) -> str:
    where = f"on {len(failing)} of {total} nodes since {clock(since, now)}"
    return f"its deliveries fail, so its policy pauses it {where}: {_name_some(failing)}; {waiting(depth)}"


def _refused(
    total: int, refusing: Sequence[str], letters: tuple[str, str], now: float, since: float
) -> str:
    topic, refusal = (printable(each, REFUSAL_SIZE_MAX) for each in letters)
    why = f"{topic or 'the topic of dead letters'} takes none{f': {refusal}' if refusal else ''}"
    where = f"on {len(refusing)} of {total} nodes since {clock(since, now)}"
    return f"messages that failed wait {where} ({_name_some(refusing)}): {why}"


def _name_some(nodes: Sequence[str]) -> str:
    more = f" and {len(nodes) - NODES_SHOWN} more" if len(nodes) > NODES_SHOWN else ""
    return ", ".join(nodes[:NODES_SHOWN]) + more


def _paused(depth: int, now: float, since: float) -> str:
    return f"paused since {clock(since, now)}; {waiting(depth)}, and more come"


def _not_ready(depth: int, clients: int, now: float, since: float) -> str:
    return (
        f"{waiting(depth)}; {count(clients, 'consumer')} connected, "
        f"none ready (RDY 0) since {clock(since, now)}"
    )


NO_CHANNEL = "topic_without_channel"
DEAD_LETTERS = "dead_letters"


def topic_rules(options: Options) -> list[Rule]:
    """The rules with the times of the flags; the rules on pauses are those of channels."""
    return [
        Rule(
            NO_CHANNEL,
            "Start the consumer that creates the channel, create the channel by hand, or find out who publishes "
            "to a topic that nobody reads.",
            hold="no_channel",
        ),
        Rule(
            DEAD_LETTERS,
            "Read the newest dead letters and the log of the consumer that gave them up.",
            belief_s=options.problem_window_ns / 1e9,
        ),
    ]


class TopicRules:
    """Keeps counts of recent messages to topics of dead letters."""

    def __init__(self, options: Options, rules: dict[str, Rule], cases: Cases) -> None:
        self._rules = rules
        self._cases = cases
        self._span_s = options.problem_window_ns / 1e9
        self._windows: dict[str, DeliveryWindow] = {}

    def judge(self, fresh: UpNodeNumbers, topic: Topic, *, is_store: bool) -> None:
        """Judge a topic that is not ephemeral. `is_store`: its messages are dead letters."""
        if not (topic.counts.depth or topic.parts.paused_count or is_store):
            return
        parts = fresh.topic_parts(topic)
        paused = [part for part in parts if part.paused]
        active = [part for part in parts if not part.paused]
        if paused:
            rule, finding = _pause(len(active), paused, fresh.at)
            self._add(rule, topic, finding)
        if is_store:
            self._judge_letters(topic, parts)
        elif topic.counts.depth:
            self._judge_channels(fresh, topic, active)

    def find_known(self, fresh: UpNodeNumbers, key: Key) -> Known:
        topic = fresh.cluster.topics.get(key.topic)
        if topic is None or not topic.parts:
            return Known.GONE
        if fresh.is_unclear(topic.parts) or not fresh.topic_parts(topic):
            return Known.UNKNOWN
        return Known.GOOD

    def forget(self, fresh: UpNodeNumbers) -> Iterator[None]:
        """Drop the sums of topics that are gone, or got nothing for the whole window."""
        for name, window in list(self._windows.items()):
            if name not in fresh.cluster.topics or not window.sums().delivered:
                del self._windows[name]
            yield

    def _add(self, rule: str, topic: Topic, finding: Finding) -> None:
        self._cases.add(self._rules[rule], Key(rule, topic.name), finding)

    def _judge_channels(self, fresh: UpNodeNumbers, topic: Topic, parts: list[NodePart]) -> None:
        served = {node for channel in topic.channels.values() for node in channel.parts.node_keys()}
        alone = [part for part in parts if part.counts.depth and part.node not in served]
        if alone:
            depth = sum(part.counts.depth for part in alone)
            text = partial(_no_channel, depth, alone, bool(served), fresh.at)
            self._add(NO_CHANNEL, topic, Finding(Severity.WARN, text))

    def _judge_letters(self, topic: Topic, parts: Sequence[NodePart]) -> None:
        in_s = [part.rates.in_s for part in parts if part.rates is not None]
        step_s, now_s = self._cases.step_s, self._cases.now_s
        if not parts or len(in_s) < len(parts):
            self._cases.keep(Key(DEAD_LETTERS, topic.name))
            return
        window = self._windows.get(topic.name)
        if window is None:
            if not any(in_s):
                return
            window = self._windows[topic.name] = DeliveryWindow(self._span_s, now_s - step_s)
        window.add(now_s, 0.0, 0.0, sum(in_s) * step_s)
        arrived = window.sums().delivered
        if arrived:
            text = partial(_letters, arrived, window.age_s, topic.counts.message_count)
            self._add(DEAD_LETTERS, topic, Finding(Severity.WARN, text))


def _no_channel(
    depth: int, alone: list[NodePart], has_others: bool, now: float, since: float
) -> str:
    where = f" on {alone[0].node}" if len(alone) == 1 else f" on {len(alone)} nodes"
    missing = "it has no channel there" if has_others else "it has no channel"
    return f"{waiting(depth)} in the topic{where}; {missing} since {clock(since, now)}"


def _letters(arrived: float, span_s: float, total: int, _since: float) -> str:
    return f"{number(round(arrived))} dead letters in the last {span(span_s)}; {number(total)} since nsqd began"
