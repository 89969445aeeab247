"""Nothing is searched for an id or a content by delivery, and nothing is kept for it. So an operator's command examines
messages one after the other, a part in each call, while the channel goes on.

    ready        by the numbers of the ring, and those on disk by a scan in another thread; what comes later is left
    in flight    by ids copied from the table; a message is where it was if the table still has it
    deferred     by pointers copied from the heap: deliveries are pinned meanwhile (see `message`), so that each can be
                 followed, even one that was freed, to see whether the heap still has it

What moves is published before its old place is given up, so a kill leaves one or both. After a power failure the old
place counts until the copies are synced (see `position`).
"""

from libc.stdint cimport INT32_MAX, INT64_MAX, int64_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcpy

from nsqfast._ext.broker.consumer cimport Consumer
from nsqfast._ext.core.body_search cimport BodySearch, is_met
from nsqfast._ext.core.in_flight cimport Entry
from nsqfast._ext.broker.snapshot cimport place_of, tuple_of
from nsqfast._ext.broker.stored_deferrals cimport AWAITED, READ, Recall
from nsqfast._ext.core.budget cimport begin_part, is_spent
from nsqfast._ext.core.clock cimport now_monotonic
from nsqfast._ext.core.due_heap cimport Due
from nsqfast._ext.core.heap cimport HeapNode
from nsqfast._ext.core.limits cimport PEEK_COUNT_MAX, PEEK_NEEDLE_SIZE_MAX, PEEK_SCAN_MAX, PEEK_SEARCH_SIZE_MAX
from nsqfast._ext.core.memory cimport account_of, charge, leave_account
from nsqfast._ext.core.message cimport (
    delivery_free, delivery_new, free_pinned, id_from_hex, pin_deliveries, prefetch, put_be32, unpin_deliveries,
)
from nsqfast._ext.core.ring cimport Ring
from nsqfast._ext.storage.scan cimport AT_END, DAMAGED, GONE, NO_MEMORY, UNREADABLE, is_wanted

from nsqfast.wire.refusals import NotTakenError

cdef enum:
    # Messages that one part may change, and bytes of their bodies that it may copy; the last may take more.
    PICKED_MAX = 1024
    COPIES_SIZE = 1048576
    # Deliveries that one part frees.
    FREED_MAX = 8192
    # Messages on disk that one scan examines.
    SCANNED_MAX = 1048576
    # How many messages ahead the processor prefetches; for deliveries, twice as many.
    AHEAD_COUNT = 16

# How long one scan may take.
cdef int64_t SCAN_NS = 200000000

# For Python.
IDS_MAX = PEEK_COUNT_MAX
ACTIONS = ("requeue", "drop", "copy", "move")

cdef dict REMARKS = {
    DAMAGED: "a record on disk is damaged; what stands behind it was not examined",
    GONE: "a file on disk is not there any more",
    UNREADABLE: "a file on disk cannot be read",
    NO_MEMORY: "memory is short",
}


