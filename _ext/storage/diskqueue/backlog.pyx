"""While anything unread is on disk, new messages go to disk too, so memory always has the older ones.

A message that came from disk keeps the ordinal of its record until it is finished or stored again, so the persisted
read position never passes a message in flight or deferred (spec nsqd-core §14 row 2).
"""

from collections import deque

from libc.stdint cimport uintptr_t

from nsqfast._ext.core.budget cimport begin_part, is_spent
from nsqfast._ext.core.clock cimport monotonic_ns, wall_ns
from nsqfast._ext.core.memory cimport account
from nsqfast._ext.core.message cimport delivery_free, delivery_new, message_drop, message_fetch, message_keep
from nsqfast._ext.storage.diskqueue.deadlines cimport Deadlines
from nsqfast._ext.storage.diskqueue.deferred cimport DiskDeferred
from nsqfast._ext.storage.diskqueue.oldest_record cimport OldestRecord
from nsqfast._ext.storage.diskqueue.position cimport DiskPosition

cdef enum:
    # Units for drafting or installing a queue's positions: the clock is read after each.
    FILE_UNITS = 64
    # Units for a queue whose cursor may be kept; usually it may not.
    CURSOR_UNITS = 4
    # How many messages ahead the processor prefetches.
    AHEAD_COUNT = 6
    # Records passed on whose copies are not synced yet: a power failure repeats them. The more is published meanwhile,
    # the longer an fsync takes; with a lower limit a backlog would grow while it is passed on.
    AHEAD_MAX = 1048576

# Time to wait until the disk has completed some of its requests.
cdef int64_t CROWDED_NS = 5000000


cdef class SyncTick(Timed):
    """Every sync-timeout it syncs what changed on disk and drafts its positions."""

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
        """Sync a part of those that are dirty now; what becomes dirty meanwhile is left to the next tick."""
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
                return self.timers.arm(self, now_ns + 1)  # the rest follows in later turns
        if self.dirty:
            self.timers.arm(self, now_ns + self.period_ns)
        return 0


