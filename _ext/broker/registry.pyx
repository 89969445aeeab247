"""Python code runs per topic, per client and per turn, never per message."""

import logging
from bisect import bisect_left, insort
from collections import deque

from nsqfast._ext.broker.channel cimport Channel
from nsqfast._ext.broker.shutdown cimport Shutdown
from nsqfast._ext.core.budget cimport Budget, begin_part, is_spent, was_overspent
from nsqfast._ext.core.clock cimport monotonic_ns
from nsqfast._ext.core.limits cimport COSTLY_COUNT_MAX, END_COUNT_MAX, STORED_COUNT_MAX
from nsqfast._ext.storage.diskqueue.segment import forget_folder

from nsqfast.errors import ProtocolError

cdef enum:
    # After a larger write the turn did work that is worth a wake-up; clients then need the processor themselves.
    BUSY_POLL_SIZE_MAX = 2048
    # Units that a blocked client counts for: the clock is read after each.
    BLOCKED_UNITS = 64
    # Units of a client's write, and of telling it a result: the clock is read after every fourth, and every eighth.
    WRITE_UNITS = 16
    TELL_UNITS = 8

log = logging.getLogger("nsqd")


cdef class Registry:
    """`options` has the fields of Settings and those that IDENTIFY answers with."""

    def __init__(self, object options):
        self.settings = Settings(options)
        self.timers = Timers()
        self.syncer = Syncer()
        self.syncer.on_pending = self.ask_sync
        self.storage = TopicStorage(self.settings, self.syncer, self.timers)
        self.storage.on_mixed = self.write_batch
        self.topic_by_name = {}
        self.names = []
        self.connected = set()
        self.written, self.takers, self.refused = [], [], []
        self.blocked = deque()
        self.waiting = set()
        self.callbacks, self.open_callbacks = [], []
        self.news = deque()
        self.busy_poll = BusyPoll()
        self.release = Release(self.timers)
        self.later = PutOff(self.timers)

    # -- topics --------------------------------------------------------------------------------------------------------

    def topic(self, str name):
        """Return the topic of that (valid) name, created if need be."""
        cdef Topic topic = self.topic_by_name.get(name)
        if topic is None:
            if name in self.storage.deleting:
                (<Topic> self.storage.deleting[name]).finish_deletion()
            topic = self.make_topic(name)
            topic.exiting = self.closing
            self.topic_by_name[name] = topic
            insort(self.names, name)
            log.info("TOPIC(%s): created", name)
            self.changed("topic+", name, None)
        return topic

    cdef Topic make_topic(self, str name):
        return Topic(name, self.storage, self.changed, self.last_left)

    def admit(self, str name, str channel=None):
        """ProtocolError if a client would create more of them than is allowed; a start creates all that it finds."""
        cdef Topic topic = self.topic_by_name.get(name)
        options = self.settings.options
        if topic is None and 0 < options.max_topics <= len(self.topic_by_name):
            limit = f"--max-topics={options.max_topics}"
            raise ProtocolError("E_BAD_TOPIC", f"topic {name} not created, {limit} is reached")
        if (topic is not None and channel is not None and topic.find_channel(channel) is None
                and 0 < options.max_channels_per_topic <= len(topic.channel_list)):
            limit = f"--max-channels-per-topic={options.max_channels_per_topic}"
            raise ProtocolError("E_BAD_CHANNEL", f"channel {name}:{channel} not created, {limit} is reached")

    def find_topic(self, str name):
        """Return the topic of that name, or None."""
        return self.topic_by_name.get(name)

    def topics(self):
        """Return all topics, by name."""
        return [self.topic_by_name[name] for name in self.names]

    def delete_topic(self, str name):
        """Delete it with all its channels, messages and files; KeyError if there is none."""
        cdef Topic topic = self.topic_by_name.pop(name)
        del self.names[bisect_left(self.names, name)]
        log.info("TOPIC(%s): deleting", name)
        topic.delete()
        self.changed("topic-", name, None)

    def last_left(self, str name):
        """An ephemeral topic lost its last channel."""
        if name in self.topic_by_name:
            self.delete_topic(name)

    def changed(self, str kind, str topic, object channel):
        """Something was created or deleted."""
        if kind == "channel+":
            log.info("TOPIC(%s): new channel(%s)", topic, channel)
        elif kind == "channel-":
            log.info("TOPIC(%s): deleting channel %s", topic, channel)
        if self.on_change is not None:
            self.on_change(kind, topic, channel)

    # -- clients -------------------------------------------------------------------------------------------------------

    def add_client(self, Client client):
        self.connected.add(client)

    def remove_client(self, Client client):
        self.connected.discard(client)
        self.waiting.discard(client)

    def clients(self):
        """All clients that are connected over TCP."""
        return list(self.connected)

    def client_count(self):
        return len(self.connected)

    # -- one turn of the loop ------------------------------------------------------------------------------------------

    cdef int want_flush(self, Client client) except -1:
        self.written.append(client)
        return self.ask_turn()

    cdef int ask_turn(self) except -1:
        if not self.is_turn_asked and self.on_turn is not None:
            self.is_turn_asked = True
            self.on_turn()
        return 0

    cdef int want_turn(self, Client client) except -1:
        """Let it continue in a later turn, behind those that asked before."""
        self.blocked.append(client)
        return self.ask_turn()

    cdef bint may_be_costly(self) noexcept:
        """Whether one more command that takes a tenth of a millisecond may run in this turn, whoever sends it. If not,
        the client is blocked; blocked clients have a part of their own."""
        if self.is_running_blocked or self.on_turn is None:
            return True
        self.costly_count += 1
        return self.costly_count <= COSTLY_COUNT_MAX

    cdef bint may_store(self) noexcept:
        """The same for a message that comes back and may have to go to disk."""
        return self.is_running_blocked or self.on_turn is None or self.storage.stored_count < STORED_COUNT_MAX

    cdef bint may_end(self) noexcept:
        """Whether one more connection may be closed in this turn; if not, it waits among the blocked ones."""
        if self.on_turn is None:
            return True
        self.end_count += 1
        return self.end_count <= END_COUNT_MAX

    cdef int run_blocked(self) except -1:
        """Let blocked clients continue, all of them for one part: the loop polls its sockets between two calls.

        A turn that took much too long skips this; the next one does not.
        """
        cdef Budget budget
        cdef Client client
        self.costly_count = self.end_count = self.storage.stored_count = 0
        if not self.blocked:
            return 0
        self.is_late = was_overspent() and not self.is_late
        if self.is_late:
            return 0
        self.is_running_blocked = True
        budget = begin_part()
        for _ in range(len(self.blocked)):
            client = self.blocked.popleft()
            try:
                client.go_on()
            except Exception as error:
                self.break_off(client, error)
            if is_spent(&budget, BLOCKED_UNITS) or self.end_count >= END_COUNT_MAX:
                break
        self.is_running_blocked = False
        return 0

    cdef int put_off(self, Consumer consumer) except -1:
        """Let it take more after a short delay."""
        return self.later.add(consumer)

    def ask_sync(self):
        """The syncer has work to do."""
        self.ask_turn()

    def flush(self):
        """Write this turn's output, one write per client, and start the fsyncs that it requested."""
        cdef list written
        self.run_blocked()
        if self.news:
            self.tell_news()
        self.write_deferred()
        self.is_flushing = True
        self.hand_out_part = begin_part()
        if self.takers:
            self.hand_out_rest()
        written = self.written
        self.is_turn_asked = False
        if written:
            self.written = []
            self.written_size = 0
            self.flush_some(written)
            if self.written_size <= BUSY_POLL_SIZE_MAX:
                self.busy_poll.begin(monotonic_ns())
            else:
                self.busy_poll.stop()
        else:
            self.busy_poll.check(monotonic_ns())
        self.is_flushing = self.is_hand_out_spent = False
        self.syncer.start_batch()
        self.release.check()
        if self.syncer.is_running():
            self.busy_poll.stop()
        if self.busy_poll.is_on or self.blocked or self.news or self.written or self.takers:
            self.ask_turn()

    cdef int flush_some(self, list written) except -1:
        """Write while the part lasts; the next turn begins with the others."""
        cdef Budget budget = begin_part()
        cdef Client client
        cdef Py_ssize_t count = 0
        for client in written:
            count += 1
            try:
                client.flush()
            except Exception as error:
                self.break_off(client, error)
            if is_spent(&budget, WRITE_UNITS):
                break
        if count < len(written):
            self.written = written[count:] + self.written
        return 0

    cdef int hand_out(self, Consumer consumer) except -1:
        """Hand messages to a consumer whose output was sent. One call may serve all consumers of its channel, so all
        calls of a turn share a part; those that it has no time for come first in the next turn."""
        if not self.is_hand_out_spent:
            consumer.take_more()
            self.is_hand_out_spent = self.is_flushing and is_spent(&self.hand_out_part, BLOCKED_UNITS)
        elif not consumer.is_taking:
            consumer.is_taking = True
            self.takers.append(consumer)
        return 0

    cdef int hand_out_rest(self) except -1:
        """Hand messages to those that the last turn had no time for."""
        cdef Consumer consumer
        cdef list takers = self.takers
        self.takers = []
        for consumer in takers:
            consumer.is_taking = False
            try:
                self.hand_out(consumer)
            except Exception as error:
                self.break_off(consumer.client, error)
        return 0

    cdef int break_off(self, Client client, object error) except -1:
        """End a client whose output hit a bug of ours, and go on serving all others."""
        self.fault_count += 1
        self.waiting.discard(client)
        return client.drop(f"internal error: {error!r}")

    cdef int write_deferred(self) except -1:
        """Do the writes that this turn postponed, before fsyncs start, so that they cover all tickets given out."""
        cdef list unwritten = self.storage.unwritten
        cdef Topic topic
        cdef Client client
        if not unwritten:
            return 0
        self.write_batch()
        self.storage.unwritten = []
        for topic in unwritten:
            topic.on_written()
        refused, self.refused = self.refused, []
        for client in refused:
            client.on_durable(self.told_ticket, None)
        return 0

    def write_batch(self):
        """The first half of it: afterwards messages are in all the queues they are for, or in none and refused."""
        cdef Topic topic
        cdef Client client
        for topic in self.storage.unwritten:
            error = topic.write_batch()
            if error is not None:
                self.refuse(topic, error.strerror or str(error))
        for topic in self.storage.unwritten:
            counts = topic.fanout.take_counts()
            if counts[0]:
                self.storage.uncounted.append((self.syncer.open_ticket, topic, counts))
            publishers, topic.publishers = topic.publishers, []
            for client in publishers:
                client.on_written(None)
        self.callbacks += [(ticket, callback) for ticket, callback, _ in self.open_callbacks]
        self.open_callbacks = []

    cdef int refuse(self, Topic topic, str error) except -1:
        """Tell those who published to this topic; all others keep waiting."""
        cdef Client client
        self.syncer.health.refused(topic.fanout.take_counts()[0])
        for client in topic.publishers:
            if client.on_written(error):
                self.refused.append(client)
        waiting, self.open_callbacks = self.open_callbacks, []
        for ticket, callback, its_topic in waiting:
            if its_topic is topic:
                callback(error)
            else:
                self.open_callbacks.append((ticket, callback, its_topic))
        return 0

    cdef int count_messages(self, uint64_t done, bint is_good) except -1:
        """Count postponed messages whose fsync is done as accepted, or as refused."""
        waiting, self.storage.uncounted = self.storage.uncounted, []
        for item in waiting:
            ticket, topic, (count, size, channels) = item
            if ticket > done:
                self.storage.uncounted.append(item)
            elif is_good:
                (<Topic> topic).count(count, size, None)
                for channel, count in channels:
                    (<Channel> channel).message_count += count
            else:
                self.syncer.health.refused(count)
        return 0

    def run_timers(self, int64_t now_ns):
        """Run what is due at this monotonic time; return the next deadline, 0 for none."""
        return self.timers.run(now_ns)

    @property
    def on_deadline(self):
        """Called with an absolute monotonic time (ns) when the earliest deadline moves forward."""
        return self.timers.on_deadline

    @on_deadline.setter
    def on_deadline(self, value):
        self.timers.on_deadline = value

    # -- durability ----------------------------------------------------------------------------------------------------

    cdef int wait_durable(self, Client client) except -1:
        self.waiting.add(client)
        return 0

    def when_durable(self, uint64_t ticket, callback, topic):
        """Call callback(None) once everything up to the ticket is on disk, or callback(error text) if that failed.

        `topic`: where the write was postponed to the end of the turn and can still fail; None = it was written.
        """
        if ticket <= self.syncer.done_ticket:
            callback(None)
        elif topic is None:
            self.callbacks.append((ticket, callback))
        else:
            self.open_callbacks.append((ticket, callback, topic))

    def when_removed(self, callback):
        """Call callback() once the files of everything emptied or deleted so far are gone."""
        self.storage.disposal.when_removed(callback)

    def sync_fd(self):
        """A descriptor that becomes readable when an fsync ends; then call on_synced."""
        return self.syncer.fileno()

    def on_synced(self):
        """Tell all whose messages are now on disk."""
        self.write_deferred()
        done, error = self.syncer.completed()
        self.storage.sync_end.add(done, not error)
        self.count_messages(done, not error)
        self.add_news(done, error or None)
        self.tell_news()

    cdef int add_news(self, uint64_t done, object error) except -1:
        """Queue the result for all who wait now; a success is joined with the previous one if nobody was told of it."""
        waiting, self.callbacks = self.callbacks, [item for item in self.callbacks if item[0] > done]
        due = deque([callback for ticket, callback in waiting if ticket <= done])
        if len(self.news) > 1 and error is None and self.news[len(self.news) - 1][1] is None:
            due.extendleft(reversed(self.news.pop()[3]))
        self.news.append((done, error, list(self.waiting), due))
        return 0

    cdef int tell_news(self) except -1:
        """Tell results for a part; all are told of one fsync before any hears of a later one."""
        cdef Budget budget = begin_part()
        while self.news:
            done, error, clients, callbacks = self.news[0]
            while clients or callbacks:
                if clients:
                    self.tell(clients.pop(), done, error)
                else:
                    callbacks.popleft()(error)
                if is_spent(&budget, TELL_UNITS) and not self.closing:
                    return self.ask_turn()
            self.told_ticket = done
            self.news.popleft()
        return 0

    cdef int tell(self, Client client, uint64_t done, object error) except -1:
        if client in self.waiting:
            try:
                client.on_durable(done, error)
            except Exception as fault:
                self.break_off(client, fault)
        return 0

    def done_waiting(self, Client client):
        self.waiting.discard(client)

    def health(self):
        """"OK", or "NOK" with the last disk error."""
        return self.syncer.health.text

    # -- the end -------------------------------------------------------------------------------------------------------

    def close(self, on_progress=None):
        """Refuse publishes, bring everything to disk, close all files. OSError says in one line what was lost. A second
        call does nothing.

        on_progress(number of queues, those whose content is on disk, those that are closed) is called several times a
        second, from within."""
        if self.closing:
            return
        self.write_deferred()
        self.closing = True
        failed_before = self.syncer.failed_ticket
        shutdown = Shutdown(self.storage, self.topics(), on_progress)
        lost = shutdown.run()
        for topic in list(self.storage.deleting.values()):
            (<Topic> topic).finish_deletion()
        self.storage.close()
        forget_folder()
        if lost is None and self.syncer.failed_ticket > failed_before:
            lost = OSError(self.syncer.error_errno, f"not everything could be closed - {self.syncer.health.text}")
        if lost is not None:
            raise lost
