"""While anything unread is on disk, new messages go to disk too, so memory always holds the older ones.

A message that came from disk keeps the ordinal of its record until it is finished or stored again, so the persisted
read position never passes a message in flight or deferred (spec nsqd-core §14 row 2).
"""

from collections import deque

from libc.stdint cimport uintptr_t

from nsqfast._ext.core.budget cimport begin_part, is_spent
from nsqfast._ext.core.clock cimport monotonic_ns, wall_ns
from nsqfast._ext.core.memory cimport account
from nsqfast._ext.core.message cimport delivery_free, delivery_new, message_drop, message_fetch, message_keep
from nsqfast._ext.disk.deadlines cimport Deadlines
from nsqfast._ext.disk.deferred cimport DiskDeferred
from nsqfast._ext.disk.oldest_record cimport OldestRecord
from nsqfast._ext.disk.position cimport DiskPosition

cdef enum:
    # What a queue counts for whose positions are drafted, or installed: the clock is looked at after each.
    FILE_UNITS = 64
    # What one counts for whose cursor may be kept: mostly it may not.
    CURSOR_UNITS = 4
    # Messages ahead of the one taken that the processor is told of.
    AHEAD_COUNT = 6
    # Records handed over whose copies are not synced yet: what a power failure brings again. An fsync takes longer the
    # more is published meanwhile; with fewer of them a backlog would grow while it is handed over.
    AHEAD_MAX = 1048576

# Until it is seen whether the disk has taken some of what it was asked for.
cdef int64_t CROWDED_NS = 5000000


cdef class SyncTick(Timed):
    """Every sync-timeout, what changed on disk is synced and its positions are drafted."""

    def __init__(self, Timers timers, int64_t period_ns, SyncEnd end):
        self.timers = timers
        self.period_ns = period_ns
        self.end = end
        self.dirty = deque()

    cdef int add(self, Backlog backlog) except -1:
        self.dirty.append(backlog)
        if not self.is_armed:
            self.timers.arm(self, monotonic_ns() + self.period_ns)
        return 0

    cdef int on_deadline(self, int64_t now_ns) except -1:
        """A part of those that are dirty now; what becomes so meanwhile is for the next tick."""
        cdef Budget budget = begin_part()
        cdef Backlog backlog
        if self.left == 0:
            self.left = len(self.dirty)
        while self.left:
            if self.end.syncer.is_crowded():
                return self.timers.arm(self, now_ns + CROWDED_NS)
            self.left -= 1
            backlog = self.dirty.popleft()
            backlog.is_dirty = False
            ticket = backlog.sync()
            if ticket:
                self.end.drafted.append((ticket, backlog))
            if is_spent(&budget, FILE_UNITS) and self.left:
                return self.timers.arm(self, now_ns + 1)  # in later turns
        if self.dirty:
            self.timers.arm(self, now_ns + self.period_ns)
        return 0


cdef class SyncEnd(Timed):
    """What has to follow the end of a batch of fsyncs, a part at a time: cursors are kept, drafts become metadata.

    Batches are taken in order, and one whose part of it did not begin yet is taken together with the next.
    """

    def __init__(self, Timers timers, Syncer syncer):
        self.timers = timers
        self.syncer = syncer
        self.drafted = deque()
        self.ended = deque()

    cdef int add(self, uint64_t done_ticket, bint is_good) except -1:
        """The fsyncs up to that ticket are done."""
        if len(self.ended) > 1 and self.ended[len(self.ended) - 1][1] == is_good:
            self.ended.pop()
        self.ended.append((done_ticket, is_good))
        if len(self.ended) == 1:
            self.unseen = len(self.syncer.waiting)
        return 0 if self.is_armed else self.on_deadline(monotonic_ns())

    cdef int on_deadline(self, int64_t now_ns) except -1:
        return 0 if self.work() else self.timers.arm(self, now_ns + 1)  # in later turns

    cdef bint work(self) except -1:
        """False: the part ended before that was all."""
        cdef Budget budget = begin_part()
        while self.ended:
            done_ticket, is_good = self.ended[0]
            # Cursors first: what is installed then sees that metadata has to follow them.
            if not (self.keep_cursors(&budget) and self.install(done_ticket, is_good, &budget)):
                return False
            self.ended.popleft()
            self.unseen = len(self.syncer.waiting)
        return True

    cdef bint keep_cursors(self, Budget *budget) except -1:
        """What was written again before these fsyncs needs its old place no more."""
        cdef DiskPosition disk
        cdef object waiting = self.syncer.waiting
        while self.unseen and waiting:
            self.unseen -= 1
            disk = waiting.popleft()
            if disk.synced():
                waiting.append(disk)
            if is_spent(budget, CURSOR_UNITS):
                return False
        return True

    cdef bint install(self, uint64_t done_ticket, bint is_good, Budget *budget) except -1:
        """What was drafted before them counts."""
        cdef Backlog backlog
        while self.drafted and self.drafted[0][0] <= done_ticket:
            if not self.syncer.may_close():
                return False
            backlog = self.drafted.popleft()[1]
            backlog.synced(is_good)
            if is_spent(budget, FILE_UNITS):
                return False
        return True


