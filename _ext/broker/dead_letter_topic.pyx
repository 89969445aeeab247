"""A dead letter is an ordinary message of an ordinary topic: the body of the message that died, with a new id.

It is published, and the message that died is finished, in the same turn: a batch of the commit log has both or none.
Without a log the old place counts until the new one is on disk, if both are. What is known of it is in `deaths`.
"""

from libc.stdint cimport int64_t

from nsqfast._ext.broker.consumer cimport Consumer
from nsqfast._ext.broker.dead_letters cimport Reason

from nsqfast.errors import ProtocolError
from nsqfast.wire.names import EPHEMERAL, is_ephemeral, is_valid_name
from nsqfast.wire.refusals import NotTakenError

DEFAULT_NAME = "{topic}.{channel}.dead"

# Between two tries while the topic takes none: the first pause, and the longest.
cdef int64_t PAUSE_MIN_NS = 1000000000
cdef int64_t PAUSE_MAX_NS = 60000000000
# Until the disk has taken some of what gathers for the log.
cdef int64_t LOG_WAIT_NS = 5000000


def name_dead_letters(str pattern, str topic, str channel):
    """The topic of a channel's dead letters: `{topic}` and `{channel}` of the pattern are the names, without
    #ephemeral, since dead letters do not vanish."""
    return pattern.replace("{topic}", topic.removesuffix(EPHEMERAL)).replace(
        "{channel}", channel.removesuffix(EPHEMERAL))


cdef int find_dead_letters(Topics topics, Channel channel) except -1:
    if channel.dead_letters is None:
        name = name_dead_letters(DEFAULT_NAME, channel.topic_name, channel.name)
        channel.dead_letters = DeadLetterTopic(topics, channel.topic_name, channel.name, name)
    return 0


cdef class DeadLetterTopic(DeadLetters):
    """`takes_dropped`: of what a limit drops and of what expires, too."""

    def __init__(self, Topics topics not None, str topic_name not None, str channel_name not None, str name not None,
                 *, bint takes_dropped=False):
        self.topics, self.topic_name, self.channel_name, self.name = topics, topic_name, channel_name, name
        self.takes_dropped = takes_dropped

    cdef bint is_exempt(self) noexcept:
        cdef Topic topic = self.topics.by_name.get(self.topic_name)
        return self.name == self.topic_name or (topic is not None and topic.deaths is not None)

    cdef bint take(self, Delivery *delivery, Reason reason, Consumer consumer, bytes error) except -1:
        cdef Topic topic
        cdef int64_t now_ns = self.topics.durability.timers.clock.monotonic_ns()
        if now_ns < self.retry_ns:
            return False
        if not self.copy(delivery):
            if self.refusal is None:
                self.retry_ns = now_ns + LOG_WAIT_NS
            else:
                self.pause_ns = min(max(2 * self.pause_ns, PAUSE_MIN_NS), PAUSE_MAX_NS)
                self.retry_ns = now_ns + self.pause_ns
            return False
        self.refusal, self.pause_ns = None, 0
        topic = self.topic
        client = "" if consumer is None else consumer.client_id or ""
        topic.deaths.add(topic.guid.last(), delivery, reason, self.topic_name, self.channel_name, client, error,
                         topic.clock.wall_ns())
        self.topics.durability.want_deaths_written(topic.deaths)
        self.topics.dead_counts[<int> reason] += 1
        self.topics.durability.store.stored_count += 1
        return True

    cdef bint copy(self, Delivery *delivery) except -1:
        """Publish it. False: there is no room in this turn's batch, or a refusal."""
        cdef Topic topic
        cdef Channel channel
        try:
            topic = self.find()
            if topic.has_log:
                topic.admit(3, delivery.message.size)    # with the record that finishes the old one
            topic.publish(delivery.message.body, delivery.message.size, 0)
        except (NotTakenError, ProtocolError) as refusal:
            self.refusal = None if self.topics.durability.store.must_wait() else str(refusal)
            return False
        channel = (<Topic> self.topics.by_name[self.topic_name]).channel_by_name[self.channel_name]
        topic.store.note_copies(channel.backlog, None)
        return True

    cdef Topic find(self):
        """The topic, created if need be; ProtocolError, NotTakenError."""
        if self.topic is None or self.topic.exiting:
            if not is_valid_name(self.name) or is_ephemeral(self.name):
                raise NotTakenError(f"{self.name} is no name of a topic of dead letters")
            self.topics.admit(self.name)
            self.topic = self.topics.ensure(self.name)
            self.topic.take_dead_letters()
        return self.topic
