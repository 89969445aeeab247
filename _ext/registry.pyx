"""Python is entered here per topic, per client, per turn; never per message."""

import logging

from nsqfast._ext.backlog cimport Queue
from nsqfast._ext.clock cimport monotonic_ns
from nsqfast._ext.message cimport release_slabs, slabs_kept

log = logging.getLogger("nsqd")

cdef int64_t LOOK_NS = 30000

cdef enum:
    # A client that waits for its answer before it sends again is back within some microseconds. To sleep until then and
    # be woken costs more than to look for it; where nothing came so many times, one look in so many is left.
    LOOK_MISS_MAX = 8
    LOOK_LEFT_OUT_MAX = 64
    # More than some answers is a turn whose work is worth a wake-up, for clients that need the processor themselves.
    LOOK_SIZE_MAX = 2048


cdef enum:
    # Empty slabs (of 1 MiB) that a broker keeps for good.
    KEPT_MIN = 32
    # Of those beyond, one in so many is given back at each step: half of them in 11 s.
    RELEASE_SHARE = 64
    # At once; each takes some 30 us.
    RELEASE_MAX = 64

cdef int64_t RELEASE_STEP_NS = 250000000


cdef class Release(Timed):
    """Gives back, little by little, what drained queues have left."""

    def __init__(self, Timers timers):
        self.timers = timers

    cdef int look(self) except -1:
        if slabs_kept() > KEPT_MIN and not self.is_armed:
            self.timers.arm(self, monotonic_ns() + RELEASE_STEP_NS)
        return 0

    cdef int on_deadline(self, int64_t now_ns) except -1:
        cdef uint32_t kept = slabs_kept()
        if kept > KEPT_MIN:
            release_slabs(min(RELEASE_MAX, (kept - KEPT_MIN + RELEASE_SHARE - 1) // RELEASE_SHARE))
        return self.look()


cdef class Registry:
    """`options` carries the fields of Settings and those that IDENTIFY answers with."""

    def __init__(self, object options):
        self.settings = Settings(options)
        self.timers = Timers()
        self.syncer = Syncer()
        self.syncer.on_pending = self.ask_sync
        self.storage = Storage(self.settings, self.syncer, self.timers)
        self.topic_by_name = {}
        self.clients = set()
        self.written = []
        self.waiting = set()
        self.callbacks = []
        self.release = Release(self.timers)

    # -- topics --------------------------------------------------------------------------------------------------------

    def topic(self, str name):
        """The topic of that (valid) name, created if need be."""
        cdef Topic topic = self.topic_by_name.get(name)
        if topic is None:
            topic = Topic(name, self.storage, self.changed, self.last_left)
            topic.exiting = self.closing
            self.topic_by_name[name] = topic
            log.info("TOPIC(%s): created", name)
            self.changed("topic+", name, None)
        return topic

    def find_topic(self, str name):
        """The topic of that name, or None."""
        return self.topic_by_name.get(name)

    def topics(self):
        """All topics, by name."""
        return [self.topic_by_name[name] for name in sorted(self.topic_by_name)]

    def delete_topic(self, str name):
        """With all its channels, messages and files; KeyError if there is none."""
        cdef Topic topic = self.topic_by_name.pop(name)
        log.info("TOPIC(%s): deleting", name)
        topic.delete()
        self.changed("topic-", name, None)

    def last_left(self, str name):
        """An ephemeral topic has no channel any more."""
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

    def add_session(self, Consumer session):
        self.clients.add(session)

    def remove_session(self, Consumer session):
        self.clients.discard(session)
        self.waiting.discard(session)

    def sessions(self):
        """All clients that are connected over TCP."""
        return list(self.clients)

    # -- one turn of the loop ------------------------------------------------------------------------------------------

    cdef int want_flush(self, Consumer consumer) except -1:
        self.written.append(consumer)
        return self.ask_turn()

    cdef int ask_turn(self) except -1:
        if not self.is_turn_asked and self.on_turn is not None:
            self.is_turn_asked = True
            self.on_turn()
        return 0

    def ask_sync(self):
        """The syncer has something to do."""
        self.ask_turn()

    def flush(self):
        """Write what this turn gathered, one write per client, and start the fsyncs it asked for."""
        cdef Consumer consumer
        cdef list written
        self.settle()
        written = self.written
        self.is_turn_asked = False
        if written:
            self.written = []
            self.written_size = 0
            for consumer in written:
                consumer.flush()
            self.begin_look()
        elif self.is_looking and monotonic_ns() >= self.look_until_ns:
            self.is_looking = False
            self.look_misses += 1
        self.syncer.kick()
        self.release.look()
        if self.syncer.is_running():
            # The processor has better things to do, and the clients wait for the disk.
            self.is_looking = False
        if self.is_looking:
            self.ask_turn()

    cdef int settle(self) except -1:
        """Write what this turn has put off. Before each start of fsyncs: the tickets that were given out cover it."""
        cdef list unsettled = self.storage.unsettled
        cdef Queue queue
        if not unsettled:
            return 0
        self.storage.unsettled = []
        lost = None
        for queue in unsettled:
            lost = queue.settle() or lost
        if lost is not None:
            self.refuse_waiting(lost.strerror or str(lost))
        for queue in unsettled:
            queue.on_settled()
        return 0

    cdef int refuse_waiting(self, str error) except -1:
        """Those of earlier tickets, too: they cannot be told apart any more, and a message twice is no message lost."""
        cdef Consumer consumer
        for consumer in list(self.waiting):
            consumer.on_durable(self.syncer.open_ticket, error)
        waiting, self.callbacks = self.callbacks, []
        for _, callback in waiting:
            callback(error)
        return 0

    cdef int begin_look(self) except -1:
        """Go on turning for a moment instead of going to sleep, if that paid of late."""
        if self.written_size > LOOK_SIZE_MAX:
            self.is_looking = False
            return 0
        if self.is_looking:
            self.look_misses = 0
        elif self.look_misses >= LOOK_MISS_MAX:
            self.looks_left_out += 1
            if self.looks_left_out < LOOK_LEFT_OUT_MAX:
                return 0
            self.looks_left_out = 0
        self.is_looking = True
        self.look_until_ns = monotonic_ns() + LOOK_NS
        return 0

    def run_timers(self, int64_t now_ns):
        """Do what is due at this monotonic time; returns the next deadline, 0 for none."""
        return self.timers.run(now_ns)

    @property
    def on_deadline(self):
        """Called with an absolute monotonic time (ns) when the earliest deadline came nearer."""
        return self.timers.on_deadline

    @on_deadline.setter
    def on_deadline(self, value):
        self.timers.on_deadline = value

    # -- durability ----------------------------------------------------------------------------------------------------

    cdef int wait_durable(self, Consumer consumer) except -1:
        self.waiting.add(consumer)
        return 0

    def when_durable(self, uint64_t ticket, callback):
        """callback(None) once all up to the ticket is on disk, callback(error text) if it did not get there."""
        if ticket <= self.syncer.done_ticket:
            callback(None)
        else:
            self.callbacks.append((ticket, callback))

    def sync_fd(self):
        """Readable when an fsync ended; then call on_synced."""
        return self.syncer.fileno()

    def on_synced(self):
        """Let everybody know whose promise is kept now."""
        cdef Consumer consumer
        self.settle()
        done, error = self.syncer.completed()
        self.storage.tick.finish(done, not error)
        for consumer in list(self.waiting):
            consumer.on_durable(done, error or None)
        waiting = self.callbacks
        self.callbacks = [item for item in waiting if item[0] > done]
        for ticket, callback in waiting:
            if ticket <= done:
                callback(error or None)

    def done_waiting(self, Consumer consumer):
        self.waiting.discard(consumer)

    def health(self):
        """OK, or NOK with the last disk error."""
        return self.syncer.health.text

    # -- the end -------------------------------------------------------------------------------------------------------

    def close(self):
        """Refuse publishes, bring everything to disk, close all files. A second call does nothing."""
        cdef Topic topic
        if self.closing:
            return
        self.settle()
        self.closing = True
        failed = None
        for topic in self.topics():
            try:
                topic.close()
            except OSError as error:
                log.error("TOPIC(%s): close - %s", topic.name, error)
                failed = error
        self.syncer.close()
        if failed is not None:
            raise failed
