"""While anything unread is on disk, new messages go to disk too, so memory always has the older ones.

A message that came from disk keeps the ordinal of its record until it is finished or stored again, so the persisted
read position never passes a message in flight or deferred (spec nsqd-core §14 row 2).
"""

from collections import deque

from libc.stdint cimport uint32_t

from nsqfast._ext.core.budget cimport begin_part, is_spent
from nsqfast._ext.core.clock cimport monotonic_ns, wall_ns
from nsqfast._ext.core.message cimport delivery_free, delivery_new, message_drop, message_new, tries_before, tries_of
from nsqfast._ext.core.settings cimport Settings
from nsqfast._ext.storage.diskqueue.cold_reads cimport ColdReads
from nsqfast._ext.storage.diskqueue.deferred cimport HeldRecords, kept_due, was_told
from nsqfast._ext.storage.diskqueue.position cimport DiskPosition
from nsqfast._ext.storage.diskqueue.lookup cimport DiskReads
from nsqfast._ext.storage.diskqueue.reader cimport SKIPPED_MAX, DiskReader, OldestRecord
from nsqfast._ext.storage.engine cimport Store, remember, remember_again
from nsqfast._ext.storage.scan cimport AT_LIMIT, GONE, QueuePlace, Reads, Record, Scan

cdef enum:
    # Units for drafting or installing a queue's positions: the clock is read after each.
    FILE_UNITS = 64
    # Units for a queue whose cursor may be kept; usually it may not.
    CURSOR_UNITS = 4
    # Messages of a write at a start.
    STORED_COUNT = 512
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


