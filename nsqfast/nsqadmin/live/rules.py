"""All rules about current problems, and the order in which a tick is judged.

rule                     severity    of                 module
node_down                warn, crit  nsqd               node_rules
node_unhealthy           crit        nsqd
unclean_start            warn, crit  nsqd
drain_held               warn        nsqd
disk_low                 crit        nsqd
node_twice               warn        nsqd
version_behind           info        nsqd
lookupd_disagree         warn        nsqd
lookupd_down             warn, crit  nsqlookupd
topic_without_channel    warn        topic              topic_rules
dead_letters             warn        topic
paused_and_filling       warn        topic or channel   channel_rules
paused_on_some_nodes     warn        topic or channel
no_consumers             crit        channel
stuck_in_flight          crit        channel
consumer_stuck           warn        channel
consumers_not_ready      warn        channel
backlog_grows            warn, crit  channel
high_requeue             warn, crit  channel
high_timeouts            warn, crit  channel
"""

from collections.abc import Iterator

from nsqfast.nsqadmin.live.cases import Cases, Key, Known
from nsqfast.nsqadmin.live.channel_rules import ChannelRules, channel_rules
from nsqfast.nsqadmin.live.model import Channel, Cluster, Topic
from nsqfast.nsqadmin.live.moment import Moment
from nsqfast.nsqadmin.live.node_rules import NodeRules, node_rules
from nsqfast.nsqadmin.live.probes import Probes
from nsqfast.nsqadmin.live.thresholds import ThresholdTable
from nsqfast.nsqadmin.live.topic_rules import TopicRules, topic_rules
from nsqfast.nsqadmin.options import Options

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
        moment = Moment(cluster)
        self.cases.begin(cluster.at)
        yield from self._nodes.judge(moment)
        for topic in cluster.topics.values():
            if topic.parts and not topic.is_ephemeral:
                yield from self._judge_topic(moment, topic)
        yield from self.cases.end_tick(self.by_name, lambda key: self._look(moment, key))
        yield from self._channels.forget(moment)
        yield from self._topics.forget(moment)

    def _judge_topic(self, moment: Moment, topic: Topic) -> Iterator[None]:
        channels = self._channels
        self._topics.judge(moment, topic, is_store=channels.is_store(moment, topic.name))
        yield
        for name, channel in topic.channels.items():
            is_busy = _does_something(channel) or channels.has_window((topic.name, name))
            if is_busy and not channel.is_ephemeral:
                channels.judge(moment, channel)
                yield

    def _look(self, moment: Moment, key: Key) -> Known:
        if not key.topic:
            return self._nodes.look(moment, key)
        group = self._channels if key.channel else self._topics
        known = group.look(moment, key)
        # A dead node may have it, of which only the previous nsqadmin knows what it had.
        is_unclear = known is Known.GONE and moment.is_partial and self.cases.is_believed(key)
        return Known.UNKNOWN if is_unclear else known


def _does_something(channel: Channel) -> bool:
    """Whether any rule could be broken: called for each channel at each tick, so it has to be cheap."""
    counts, rates = channel.counts, channel.rates
    if counts.depth or counts.in_flight_count:
        return True
    if rates is not None and (rates.requeue_s or rates.timeout_s):
        return True
    return channel.paused_parts > 0