cdef class Picker:
    """Of the messages in that state, those with one of the ids, with `needle` in the body, and what else it must have
    by `terms` (see `body_search`), that came at `since_ns` (Unix time; 0 = ever) or later. ValueError: not an id.

    Ready messages begin at `place`, the next_place of a snapshot or a picker. With ids the search ends behind
    PEEK_SCAN_MAX messages.

        while not picker.is_over:
            if picker.must_wait: wait for a while
            if picker.needs_thread: picker.search(), in a thread
            picker.go_on(), and let others go on
    """

    def __init__(self, Channel channel not None, str state, str action, Topic target=None, tuple ids=(),
                 bytes needle not None=b"", tuple place=None, int64_t since_ns=0, tuple terms not None=()):
        cdef Py_ssize_t i
        cdef bytes id
        assert self.picked is NULL and len(ids) <= PEEK_COUNT_MAX and len(needle) <= PEEK_NEEDLE_SIZE_MAX
        self.account = account_of(channel.store.broker_memory)
        self.channel, self.target = channel, target
        self.action = <Action> <int> ACTIONS.index(action)
        assert (target is not None) == (self.action == COPY or self.action == MOVE)
        for i, id in enumerate(ids):
            if len(id) != 16 or not id_from_hex(id, &self.ids[i]):
                raise ValueError("an id has 16 lower-case hex digits")
        self.search_for = BodySearch(needle, terms)
        self.quest.ids, self.quest.id_count = self.ids, len(ids)
        self.quest.since_ns = since_ns
        self.quest.terms = self.search_for.all()
        self.picked = <Delivery **> malloc(PICKED_MAX * sizeof(Delivery *))
        if self.picked is NULL:
            raise MemoryError
        self.phase = IN_MEMORY if state == "ready" else HELD
        if self.phase == IN_MEMORY:
            self.begin(place)
            return
        assert state == "deferred" or state == "in_flight"
        self.suspects = <Delivery **> malloc((max(channel.deferred.size, channel.table.size) + 1) * sizeof(Delivery *))
        if self.suspects is NULL:
            raise MemoryError
        pin_deliveries(self.account)
        self.is_pinning = True
        if state == "deferred":
            self.note_deferred()
        else:
            self.note_in_flight()

    def __dealloc__(self):
        if self.is_pinning:
            unpin_deliveries(self.account)
        if self.account is not NULL:
            free_pinned(self.account, INT64_MAX)
        leave_account(self.account, <int64_t> self.copies_capacity)
        free(self.suspects)
        free(self.suspect_ids)
        free(self.picked)
        free(self.copies)

    cdef int begin(self, tuple place) except -1:
        cdef Ring memory = self.channel.backlog.memory
        cdef int64_t _ = 0
        if place is None:
            place = memory.number(), 0, 0, 0, 0, 0, 0
        self.place = place_of(place)
        self.number_end, self.index_end = place[5], place[6]
        if self.number_end == 0 and self.index_end == 0:
            self.number_end = memory.number() + <int64_t> memory.size
            self.index_end = self.channel.backlog.correct_place(&self.place, &_)
        return 0

    cdef int note_deferred(self) except -1:
        self.is_deferred = True
        self.suspect_count = self.channel.deferred.size
        if self.suspect_count:
            memcpy(self.suspects, self.channel.deferred.nodes, self.suspect_count * sizeof(Delivery *))
        return 0

    cdef int note_in_flight(self) except -1:
        cdef Entry *entry
        cdef size_t i
        self.suspect_ids = <uint64_t *> malloc((self.channel.table.size + 1) * sizeof(uint64_t))
        if self.suspect_ids is NULL:
            raise MemoryError
        for i in range(self.channel.table.capacity):
            entry = &self.channel.table.entries[i]
            if entry.delivery is not NULL:
                self.suspects[self.suspect_count] = entry.delivery
                self.suspect_ids[self.suspect_count] = entry.id
                self.suspect_count += 1
        return 0

    @property
    def is_over(self):
        return self.phase == OVER

    @property
    def must_wait(self):
        """Whether the commit log is behind: it would not have room for what is changed now."""
        return self.channel.store.must_wait()

    @property
    def needs_thread(self):
        return self.phase == SEARCHING

    @property
    def place_after(self):
        """Where to go on with ready messages that are left; None = nothing is left."""
        return None if self.phase >= HELD else (*tuple_of(&self.place), self.number_end, self.index_end)

    @property
    def remark(self):
        """Why it ended early; None if it did not."""
        return REMARKS.get(self.ended)

    def search(self):
        """Search the disk, without the interpreter's lock."""
        assert self.phase == SEARCHING
        with nogil:
            self.quest.until_ns = now_monotonic() + SCAN_NS
            self.scan.run(&self.quest)

    def go_on(self):
        """Do a part. NotTakenError: the copies of this part were not taken, and what it picked is where it was, or
        queued again."""
        try:
            self.do_part()
        except BaseException:   # what was picked is in no queue, whatever went wrong
            self.put_back()
            raise
        if self.quest.id_count and self.phase != FREEING and (
                self.changed >= <int64_t> self.quest.id_count
                or (self.phase < HELD and self.examined >= PEEK_SCAN_MAX)):
            self.phase = OVER

    cdef int do_part(self) except -1:
        cdef Budget budget = begin_part()
        if self.channel.exiting:
            self.phase = OVER
        elif self.phase == IN_MEMORY:
            self.pick_memory(&budget)
        elif self.phase == HELD:
            self.pick_held(&budget)
        elif self.phase == FREEING:
            if free_pinned(self.account, FREED_MAX):
                self.phase = STORED if self.is_deferred else OVER
                self.stored_left = self.channel.stored.heap.size
        elif self.phase == STORED:
            self.pick_stored(&budget)
        elif self.phase == SEARCHING:
            self.end_scan()
        elif self.phase == ON_DISK:
            self.start_scan()
        return 0

    cdef bint is_chosen(self, Message *message) noexcept:
        self.examined += 1
        return is_wanted(&self.quest, message.id, message.timestamp_ns) and (
            self.quest.terms is NULL or is_met(self.quest.terms, message.body, message.size))

    cdef bint is_full(self) noexcept:
        return self.picked_count == PICKED_MAX or self.copy_count == PICKED_MAX or self.copies_size >= COPIES_SIZE

    cdef int pick_memory(self, Budget *budget) except -1:
        cdef Ring ring = self.channel.backlog.memory
        cdef int64_t first = ring.number()
        cdef size_t item, begin = <size_t> max(self.place.number - first, 0), i = begin
        cdef size_t end = <size_t> min(max(self.number_end - first, 0), <int64_t> ring.size)
        cdef int units = 0, picked = self.picked_count
        if self.quest.id_count:
            end = min(end, begin + <size_t> max(PEEK_SCAN_MAX - self.examined, 0))
        try:
            while i < end and not self.is_full() and not is_spent(budget, units):
                item = <size_t> ring.ahead(i)
                if item & 1:
                    units = self.pick_item(i, <Message *> (item & ~<size_t> 1), NULL)
                else:
                    units = self.pick_item(i, (<Delivery *> item).message, <Delivery *> item)
                i += 1
        finally:
            ring.close_gaps(begin, i)
            if self.picked_count > picked and self.channel.backlog.checkpoint is not None:
                self.channel.backlog.checkpoint.has_moved = True
        self.place.number = max(first + <int64_t> i, self.place.number)
        if i >= end:
            self.phase = ON_DISK
        return self.end_part()

    cdef int pick_item(self, size_t i, Message *message, Delivery *delivery) except -1:
        """Examine the item of the ring, and take it out if it is one of those; return the units that took."""
        cdef int units = 1 + <int> (message.size >> 10)
        if not self.is_chosen(message):
            return units
        if self.target is not None:
            self.add_copy(message.body, message.size)
        if self.action == COPY:
            return units
        if delivery is NULL:
            delivery = delivery_new(self.account, message)
        self.channel.backlog.memory.take_out(i)
        self.channel.backlog.memory_bytes -= message.size
        self.pick(delivery)
        return units

    cdef void pick(self, Delivery *delivery) noexcept:
        self.picked[self.picked_count] = delivery
        self.picked_count += 1

    cdef int pick_held(self, Budget *budget) except -1:
        cdef Delivery *delivery
        cdef size_t i = self.seen_count
        cdef int units
        while i < self.suspect_count and not self.is_full():
            if i + 2 * AHEAD_COUNT < self.suspect_count:
                prefetch(self.suspects[i + 2 * AHEAD_COUNT])
                prefetch(self.suspects[i + AHEAD_COUNT].message)
            delivery = self.suspects[i]
            i += 1
            units = 1
            if self.is_held(i - 1):
                units += <int> (delivery.message.size >> 10)
                if self.is_chosen(delivery.message):
                    self.take_held(delivery)
            if is_spent(budget, units):
                break
        self.seen_count = i
        if i == self.suspect_count:
            unpin_deliveries(self.account)
            self.is_pinning, self.phase = False, FREEING
        self.end_part()
        return self.channel.pump()

    cdef int pick_stored(self, Budget *budget) except -1:
        cdef int units = 1
        self.stored_left = min(self.stored_left, self.channel.stored.heap.size)
        while self.stored_left and units >= 0 and not self.is_full():
            self.stored_left -= 1
            units = self.take_stored()
            if is_spent(budget, units):
                break
        if self.stored_left == 0:
            self.phase = OVER
        self.end_part()
        return self.channel.pump()

    cdef int take_stored(self) except -2:
        """Examine the entry that comes next, and take it if it is one of those; return the units that took, -1: a disk
        has to answer first."""
        cdef Due due = self.channel.stored.heap.entries[self.stored_left]
        cdef Delivery *delivery = NULL
        cdef Recall recall
        cdef int units
        if self.quest.id_count and not is_wanted(&self.quest, due.id, INT64_MAX):
            self.examined += 1
            return 1
        recall = self.channel.stored.load(self.stored_left, &delivery)
        if recall == AWAITED:
            self.stored_left += 1
            return -1
        if recall != READ:
            return 1
        units = 32 + <int> (delivery.message.size >> 10)
        if not self.is_chosen(delivery.message):
            delivery_free(delivery)
            return units
        if self.target is not None:
            self.add_copy(delivery.message.body, delivery.message.size)
        if self.action == COPY:
            delivery_free(delivery)
            return units
        self.channel.stored.remove_at(self.stored_left)
        if self.stored_left < self.channel.stored.heap.size:
            self.stored_left += 1   # another one has come to this place, perhaps from before it
        self.pick(delivery)
        return units

    cdef bint is_held(self, size_t i) noexcept:
        """Whether it is still deferred in this channel, or in flight to one of its consumers."""
        cdef Delivery *delivery = self.suspects[i]
        cdef Entry *entry
        if self.is_deferred:
            return delivery.heap_index < self.channel.deferred.size and (
                self.channel.deferred.nodes[delivery.heap_index] is <HeapNode *> delivery)
        entry = self.channel.table.find(self.suspect_ids[i], delivery.owner)
        return entry is not NULL and entry.delivery is delivery and delivery.owner in self.channel.members

    cdef int take_held(self, Delivery *delivery) except -1:
        cdef Consumer consumer
        if self.target is not None:
            self.add_copy(delivery.message.body, delivery.message.size)
        if self.action == COPY:
            return 0
        if self.is_deferred:
            self.channel.deferred.remove(<HeapNode *> delivery)
        else:
            consumer = self.channel.members[delivery.owner]
            self.channel.remove(consumer, delivery)
            self.channel.add_ready(consumer)
        self.pick(delivery)
        return 0

    cdef int add_copy(self, const char *body, size_t size) except -1:
        cdef size_t capacity = self.copies_capacity or COPIES_SIZE
        cdef char *copies
        while capacity < self.copies_size + 4 + size:
            capacity *= 2
        if capacity != self.copies_capacity:
            copies = <char *> realloc(self.copies, capacity)
            if copies is NULL:
                raise MemoryError
            charge(self.account, <int64_t> (capacity - self.copies_capacity))
            self.copies, self.copies_capacity = copies, capacity
        put_be32(self.copies + self.copies_size, <uint32_t> size)
        memcpy(self.copies + self.copies_size + 4, body, size)
        self.copies_size += 4 + size
        self.copy_count += 1
        return 0

    cdef int end_part(self) except -1:
        """Publish the copies; what was picked goes its way, or back if they are not taken."""
        cdef int i, count, copied = self.copy_count
        self.publish()
        count, self.picked_count = self.picked_count, 0
        self.changed += copied if self.action == COPY else count
        for i in range(count):
            if self.action == REQUEUE and self.is_deferred:
                self.channel.queue_due(self.picked[i])
            elif self.action == REQUEUE:
                self.channel.backlog.requeue(self.picked[i])
            else:
                self.channel.backlog.done(self.picked[i])
        return 0

    cdef int publish(self) except -1:
        cdef int count = self.copy_count
        cdef size_t size = self.copies_size
        if count == 0:
            return 0
        self.copy_count = self.copies_size = 0
        self.ticket = max(self.ticket, self.target.publish_many(self.copies, size, count))
        return 0 if self.action == COPY else self.target.store.note_copies(self.channel.backlog, None)

    cdef int put_back(self) except -1:
        cdef int i, count
        self.copy_count = self.copies_size = 0
        count, self.picked_count = self.picked_count, 0
        for i in range(count):
            if self.is_deferred:
                self.channel.defer_again(self.picked[i])
            else:
                self.channel.backlog.requeue(self.picked[i])
        return 0

    # -- ready messages on disk ----------------------------------------------------------------------------------------

    cdef int start_scan(self) except -1:
        self.scan = self.channel.backlog.scan(&self.place, self.index_end)
        if self.scan is None:
            self.phase = OVER
            return 0
        self.scan_max = max(PEEK_SCAN_MAX - self.examined, 1) if self.quest.id_count else SCANNED_MAX
        self.quest.wanted, self.quest.scans = PICKED_MAX, self.scan_max
        self.quest.bytes, self.quest.room = PEEK_SEARCH_SIZE_MAX, COPIES_SIZE
        self.quest.piece_max = 0 if self.action == DROP else INT32_MAX
        self.phase = SEARCHING
        return 0

    cdef int end_scan(self) except -1:
        """Change what the scan found, as far as it still waits."""
        self.phase = ON_DISK
        self.change_records()
        self.examined += self.scan_max - self.quest.scans
        self.scan.go_behind(NULL, &self.place)
        if self.scan.ended in REMARKS:
            self.ended, self.phase = self.scan.ended, OVER
        elif self.scan.ended == AT_END:
            self.phase = OVER
        return 0

    cdef int change_records(self) except -1:
        cdef size_t i, count = self.scan.sort_out()
        for i in range(count if self.target is not None else 0):
            self.add_copy(self.scan.found[i].piece, self.scan.found[i].piece_size)
        if self.action == REQUEUE:
            try:
                self.scan.requeue(count)
            except OSError as error:
                raise NotTakenError(error.strerror or str(error)) from None
        self.publish()
        self.changed += <int64_t> count
        return self.scan.finish(count) if self.action == DROP or self.action == MOVE else 0