cdef class Backlog(ChannelStore):
    """`name` names the files. `logged` is what the log has of it."""

    def __init__(self, Store store, str name, Syncer syncer, SyncTick tick, ColdReads cold, QueueLog log,
                 ReplayedQueue logged):
        cdef Settings settings = store.settings
        super().__init__(store, False)
        self.syncer, self.tick, self.log, self.logged = syncer, tick, log, logged
        self.disk = DiskQueue(settings.data_path, name, syncer, settings.max_bytes_per_file, settings.sync_every,
                              store.broker_memory, log, logged)
        if self.disk.deadlines is not None:
            self.found = DiskDeferred(self.disk.reader, self.disk.deadlines)
            self.disk.deadlines = None
        if logged is not None:
            self.restore()
        self.disk.reader.cold = cold
        self.lag = Lag(self.disk.reader)
        self.keeps_records = True

    cdef int64_t depth(self) noexcept:
        return <int64_t> self.memory.size + self.disk.reader.depth

    cdef int64_t size(self) noexcept:
        cdef DiskPosition position = self.disk.position
        cdef DiskReader reader = self.disk.reader
        if reader.depth == 0:
            return self.memory_bytes
        # A file is as large as it may be, and no more than a record larger.
        return (self.memory_bytes + (position.write_file - reader.read_file) * self.store.settings.max_bytes_per_file
                + position.write_position - reader.read_position)

    cdef bint put(self, Message *message, bint is_wanted) except -1:
        if has_room(self):
            remember(self, message)
            return True
        self.disk.writer.append(message, tries_before(message), False)
        self.mark_dirty()
        return True

    cdef int defer(self, Delivery *delivery, bint is_new, int64_t delay_ns) except -1:
        """Without memory for it a new one is on disk meanwhile; one that has a record gets another with its attempts,
        so that a kill does not lose these."""
        cdef bint is_stored = self.memory_max == 0 or (self.log is not None and self.memory.account.level > 0)
        if is_new:
            return self.store_new(delivery) if is_stored else 0
        if self.log is not None:
            self.log_return(delivery, kept_due(wall_ns() + delay_ns, delivery.is_told))
            return self.store_attempts(delivery) if is_stored and delivery.ordinal == 0 else 0
        return self.store_attempts(delivery) if delivery.ordinal else 0

    cdef int store_new(self, Delivery *delivery) except -1:
        try:
            delivery.ordinal = self.disk.writer.append(delivery.message, tries_before(delivery.message), True)
            return self.mark_dirty()
        except BaseException:
            delivery_free(delivery)
            raise

    cdef int store_attempts(self, Delivery *delivery) except -1:
        self.store.stored_count += 1
        try:
            if delivery.ordinal:
                delivery.ordinal = self.disk.writer.move(delivery.ordinal, delivery.message, tries_of(delivery), True)
            else:
                delivery.ordinal = self.disk.writer.append(delivery.message, tries_of(delivery), True)
        except OSError:
            return 0
        return self.mark_dirty()

    cdef int requeue(self, Delivery *delivery) except -1:
        delivery.owner = 0
        if self.log is not None:
            self.log_return(delivery, 0)
            if delivery.ordinal:
                # Had it another record now, a start would find the old one, too.
                remember_again(self, delivery)
                return 0
        return self.queue_again(delivery)

    cdef int requeue_as(self, Delivery *delivery, Message *message) except -1:
        cdef uint64_t ordinal = delivery.ordinal
        message_drop(delivery.message)
        delivery.message = message
        if self.log is None or not self.log.take_over(message, self.disk.reader.index_of(ordinal) if ordinal else 0,
                                                      tries_of(delivery), 0):
            return self.requeue(delivery)
        if ordinal:
            self.disk.reader.ack(ordinal)
            delivery.ordinal = 0
            self.mark_dirty()
        elif self.checkpoint is not None:
            self.checkpoint.keep(message, tries_of(delivery), 0)
        return self.queue_again(delivery)

    cdef int queue_again(self, Delivery *delivery) except -1:
        if (<int64_t> self.memory.size < self.memory_max and self.memory.account.level == 0
                and self.disk.reader.depth == 0):
            remember_again(self, delivery)
            return 0
        try:
            return self.store_record(delivery)
        except OSError:
            remember_again(self, delivery)
        return 0

    cdef int store_record(self, Delivery *delivery) except -1:
        """Append it on disk and free the delivery. OSError: it is not freed."""
        self.store.stored_count += 1
        if delivery.ordinal:
            self.disk.writer.move(delivery.ordinal, delivery.message, tries_of(delivery), False)
        else:
            self.disk.writer.append(delivery.message, tries_of(delivery), False)
        delivery_free(delivery)
        return self.mark_dirty()

    cdef bint renew(self, Delivery *delivery, bint is_deferred) except -1:
        # A delivery that a kill cuts short does not count.
        cdef uint32_t tries = tries_of(delivery) - (delivery.owner > 0)
        cdef uint64_t index = self.disk.reader.index_of(delivery.ordinal)
        cdef int64_t due_ns
        self.store.stored_count += 1
        try:
            if self.log is not None:
                self.log.log.admit(2, delivery.message.size)
            delivery.ordinal = self.disk.writer.move(delivery.ordinal, delivery.message, tries, True)
        except OSError:     # the broker's health reports it
            return False
        if self.log is not None:
            # The new record counts from the next checkpoint on, and until then the old one, or what the log says.
            due_ns = delivery.deadline_ns - monotonic_ns() + wall_ns()
            self.log.take_over(delivery.message, index, tries,
                               kept_due(due_ns, delivery.is_told) if is_deferred else 0)
        self.mark_dirty()
        return True

    # What is deferred without being in memory

    cdef bint store_deferred(self, Delivery **deliveries, size_t count) except -1:
        return self.store_group(deliveries, count, True)

    cdef bint store_group(self, Delivery **deliveries, size_t count, bint is_taken) except -1:
        """Give those a record that have none, by one write; False: the disk does not take them."""
        cdef uint64_t first = self.disk.position.written + self.disk.reader.shift
        cdef size_t i, new_count = 0
        for i in range(count):
            new_count += deliveries[i].ordinal == 0
            if self.checkpoint is not None:
                self.checkpoint.add_deferred(deliveries[i], deliveries[i].deadline_ns - monotonic_ns() + wall_ns())
        if new_count == 0:
            return True
        self.disk.writer.begin_batch()
        try:
            for i in range(count):
                if deliveries[i].ordinal == 0:
                    deliveries[i].ordinal = self.disk.writer.append(deliveries[i].message, tries_of(deliveries[i]),
                                                                    is_taken)
            self.disk.writer.end_batch()
        except OSError:     # the broker's health reports it
            for i in range(count):
                if deliveries[i].ordinal >= first:
                    deliveries[i].ordinal = 0
            return False
        self.mark_dirty()
        return True

    cdef Delivery *load(self, uint64_t ordinal, uint64_t id) except? NULL:
        cdef Message *message
        if self.lookup is None:
            self.lookup = Lookup(self.disk.reader)
            self.lookup.taker = self.taker
        message = self.lookup.find(ordinal, id)
        if message is NULL:
            return NULL
        delivery = delivery_new(self.memory.account, message)
        delivery.ordinal = ordinal
        return delivery

    cdef bint is_loading(self) noexcept:
        return self.lookup is not None and self.lookup.pending is not NULL

    cdef bint is_unfinished(self, uint64_t ordinal) noexcept:
        return self.disk.reader.is_unfinished(ordinal)

    cdef int finish_record(self, uint64_t ordinal, uint64_t id) except -1:
        if self.log is not None:
            self.log.finish(id, self.disk.reader.index_of(ordinal))
        self.disk.reader.ack(ordinal)
        return self.mark_dirty()

    cdef Delivery *next_found(self, int64_t *due_ns) except? NULL:
        """Those with a record first: what gets one after them is behind them, and the reader skips them in order."""
        cdef Delivery *delivery = self.found.next(due_ns) if self.found is not None else NULL
        if delivery is NULL and self.held is not None:
            delivery = self.held.next(due_ns)
        if delivery is NULL:
            self.found = self.held = None
            if self.logged is not None:
                delivery = self.next_logged(due_ns)
        if delivery is not NULL:
            delivery.is_told = delivery.message.is_told = was_told(due_ns[0])
        return delivery

    # What the log has of it

    cdef int log_return(self, Delivery *delivery, int64_t due_ns) except -1:
        """A message comes back. One in a file is kept by the log from now on, with its attempts, not by the file; as
        long as it has an ordinal the log had no room for it."""
        if delivery.ordinal == 0:
            if self.checkpoint is not None:
                self.checkpoint.keep(delivery.message, tries_of(delivery), due_ns)
            return self.log.give_back(delivery.message.id, tries_of(delivery), due_ns)
        if not self.log.take_over(delivery.message, self.disk.reader.index_of(delivery.ordinal), tries_of(delivery),
                                  due_ns):
            return 0
        self.disk.reader.ack(delivery.ordinal)
        delivery.ordinal = 0
        return self.mark_dirty()

    cdef int restore(self) except -1:
        """Put back what the log has, but for what is deferred."""
        cdef Delivery *delivery = self.logged.oldest
        cdef Delivery *following
        cdef Delivery *batch[STORED_COUNT]
        cdef size_t count = 0
        cdef bint is_first
        while delivery is not NULL:
            following = delivery.next
            if delivery.delivered_ns == 0:
                self.logged.unlink(delivery)
                is_first, delivery.owner = delivery.owner > 0, 0
                if (is_first and <int64_t> self.memory.size < self.memory_max) or (has_room(self) and count == 0):
                    remember_again(self, delivery)
                else:
                    batch[count] = delivery
                    count += 1
                    if count == STORED_COUNT:
                        self.store_batch(batch, count)
                        count = 0
            delivery = following
        self.held = HeldRecords(self.disk.reader, self.logged.held)
        return self.store_batch(batch, count)

    cdef int store_batch(self, Delivery **batch, size_t count) except -1:
        cdef size_t i
        cdef bint is_stored = self.store_group(batch, count, False)
        for i in range(count):
            if is_stored:
                delivery_free(batch[i])
            else:
                remember_again(self, batch[i])
        return 0

    cdef Delivery *next_logged(self, int64_t *due_ns) except? NULL:
        cdef Delivery *delivery = self.logged.take()
        if delivery is NULL:
            self.logged.clear()     # the Replay keeps it
            self.logged = None
        else:
            due_ns[0], delivery.delivered_ns, delivery.owner = delivery.delivered_ns, 0, 0
        return delivery

    cdef Delivery *read_next(self) except? NULL:
        cdef uint64_t ordinal = 0
        cdef Message *message
        cdef Delivery *delivery
        self.is_pending = False
        if self.disk.reader.depth == 0:
            return NULL
        message = self.read(&ordinal)
        if message is NULL:
            if self.disk.reader.pending is not NULL:
                self.is_pending, self.disk.reader.taker = True, self.taker
            return NULL
        self.mark_dirty()
        delivery = delivery_new(self.memory.account, message)
        delivery.ordinal = ordinal
        return delivery

    cdef Message *read(self, uint64_t *ordinal) except? NULL:
        """Return the oldest on disk, or NULL."""
        cdef Message *message
        try:
            message = self.disk.reader.pop(ordinal)
        except OSError as error:
            self.store.health.fail_reading(self.disk.position.prefix, error)
            raise
        if self.store.health.is_failing and not self.disk.reader.is_trying():
            self.store.health.was_read(self.disk.position.prefix)
        return message

    cdef int done(self, Delivery *delivery) except -1:
        if self.log is not None:
            self.log.finish(delivery.message.id, self.disk.reader.index_of(delivery.ordinal) if delivery.ordinal else 0)
        if delivery.ordinal:
            self.disk.reader.ack(delivery.ordinal)
            self.mark_dirty()
        delivery_free(delivery)
        return 0

    cdef int64_t oldest(self) except -2:
        """The older of the next in memory and on disk."""
        cdef int64_t oldest_ns = ChannelStore.oldest(self), disk_ns
        if self.disk.reader.depth == 0:
            return oldest_ns
        if self.head is None:
            self.head = OldestRecord()
        disk_ns = self.head.find_timestamp_ns(self.disk.reader)
        if oldest_ns == 0 or 0 < disk_ns < oldest_ns:
            return disk_ns
        return oldest_ns

    cdef int empty(self) except -1:
        ChannelStore.empty(self)
        if self.log is not None:
            self.log.empty()
        return self.disk.empty()

    cdef int delete(self) except -1:
        self.disk.reader.taker = None
        if self.lookup is not None:
            self.lookup.taker = None
        ChannelStore.delete(self)
        if self.log is not None:
            self.log.delete(self.disk.position.name)
        return self.disk.delete_files()

    # The put of a topic

    cdef bint needs_write(self) noexcept:
        self.mark_size = self.memory.size
        return not has_room(self)

    cdef int begin(self) except -1:
        ChannelStore.begin(self)
        return self.disk.writer.begin_batch()

    cdef int write(self) except -1:
        return self.disk.writer.write()

    cdef int confirm(self) except -1:
        ChannelStore.confirm(self)
        return self.disk.writer.confirm()

    cdef int roll_back(self) except -1:
        ChannelStore.roll_back(self)
        return self.disk.writer.revoke()

    cdef bint is_ahead(self) noexcept:
        """Whether more was passed on than should be without an fsync."""
        return self.log is None and self.disk.position.kept_behind() > AHEAD_MAX

    # A look at what is on disk

    cdef uint64_t correct_place(self, QueuePlace *place, int64_t *visible_count) except? 0:
        """Where records were counted anew, or are gone, it becomes the first that is still to be read."""
        if place.shift != self.disk.reader.shift:
            place.index = place.file = place.position = 0
            place.shift = self.disk.reader.shift
        visible_count[0] = self.disk.reader.depth
        return self.disk.position.written

    cdef Scan scan(self, QueuePlace *place, uint64_t end):
        cdef BacklogScan scan
        cdef int64_t _ = 0
        self.correct_place(place, &_)
        if self.disk.reader.depth == 0:
            return None
        scan = BacklogScan(self.disk.reader, place.index, place.file, place.position)
        if scan.first >= end:
            return None
        scan.backlog = self
        scan.end_before(end)
        return scan

    cdef Reads reads(self):
        return DiskReads(self.disk.reader)

    # What is kept of it

    cdef int mark_dirty(self) except -1:
        if not self.is_dirty:
            self.is_dirty = True
            self.tick.add(self)
        return 0

    cdef uint64_t sync(self) except? 0:
        """Request fsyncs of data and positions; return the ticket of the latter, 0 = they did not change."""
        cdef uint64_t ticket = 0
        cdef bint failed = False
        self.find_stale()
        if self.disk.position.acks is not None and not self.disk.position.acks.keep():
            self.store.health.fail("write", self.disk.position.acks.path, self.disk.position.acks.error_errno)
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
            self.store.health.note_success("write", self.disk.position.prefix, monotonic_ns())
        self.has_failed = failed
        return ticket

    cdef int find_stale(self) except -1:
        if self.taker is None or self.disk.writer.is_ending:
            return 0
        self.stale_before = self.lag.find()
        if self.stale_before:
            self.stale_size = self.lag.size
            self.tick.timers.arm(self.taker, monotonic_ns())
        return 0

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