cdef class SyncEnd(Timed):
    """Follows up the end of a batch of fsyncs, a part at a time: keeps cursors, makes drafts the metadata.

    Batches are handled in order; one that was not started yet is merged with the next.
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
        return 0 if self.work() else self.timers.arm(self, now_ns + 1)  # the rest follows in later turns

    cdef bint work(self) except -1:
        """False: the part ended first."""
        cdef Budget budget = begin_part()
        while self.ended:
            done_ticket, is_good = self.ended[0]
            # Cursors first: installing then sees that the metadata has to follow them.
            if not (self.keep_cursors(&budget) and self.install(done_ticket, is_good, &budget)):
                return False
            self.ended.popleft()
            self.unseen = len(self.syncer.waiting)
        return True

    cdef bint keep_cursors(self, Budget *budget) except -1:
        """Records written again before these fsyncs do not need their old places any more."""
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
        """Install the drafts made before them."""
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

    cdef int write_postponed(self) except -1:
        """Do the writes that a subclass postponed, before one that must not fail together with them."""
        return 0


cdef class Backlog:
    """`name` names the files; with `is_ephemeral` there are none, and messages that do not fit in memory are lost."""

    def __init__(self, str name, Storage storage, bint is_ephemeral):
        cdef Settings settings = storage.settings
        self.memory = Ring()
        self.memory_max = settings.mem_queue_size
        self.storage, self.disk = storage, None
        if not is_ephemeral:
            self.disk = DiskQueue(settings.data_path, name, storage.syncer, settings.max_bytes_per_file,
                                  settings.sync_every)

    def __dealloc__(self):
        # A broker that is dropped without close() must not leak: memory.pop() does not own its items.
        if self.memory is not None:
            drop_all(self.memory)

    cdef int64_t depth(self) noexcept:
        return <int64_t> self.memory.size + self.disk_depth()

    cdef int64_t disk_depth(self) noexcept:
        """Includes postponed writes: they are not on disk yet, but nothing may overtake them."""
        return 0 if self.disk is None else self.disk.reader.depth + <int64_t> self.disk.writer.later_count

    cdef bint has_disk(self) noexcept:
        """False: nothing of this outlives the process."""
        return self.disk is not None

    cdef bint is_new_on_disk(self) noexcept:
        """Whether its files do not exist yet; only if there is a disk."""
        return self.disk.position.acks is None

    cdef int64_t unwritten_count(self) noexcept:
        """Messages whose write is postponed."""
        return 0 if self.disk is None else <int64_t> self.disk.writer.later_count

    cdef DiskScan scan_disk(self, uint64_t index, int64_t file, int64_t position):
        """Return a scan of the messages on disk, from that record on; None = there are none."""
        cdef DiskQueue disk = self.disk
        return None if disk is None or disk.reader.depth == 0 else DiskScan(disk.reader, index, file, position)

    cdef uint64_t request_sync(self) except? 0:
        """Return the ticket that covers everything written so far; only if there is a disk."""
        return self.disk.writer.request_sync()

    cdef bint put(self, Message *message, bint is_wanted) except -1:
        """Keep one more reference; False if an ephemeral queue is full and nobody waits. OSError: not kept."""
        if has_room(self) or (is_wanted and self.disk is None):
            self.remember(message)
        elif self.disk is not None:
            if self.storage.settings.is_durable:
                # The OK waits for an fsync anyway, so one write serves all messages of this turn.
                self.disk.writer.append_later(message, message.attempts)
            else:
                self.disk.writer.append(message, message.attempts, False)
            self.mark_dirty()
        else:
            return False
        return True

    cdef int remember(self, Message *message) except -1:
        self.memory.push(<void *> (<uintptr_t> message | 1))
        message_keep(message)
        return 0

    cdef Delivery *defer(self, Message *message) except NULL:
        """Return a delivery to be kept outside the queue for a while; durable brokers have it on disk meanwhile."""
        cdef Delivery *delivery
        cdef uint64_t ordinal = 0
        if self.disk is not None and self.memory_max == 0:
            ordinal = self.disk.writer.append(message, message.attempts, True)
            self.mark_dirty()
        delivery = delivery_new(message)
        if delivery is NULL:
            raise MemoryError
        message_keep(message)
        delivery.ordinal = ordinal
        return delivery

    cdef int requeue(self, Delivery *delivery) except -1:
        """Append it. It is never lost: if the disk refuses it, it stays in memory, beyond the limit."""
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
        """Append it on disk and free the delivery. OSError: it is not freed."""
        self.storage.stored_count += 1
        if self.disk.writer.later_count:
            self.storage.write_postponed()
        if delivery.ordinal:
            self.disk.writer.move(delivery.ordinal, delivery.message, delivery.attempts, False)
        else:
            self.disk.writer.append(delivery.message, delivery.attempts, False)
        delivery_free(delivery)
        return self.mark_dirty()

    cdef int rewrite(self, Delivery *delivery) except -1:
        """Store the new attempts of a message that is deferred again, so that a kill does not lose them."""
        if delivery.ordinal == 0:
            return 0
        self.storage.stored_count += 1
        try:
            delivery.ordinal = self.disk.writer.move(delivery.ordinal, delivery.message, delivery.attempts, True)
        except OSError:
            return 0
        return self.mark_dirty()

    cdef DiskDeferred found_deferred(self):
        """Return those that were deferred when the broker stopped, once; None if there were none."""
        cdef Deadlines deadlines
        if self.disk is None or self.disk.deadlines is None:
            return None
        deadlines, self.disk.deadlines = self.disk.deadlines, None
        return DiskDeferred(self.disk.reader, deadlines)

    cdef Delivery *take(self) except? NULL:
        """Remove and return the oldest, or NULL."""
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
            self.mark_dirty()
        else:
            return NULL
        delivery = delivery_new(message)
        if delivery is NULL:
            raise MemoryError
        delivery.ordinal = ordinal
        return delivery

    cdef Message *read(self, uint64_t *ordinal) except? NULL:
        """Return the oldest on disk, or NULL."""
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
        """It was finished, or is stored elsewhere now."""
        if delivery.ordinal:
            self.disk.reader.ack(delivery.ordinal)
            self.mark_dirty()
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
        """Return to the state before `begin`."""
        while self.memory.size > self.mark_size:
            message_drop(<Message *> (<uintptr_t> self.memory.pop_last() & ~<uintptr_t> 1))
        return self.revoke()

    cdef uint64_t ticket(self) except? 0:
        """Return the ticket that an OK has to wait for; 0 = none."""
        if self.disk is None or not self.storage.settings.is_durable:
            return 0
        if self.disk.writer.later_count == 0:
            return self.disk.writer.request_sync()
        return self.storage.syncer.promise()

    cdef int64_t oldest(self) except -2:
        """When the older of the next in memory and on disk was published; 0 = there is none, -1 = unreadable."""
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
        disk_ns = self.head.find_timestamp_ns(self.disk.reader)
        if oldest_ns == 0 or 0 < disk_ns < oldest_ns:
            return disk_ns
        return oldest_ns

    cdef int mark_dirty(self) except -1:
        if not self.is_dirty:
            self.is_dirty = True
            self.storage.tick.add(self)
        return 0

    cdef uint64_t sync(self) except? 0:
        """Request fsyncs of data and positions; return the ticket of the latter, 0 = they did not change."""
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
            self.mark_dirty()  # the broker's health reports it; the next tick tries again
        elif self.has_failed:
            # Queues that only consume write no data whose success would be noticed.
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
            self.mark_dirty()
        return 0

    cdef int empty(self) except -1:
        self.storage.disposal.add_ring(self.memory.take_all())
        return 0 if self.disk is None else self.disk.empty()

    cdef uint64_t close_some(self, int step) except? 0:
        """Take a step of the clean stop; return the ticket to wait for."""
        return 0 if self.disk is None else self.disk.close_some(step)

    cdef int note_copies(self, uint64_t ticket) except -1:
        """Messages taken here are stored elsewhere, synced when that ticket is done."""
        return 0 if self.disk is None else self.disk.position.note_copy(ticket)

    cdef bint is_ahead(self) noexcept:
        """Whether more was passed on than should be without an fsync."""
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
        """The age of the oldest message here, without deferred ones; 0 = there is none, -1 = it is on disk and
        unreadable."""
        cdef int64_t oldest_ns = self.oldest()
        return max(wall_ns() - oldest_ns, 0) if oldest_ns > 0 else oldest_ns
