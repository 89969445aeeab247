"""Rules for topics; ephemeral ones break none."""

from collections.abc import Iterator, Sequence
from functools import partial

from nsqfast.nsqadmin.live.cases import Cases, Finding, Key, Known, Rule, Severity
from nsqfast.nsqadmin.live.channel_rules import (
    PARTLY_PAUSED,
    PAUSED,
    partly_paused_text,
    paused_text,
)
from nsqfast.nsqadmin.live.model import Part, Topic
from nsqfast.nsqadmin.live.moment import Moment, add_rates
from nsqfast.nsqadmin.live.parts import node_keys
from nsqfast.nsqadmin.live.texts import clock, number, span, waiting
from nsqfast.nsqadmin.live.windows import Window
from nsqfast.nsqadmin.options import Options

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
        self._windows: dict[str, Window] = {}

    def judge(self, moment: Moment, topic: Topic, *, is_store: bool) -> None:
        """Judge a topic that is not ephemeral. `is_store`: its messages are dead letters."""
        parts = moment.topic_parts(topic)
        paused = [part for part in parts if part.paused] if topic.paused_parts else []
        self._judge_pause(moment, topic, parts, paused)
        if is_store:
            self._judge_letters(topic, parts)
        elif topic.counts.depth:
            self._judge_channels(moment, topic, [part for part in parts if not part.paused])

    def look(self, moment: Moment, key: Key) -> Known:
        """What is known of a topic that no longer breaks this rule."""
        topic = moment.cluster.topics.get(key.topic)
        if topic is None or not topic.parts:
            return Known.GONE
        if moment.is_unclear(topic.parts) or not moment.topic_parts(topic):
            return Known.UNKNOWN
        return Known.GOOD

    def forget(self, moment: Moment) -> Iterator[None]:
        """Drop the sums of topics that are gone, or got nothing for the whole window."""
        for name, window in list(self._windows.items()):
            if name not in moment.cluster.topics or not window.sums().delivered:
                del self._windows[name]
            yield

    def _add(self, rule: str, topic: Topic, finding: Finding) -> None:
        self._cases.add(self._rules[rule], Key(rule, topic.name), finding)

    def _judge_pause(
        self, moment: Moment, topic: Topic, parts: Sequence[Part], paused: list[Part]
    ) -> None:
        if paused and len(paused) < len(parts):
            text = partial(partly_paused_text, len(parts), paused, moment.at)
            self._add(PARTLY_PAUSED, topic, Finding(Severity.WARN, text))
        elif paused:
            depth = sum(part.counts.depth for part in paused)
            text = partial(paused_text, depth, moment.at)
            self._add(PAUSED, topic, Finding(Severity.WARN, text, measure=depth))

    def _judge_channels(self, moment: Moment, topic: Topic, parts: list[Part]) -> None:
        served = {node for channel in topic.channels.values() for node in node_keys(channel.parts)}
        alone = [part for part in parts if part.counts.depth and part.node not in served]
        if alone:
            depth = sum(part.counts.depth for part in alone)
            text = partial(_no_channel, depth, alone, bool(served), moment.at)
            self._add(NO_CHANNEL, topic, Finding(Severity.WARN, text))

    def _judge_letters(self, topic: Topic, parts: Sequence[Part]) -> None:
        rates, step_s, now_s = add_rates(parts), self._cases.step_s, self._cases.now_s
        if rates is None:
            self._cases.keep(Key(DEAD_LETTERS, topic.name))
            return
        window = self._windows.get(topic.name)
        if window is None:
            if not rates.in_s:
                return
            window = self._windows[topic.name] = Window(self._span_s, now_s - step_s)
        window.add(now_s, 0.0, 0.0, rates.in_s * step_s)
        arrived = window.sums().delivered
        if arrived:
            text = partial(_letters, arrived, window.age_s, topic.counts.message_count)
            self._add(DEAD_LETTERS, topic, Finding(Severity.WARN, text))


def _no_channel(depth: int, alone: list[Part], has_others: bool, now: float, since: float) -> str:
    where = f" on {alone[0].node}" if len(alone) == 1 else f" on {len(alone)} nodes"
    missing = "it has no channel there" if has_others else "it has no channel"
    return f"{waiting(depth)} in the topic{where}; {missing} since {clock(since, now)}"


def _letters(arrived: float, span_s: float, total: int, _since: float) -> str:
    return f"{number(round(arrived))} dead letters in the last {span(span_s)}; {number(total)} since nsqd began"