cdef class BacklogScan(DiskScan):

    cdef size_t sort_out(self) except? 0:
        cdef DiskReader reader = self.backlog.disk.reader
        cdef size_t i, count = 0
        if self.ended == GONE and reader.next_read > self.first + <uint64_t> self.number:
            self.ended = AT_LIMIT
        if reader.position.closed or self.shift != reader.shift:
            return 0
        for i in range(self.found_count):
            if reader.is_waiting(self.found[i].index):
                self.found[count], self.found[i] = self.found[i], self.found[count]
                count += 1
        return count

    cdef int requeue(self, size_t count) except -1:
        """In one write."""
        cdef DiskQueue disk = self.backlog.disk
        cdef size_t moved = 0
        disk.writer.begin_batch()
        try:
            while moved < count:
                self.move(&self.found[moved])
                moved += 1
        finally:
            disk.writer.end_batch()
            disk.reader.depth -= <int64_t> moved
        return self.end_change(count)

    cdef int move(self, Record *record) except -1:
        cdef DiskQueue disk = self.backlog.disk
        cdef Message *message = message_new(self.backlog.memory.account, record.piece, <uint32_t> record.piece_size,
                                            record.timestamp_ns, record.id)
        if message is NULL:
            raise MemoryError
        try:
            if self.backlog.log is not None:
                self.backlog.log.log.admit(2, message.size)
                self.backlog.log.take_over(message, record.index, record.tries, 0)
            disk.writer.move(record.index + disk.reader.shift, message, record.tries, False)
        finally:
            message_drop(message)
        return 0

    cdef int finish(self, size_t count) except -1:
        cdef DiskReader reader = self.backlog.disk.reader
        cdef size_t i
        for i in range(count):
            # Where it was published to the same topic, a consumer may have read it meanwhile.
            if reader.is_waiting(self.found[i].index):
                if self.backlog.log is not None:
                    self.backlog.log.finish(self.found[i].id, self.found[i].index)
                reader.finish_waiting(self.found[i].index)
        return self.end_change(count)

    cdef int end_change(self, size_t count) except -1:
        self.backlog.disk.reader.skip_finished(SKIPPED_MAX)
        return self.backlog.mark_dirty() if count else 0