cdef class Storage:
    """What all backlogs of a broker share."""

    def __init__(self, Settings settings, Syncer syncer, Timers timers):
        self.settings = settings
        self.syncer = syncer
        self.timers = timers
        self.sync_end = SyncEnd(timers, syncer)
        self.tick = SyncTick(timers, settings.sync_timeout_ns, self.sync_end)
        self.disposal = Disposal(timers, syncer)
        self.unwritten = []
        self.uncounted = []

    cdef int write_batch(self) except -1:
        """Before something is written that must not fail together with what was put off."""
        if self.unwritten and self.on_mixed is not None:
            self.on_mixed()
        return 0


cdef class Backlog:
    """`name` names the files; with `is_ephemeral` there are none and what does not fit in memory is dropped."""

    def __init__(self, str name, Storage storage, bint is_ephemeral):
        cdef Settings settings = storage.settings
        self.memory = Ring()
        self.memory_max = settings.mem_queue_size
        self.storage = storage
        self.disk = None
        if not is_ephemeral:
            self.disk = DiskQueue(settings.data_path, name, storage.syncer, settings.max_bytes_per_file,
                                  settings.sync_every)

    def __dealloc__(self):
        # A broker that is torn down without close() must not leak: memory.pop() knows nothing of ownership.
        if self.memory is not None:
            drop_all(self.memory)

    cdef int64_t depth(self) noexcept:
        return <int64_t> self.memory.size + self.disk_depth()

    cdef int64_t disk_depth(self) noexcept:
        """What was put off is not there yet, but nothing may overtake it."""
        return 0 if self.disk is None else self.disk.reader.depth + <int64_t> self.disk.writer.later_count

    cdef bint has_disk(self) noexcept:
        """False: nothing of this outlives the process."""
        return self.disk is not None

    cdef bint is_new_on_disk(self) noexcept:
        """Its files have yet to be made; only where there is a disk."""
        return self.disk.position.acks is None

    cdef int64_t unwritten_count(self) noexcept:
        """Messages that wait to be written together."""
        return 0 if self.disk is None else <int64_t> self.disk.writer.later_count

    cdef DiskScan scan_disk(self):
        """A look at what waits on disk; None = nothing does."""
        return None if self.disk is None or self.disk.reader.depth == 0 else DiskScan(self.disk.reader)

    cdef uint64_t request_sync(self) except? 0:
        """The ticket that covers all that was written so far; only where there is a disk."""
        return self.disk.writer.request_sync()

    cdef bint put(self, Message *message, bint is_wanted) except -1:
        """Keep one more reference; False where an ephemeral queue is full and nobody waits. OSError: not kept."""
        if has_room(self):
            self.remember(message)
        elif self.disk is not None:
            if self.storage.settings.is_durable:
                # The OK waits for an fsync anyway, so one write serves all that come in this turn.
                self.disk.writer.append_later(message, message.attempts)
            else:
                self.disk.writer.append(message, message.attempts, False)
            self.mark()
        elif is_wanted:
            self.remember(message)
        else:
            return False
        return True

    cdef int remember(self, Message *message) except -1:
        self.memory.push(<void *> (<uintptr_t> message | 1))
        message_keep(message)
        return 0

    cdef Delivery *defer(self, Message *message) except NULL:
        """A delivery to be kept outside the queue for a while; durable brokers have it on disk meanwhile."""
        cdef Delivery *delivery
        cdef uint64_t ordinal = 0
        if self.disk is not None and self.memory_max == 0:
            ordinal = self.disk.writer.append(message, message.attempts, True)
            self.mark()
        delivery = delivery_new(message)
        if delivery is NULL:
            raise MemoryError
        message_keep(message)
        delivery.ordinal = ordinal
        return delivery

    cdef int requeue(self, Delivery *delivery) except -1:
        """To the tail. Never lost: what the disk does not take stays in memory, beyond the limit."""
        delivery.owner = 0
        if self.disk is None or (<int64_t> self.memory.size < self.memory_max and account.level == 0
                                 and self.disk.reader.depth == 0):
            self.memory.push(<void *> delivery)
            return 0
        try:
            return self.store(delivery)
        except OSError:
            self.memory.push(<void *> delivery)
        return 0

    cdef int store(self, Delivery *delivery) except -1:
        """To the tail of the disk; the delivery is used up. OSError: it is not."""
        if self.disk.writer.later_count:
            self.storage.write_batch()
        if delivery.ordinal:
            self.disk.writer.move(delivery.ordinal, delivery.message, delivery.attempts, False)
        else:
            self.disk.writer.append(delivery.message, delivery.attempts, False)
        delivery_free(delivery)
        return self.mark()

    cdef int rewrite(self, Delivery *delivery) except -1:
        """It is deferred again: its record learns of the attempts, so that a kill does not make it forget them."""
        if delivery.ordinal == 0:
            return 0
        try:
            delivery.ordinal = self.disk.writer.move(delivery.ordinal, delivery.message, delivery.attempts, True)
        except OSError:
            return 0
        return self.mark()

    cdef DiskDeferred found_deferred(self):
        """Those that were deferred when the broker was stopped, once; None if there were none."""
        cdef Deadlines deadlines
        if self.disk is None or self.disk.deadlines is None:
            return None
        deadlines, self.disk.deadlines = self.disk.deadlines, None
        return DiskDeferred(self.disk.reader, deadlines)

    cdef Delivery *take(self) except? NULL:
        """The oldest, or NULL."""
        cdef uintptr_t item
        cdef Message *message
        cdef Delivery *delivery
        cdef uint64_t ordinal = 0
        if self.memory.size:
            item = <uintptr_t> self.memory.ahead(AHEAD_COUNT)
            if item & 1:
                # In a long queue it has left the caches since it was published.
                message_fetch(<Message *> (item & ~<uintptr_t> 1))
            item = <uintptr_t> self.memory.pop()
            if not item & 1:
                return <Delivery *> item
            message = <Message *> (item & ~<uintptr_t> 1)
        elif self.disk is not None and self.disk.reader.depth:
            message = self.read(&ordinal)
            if message is NULL:
                return NULL
            self.mark()
        else:
            return NULL
        delivery = delivery_new(message)
        if delivery is NULL:
            raise MemoryError
        delivery.ordinal = ordinal
        return delivery

    cdef Message *read(self, uint64_t *ordinal) except? NULL:
        """The oldest on disk, or NULL."""
        cdef Message *message
        try:
            message = self.disk.reader.pop(ordinal)
        except OSError as error:
            self.storage.syncer.health.fail_reading(self.disk.position.prefix, error)
            raise
        if self.storage.syncer.health.is_failing:
            self.storage.syncer.health.was_read(self.disk.position.prefix)
        return message

    cdef int done(self, Delivery *delivery) except -1:
        """It was finished, or stands elsewhere now."""
        if delivery.ordinal:
            self.disk.reader.ack(delivery.ordinal)
            self.mark()
        delivery_free(delivery)
        return 0

    cdef int begin(self) except -1:
        """Gather what `put` writes to disk until `write` and `confirm`, or `take_back`."""
        self.mark_size = self.memory.size
        return 0 if self.disk is None else self.disk.writer.begin_batch()

    cdef int write(self) except -1:
        return 0 if self.disk is None else self.disk.writer.write()

    cdef int confirm(self) except -1:
        return 0 if self.disk is None else self.disk.writer.confirm()

    cdef int revoke(self) except -1:
        return 0 if self.disk is None else self.disk.writer.revoke()

    cdef int take_back(self) except -1:
        """Be as before `begin`."""
        while self.memory.size > self.mark_size:
            message_drop(<Message *> (<uintptr_t> self.memory.pop_last() & ~<uintptr_t> 1))
        return self.revoke()

    cdef uint64_t ticket(self) except? 0:
        """What an OK has to wait for; 0 = nothing."""
        if self.disk is None or not self.storage.settings.is_durable:
            return 0
        if self.disk.writer.later_count == 0:
            return self.disk.writer.request_sync()
        return self.storage.syncer.promise()

    cdef int64_t oldest(self) except -2:
        """When the earlier of the next in memory and on disk was published; 0 = there is none, -1 = unreadable."""
        cdef uintptr_t item
        cdef int64_t oldest_ns = 0, disk_ns
        if self.memory.size:
            item = <uintptr_t> self.memory.ahead(0)
            if item & 1:
                oldest_ns = (<Message *> (item & ~<uintptr_t> 1)).timestamp_ns
            else:
                oldest_ns = (<Delivery *> item).message.timestamp_ns
        if self.disk is None or self.disk.reader.depth == 0:
            return oldest_ns
        if self.head is None:
            self.head = OldestRecord()
        disk_ns = self.head.look(self.disk.reader)
        if oldest_ns == 0 or 0 < disk_ns < oldest_ns:
            return disk_ns
        return oldest_ns

    cdef int mark(self) except -1:
        if not self.is_dirty:
            self.is_dirty = True
            self.storage.tick.add(self)
        return 0

    cdef uint64_t sync(self) except? 0:
        """Ask for an fsync of data and positions; the ticket of the latter, 0 = they did not change."""
        cdef uint64_t ticket = 0
        cdef bint failed = False
        if self.disk is None:
            return 0
        if self.disk.position.acks is not None and not self.disk.position.acks.keep():
            self.storage.syncer.health.fail("write", self.disk.position.acks.path, self.disk.position.acks.error_errno)
            failed = True
        try:
            self.disk.writer.request_sync()
            ticket = self.disk.position.begin_meta()
        except OSError:
            failed = True
        if failed:
            self.mark()  # the health of the broker tells; the next tick tries again
        elif self.has_failed:
            # Consumers alone write no data that would tell.
            self.storage.syncer.health.note_success("write", self.disk.position.prefix, monotonic_ns())
        self.has_failed = failed
        return ticket

    cdef int synced(self, bint is_good) except -1:
        try:
            if is_good:
                self.disk.position.end_meta()
            else:
                self.disk.position.drop_meta()
        except OSError:
            pass
        if self.disk.position.is_meta_due():
            self.mark()
        return 0

    cdef int empty(self) except -1:
        self.storage.disposal.add_ring(self.memory.take_all())
        return 0 if self.disk is None else self.disk.empty()

    cdef uint64_t close_some(self, int step) except? 0:
        """A step of the clean stop; what has to be waited for."""
        return 0 if self.disk is None else self.disk.close_some(step)

    cdef int note_copies(self, uint64_t ticket) except -1:
        """What was taken here stands elsewhere: on disk when that ticket is done."""
        return 0 if self.disk is None else self.disk.position.note_copy(ticket)

    cdef bint is_ahead(self) noexcept:
        """More was handed over than should be without an fsync."""
        return self.disk is not None and self.disk.position.kept_behind() > AHEAD_MAX

    cdef int delete_files(self) except -1:
        self.storage.disposal.add_ring(self.memory.take_all())
        return 0 if self.disk is None else self.disk.delete_files()


cdef int drop_all(Ring memory) except -1:
    cdef uintptr_t item
    while memory.size:
        item = <uintptr_t> memory.pop()
        if item & 1:
            message_drop(<Message *> (item & ~<uintptr_t> 1))
        else:
            delivery_free(<Delivery *> item)
    return 0


cdef class Queue(Timed):

    cdef int64_t oldest(self) except -2:
        """As Backlog.oldest()."""
        return self.backlog.oldest()

    def age_ns(self):
        """For how long the oldest has been here since it was published, deferred ones aside; 0 = there is none,
        -1 = it stands on disk and cannot be read."""
        cdef int64_t oldest_ns = self.oldest()
        return max(wall_ns() - oldest_ns, 0) if oldest_ns > 0 else oldest_ns
