"""Taken within one call on the loop, so that all of it is of one moment; completed elsewhere if need be.

    Snapshot(queue, state)   references to messages in memory, and the position of the disk reader: some PEEK_SCAN_MAX
                             steps
    complete()               searches bodies, reads records, without the interpreter's lock; in a thread if needs_thread
    row(i)                   copies, one message at a time

A reference keeps a body alive while its queue goes on, and nothing else: owner and due time are copied. The thread may
drop the last reference; both sides hold the interpreter's lock when they do.
"""

from libc.stdint cimport INT64_MAX, UINT64_MAX, int64_t, uint64_t, uintptr_t
from libc.stdlib cimport free, malloc

import os

from nsqfast._ext.broker.topic cimport Topic
from nsqfast._ext.core.body_search cimport BodySearch, is_met
from nsqfast._ext.core.clock cimport monotonic_ns, now_monotonic, wall_ns
from nsqfast._ext.core.due_heap cimport Due
from nsqfast._ext.core.due_order cimport DueOrder, QueuesOrder
from nsqfast._ext.core.limits cimport (
    MESSAGE_HEADER_SIZE, PEEK_COUNT_MAX, PEEK_NEEDLE_SIZE_MAX, PEEK_OFFSET_MAX, PEEK_PIECE_SIZE_MAX,
    PEEK_READ_NS_MAX, PEEK_SCAN_MAX, PEEK_SEARCH_SIZE_MAX,
)
from nsqfast._ext.core.message cimport get_be64, id_of_record, id_to_hex, message_drop, message_fetch, message_keep
from nsqfast._ext.storage.scan cimport (
    AT_END, AT_LIMIT, DAMAGED, GONE, NO_MEMORY, RECORDS_MAX, TOO_LARGE, TOO_LATE, TOO_MANY_BYTES, TOO_MANY_RECORDS,
    UNREADABLE, Record, is_wanted,
)

cdef enum:
    # How many messages ahead the processor prefetches.
    AHEAD_COUNT = 8

# For Python.
LIMIT_MAX = PEEK_COUNT_MAX
OFFSET_MAX = PEEK_OFFSET_MAX
NEEDLE_SIZE_MAX = PEEK_NEEDLE_SIZE_MAX
PIECE_SIZE_MAX = PEEK_PIECE_SIZE_MAX
STATES = ("ready", "in_flight", "deferred")
cdef tuple PLACES = ("memory", "disk", "in_flight", "deferred")

cdef dict REMARKS = {
    DAMAGED: "a record on disk is damaged; what stands behind it is not shown",
    GONE: "a file on disk is not there any more; its messages may have been delivered meanwhile",
    TOO_MANY_BYTES: f"{PEEK_SEARCH_SIZE_MAX >> 20} MiB of bodies were searched",
    TOO_MANY_RECORDS: "too many records on disk are finished or deferred already",
    TOO_LATE: f"the disk was read for {PEEK_READ_NS_MAX // 1000000000} s",
    NO_MEMORY: "memory is short",
    TOO_LARGE: "no more bodies fit into one answer",
}


cdef class Snapshot:
    """`state` is one of STATES, for a topic only "ready"; `needle` must occur in the body, b"" occurs in all, and
    `terms` must be met (see `body_search`); what came before `since_ns` (Unix time; 0 = none) is left out.

    At most LIMIT_MAX messages behind at most OFFSET_MAX of that state, PIECE_SIZE_MAX bytes of each body. Instead of an
    offset ready messages can begin at a `place`, the next_place of an earlier snapshot.
    """

    def __init__(self, MessageQueue queue not None, str state, int64_t limit=20, int64_t offset=0,
                 int64_t piece_max=PEEK_PIECE_SIZE_MAX, bytes needle not None=b"", tuple place=None,
                 int64_t since_ns=0, tuple terms not None=()):
        assert self.glances is NULL and 0 < limit <= PEEK_COUNT_MAX and 0 <= offset <= PEEK_OFFSET_MAX
        assert 0 <= piece_max <= PEEK_PIECE_SIZE_MAX and len(needle) <= PEEK_NEEDLE_SIZE_MAX
        self.taken_ns, self.monotonic_ns = wall_ns(), monotonic_ns()
        self.limit, self.offset, self.search_for = limit, offset, BodySearch(needle, terms)
        self.quest.piece_max = piece_max
        self.quest.wanted = limit
        self.quest.scans = limit
        self.quest.bytes = PEEK_SEARCH_SIZE_MAX
        self.quest.room = INT64_MAX
        if place is not None:
            assert state == "ready"
            self.place, self.has_place = place_of(place), True
        self.quest.since_ns = since_ns
        self.quest.terms = self.search_for.all()
        if self.quest.terms is not NULL or since_ns:
            # Skipping one is a step in a ring, but not in what is ordered by time.
            self.quest.scans = PEEK_SCAN_MAX if state == "ready" else max(limit, PEEK_SCAN_MAX - offset)
        self.glance_max = self.quest.scans
        if since_ns and self.quest.terms is NULL and state == "ready":
            self.quest.scans = RECORDS_MAX    # on disk a body that is too old is not read
        self.scan_max = self.quest.scans
        self.glances = <Glance *> malloc(self.glance_max * sizeof(Glance))
        self.found = <uint32_t *> malloc(limit * sizeof(uint32_t))
        if self.glances is NULL or self.found is NULL:
            raise MemoryError
        self.cut_count = -1
        self.is_ready = state == "ready"
        if self.is_ready:
            self.collect_ready(queue)
        elif state == "in_flight":
            self.collect_in_flight(queue)
        else:
            assert state == "deferred"
            self.collect_deferred(queue)
        self.keep()
        if not self.needs_thread:
            self.search()

    def __dealloc__(self):
        cdef uint32_t i
        for i in range(self.kept_count):
            if self.glances[i].message is not NULL:
                message_drop(self.glances[i].message)
            free(self.glances[i].payload)
        free(self.glances)
        free(self.found)

    # -- on the loop ---------------------------------------------------------------------------------------------------

    cdef int collect_ready(self, MessageQueue queue) except -1:
        """In delivery order."""
        cdef Ring ring = queue.backlog.memory
        cdef int64_t skip = self.offset, on_disk = 0
        queue.backlog.correct_place(&self.place, &on_disk)
        if isinstance(queue, Topic):
            # Deferred ones that wait for a first channel come before all others.
            self.depth = <int64_t> (<Topic> queue).deferred.queue.size
            if not self.has_place:
                self.collect_waiting((<Topic> queue).deferred.queue.first, &skip)
            self.deferred_count = self.glance_count
        # What is about to be written is in no file yet.
        self.total = self.depth + <int64_t> ring.size + on_disk
        self.depth += queue.backlog.depth()
        self.ring_end = ring.number() + <int64_t> ring.size
        if self.has_place:
            skip = min(max(self.place.number - ring.number(), 0), <int64_t> ring.size)
        self.ring_number = ring.number() + min(skip, <int64_t> ring.size)
        self.collect_ring(ring, &skip)
        self.quest.offset = skip
        if self.glance_count < self.glance_max:
            self.scan = queue.backlog.scan(&self.place, UINT64_MAX)
        in_ring = <int64_t> (self.glance_count - self.deferred_count)
        self.has_rest = self.ring_number + in_ring < self.ring_end or (self.scan is None and on_disk > 0)
        return 0

    cdef void collect_waiting(self, Delivery *delivery, int64_t *skip) noexcept:
        """Deferred ones, from this one on; `skip` is reduced by what was skipped, here and below."""
        while delivery is not NULL and self.glance_count < self.glance_max:
            if skip[0]:
                skip[0] -= 1
            else:
                self.note(delivery.message, delivery, DEFERRED)
            delivery = delivery.next

    cdef void collect_ring(self, Ring ring, int64_t *skip) noexcept:
        cdef size_t i = min(<size_t> skip[0], ring.size)
        cdef uintptr_t item, ahead
        skip[0] -= <int64_t> i
        while i < ring.size and self.glance_count < self.glance_max:
            ahead = <uintptr_t> ring.ahead(i + AHEAD_COUNT)
            if ahead & 1:
                message_fetch(<Message *> (ahead & ~<uintptr_t> 1))
            item = <uintptr_t> ring.ahead(i)
            if item & 1:
                self.note(<Message *> (item & ~<uintptr_t> 1), NULL, IN_MEMORY)
            else:
                self.note((<Delivery *> item).message, <Delivery *> item, IN_MEMORY)
            i += 1

    cdef int collect_in_flight(self, Channel channel) except -1:
        """Those that time out first come first."""
        cdef Delivery *delivery
        cdef QueuesOrder order = QueuesOrder(channel.in_flight_queues(), channel.store.broker_memory)
        cdef int64_t skip = self.offset
        self.depth = self.total = <int64_t> channel.table.size
        self.members = channel.members.copy()
        while self.glance_count < self.glance_max:
            delivery = order.next()
            if delivery is NULL:
                break
            if skip:
                skip -= 1
            else:
                self.note(delivery.message, delivery, IN_FLIGHT)
        return 0

    cdef int collect_deferred(self, Channel channel) except -1:
        """In the order in which they will be queued."""
        cdef Delivery *delivery
        cdef DueOrder order = DueOrder(channel.deferred), stored = DueOrder(None, channel.stored.heap)
        cdef int64_t skip = self.offset, index
        cdef Due *due
        self.depth = self.total = channel.deferred_count
        while self.glance_count < self.glance_max:
            if stored.deadline_ns() < order.deadline_ns():
                index = stored.next_index()
                due = &channel.stored.heap.entries[index]
                if not channel.backlog.is_unfinished(due.ordinal):
                    continue
                delivery = NULL
            else:
                delivery = <Delivery *> order.next()
                if delivery is NULL:
                    break
            if skip:
                skip -= 1
            elif delivery is NULL:
                self.note_stored(channel, due)
            else:
                self.note(delivery.message, delivery, DEFERRED)
        return 0

    cdef int note_stored(self, Channel channel, const Due *due) except -1:
        cdef Glance *glance = &self.glances[self.glance_count]
        if self.reads is None:
            self.reads = channel.backlog.reads()
        glance.number = self.reads_count
        if self.reads.add(due.ordinal):
            self.reads_count += 1
            glance.message, glance.payload = NULL, NULL
            glance.due_ns, glance.owner, glance.where = due.deadline_ns, 0, DEFERRED
            glance.attempts, glance.failures = due.attempts, due.failures
            self.glance_count += 1
        return 0

    cdef void note(self, Message *message, Delivery *delivery, Where where) noexcept:
        cdef Glance *glance = &self.glances[self.glance_count]
        glance.message, glance.payload = message, NULL
        glance.due_ns = glance.owner = 0
        glance.where = where
        if delivery is NULL:
            glance.attempts, glance.failures = message.attempts, message.failures
        else:
            glance.attempts, glance.failures = delivery.attempts, delivery.failures
            if where == IN_FLIGHT or where == DEFERRED:
                glance.due_ns, glance.owner = delivery.deadline_ns, delivery.owner
        self.glance_count += 1

    cdef void keep(self) noexcept:
        """Take a reference to each. They are scattered over memory: one pass takes less time than one by one."""
        cdef uint32_t i
        for i in range(self.glance_count):
            if i + AHEAD_COUNT < self.glance_count and self.glances[i + AHEAD_COUNT].message is not NULL:
                message_fetch(self.glances[i + AHEAD_COUNT].message)
            if self.glances[i].message is not NULL:
                message_keep(self.glances[i].message)
        self.kept_count = self.glance_count

    # -- anywhere ------------------------------------------------------------------------------------------------------

    @property
    def needs_thread(self):
        """Whether bodies must be searched or the disk must be read; else it is complete already."""
        return self.quest.terms is not NULL or self.scan is not None or self.reads is not None

    def complete(self):
        """Call it once, and only if needs_thread."""
        assert self.scanned == 0
        with nogil:
            self.search()

    cdef void search(self) noexcept nogil:
        cdef Quest *quest = &self.quest
        cdef bint is_found
        cdef uint32_t i
        self.ended = AT_LIMIT
        for i in range(self.glance_count):
            if quest.wanted == 0:
                break
            is_found = self.is_found(&self.glances[i])
            if self.ended == TOO_MANY_BYTES:
                break
            quest.scans -= 1
            if is_found:
                self.found[self.found_count] = i
                self.found_count += 1
                quest.wanted -= 1
            self.examined_count = i + 1
        if self.scan is not None and self.ended == AT_LIMIT:
            quest.until_ns = now_monotonic() + PEEK_READ_NS_MAX
            self.scan.run(quest)
            self.ended = self.scan.ended
        self.scanned = self.scan_max - quest.scans

    cdef bint is_found(self, Glance *glance) noexcept nogil:
        """Whether it is one of those that are looked for; what is on disk is read."""
        cdef Quest *quest = &self.quest
        cdef const char *body
        cdef size_t size
        cdef bint is_found
        if quest.terms is not NULL and quest.bytes <= 0:
            self.ended = TOO_MANY_BYTES
            return False
        if glance.message is not NULL:
            body, size = glance.message.body, glance.message.size
            is_found = is_wanted(quest, glance.message.id, glance.message.timestamp_ns)
        else:
            glance.payload = self.reads.read(glance.number, &glance.payload_size)
            if glance.payload is NULL:
                return False    # it is not deferred any more
            body, size = glance.payload + MESSAGE_HEADER_SIZE, glance.payload_size - MESSAGE_HEADER_SIZE
            is_found = is_wanted(quest, id_of_record(glance.payload), <int64_t> get_be64(glance.payload))
        if is_found and quest.terms is not NULL:
            quest.bytes -= <int64_t> size
            is_found = is_met(quest.terms, body, size)
        if not is_found:
            free(glance.payload)
            glance.payload = NULL
        return is_found

    # -- what is seen --------------------------------------------------------------------------------------------------

    @property
    def is_complete(self):
        """Whether nothing of that state is behind what was examined."""
        if self.ended != AT_LIMIT or not self.has_place:
            return self.ended == AT_END or (self.ended == AT_LIMIT and self.offset + self.scanned >= self.total)
        return not self.has_rest and self.examined_count == self.glance_count and (
            self.scan is None or self.scan.has_all())

    @property
    def next_offset(self):
        """Where to continue, or None: everything was examined, or nothing further can be."""
        cdef int64_t next_offset = self.offset + self.scanned
        can_go_on = self.ended in (AT_LIMIT, TOO_MANY_BYTES, TOO_LATE, TOO_LARGE) and self.scanned > 0
        is_over = self.has_place or self.is_complete or next_offset > PEEK_OFFSET_MAX
        return next_offset if can_go_on and not is_over else None

    @property
    def next_place(self):
        """Where ready messages go on, however many came before, or None: as next_offset."""
        cdef QueuePlace place = self.place
        if not self.is_ready or self.is_complete or self.examined_count < self.deferred_count:
            return None
        if self.ended not in (AT_LIMIT, TOO_MANY_BYTES, TOO_MANY_RECORDS, TOO_LATE, TOO_LARGE):
            return None
        place.number = self.ring_number + self.examined_count - self.deferred_count
        if self.scan is not None and self.examined_count == self.glance_count and self.cut_count != 0:
            self.scan.go_behind(&self.scan.found[self.cut_count - 1] if self.cut_count > 0 else NULL, &place)
        return tuple_of(&place)

    @property
    def remark(self):
        """Why it ended early; None if it did not."""
        if self.ended == UNREADABLE:
            return f"a file on disk cannot be read: {os.strerror(self.scan.error).lower()}"
        if self.ended == AT_LIMIT and self.quest.wanted and not self.is_complete:
            return f"{self.scanned} messages were looked at"
        return REMARKS.get(self.ended)

    def __len__(self):
        return self.found_count + (0 if self.scan is None else self.scan.found_count)

    def ids(self):
        """Of all rows."""
        cdef size_t i
        cdef Glance *glance
        found = []
        for i in range(self.found_count):
            glance = &self.glances[self.found[i]]
            found.append(hex_of(id_of_record(glance.payload) if glance.message is NULL else glance.message.id))
        for i in range(0 if self.scan is None else self.scan.found_count):
            found.append(hex_of(self.scan.found[i].id))
        return found

    def row(self, size_t index):
        """id, timestamp_ns, attempts, failures, size, where, due_ns (Unix time) and consumer (or None), piece of the
        body."""
        if index < self.found_count:
            return self.row_of_glance(&self.glances[self.found[index]])
        if self.scan is None or index - self.found_count >= self.scan.found_count:
            raise IndexError(index)
        return self.row_of_record(index - self.found_count)

    def keep_first(self, size_t count):
        """Show only so many rows, at least one; the others are left to the next snapshot."""
        assert 0 < count < <size_t> len(self)
        self.cut_count = max(<int64_t> count - <int64_t> self.found_count, 0)
        if self.cut_count == 0:
            self.scanned = self.examined_count = self.found[count - 1] + 1
        else:
            self.scanned = self.scan_max - self.scan.found[self.cut_count - 1].scans_left
        self.ended = TOO_LARGE

    cdef dict row_of_glance(self, Glance *glance):
        cdef Message *message = glance.message
        cdef const char *body = glance.payload + MESSAGE_HEADER_SIZE if message is NULL else message.body
        cdef size_t size = glance.payload_size - MESSAGE_HEADER_SIZE if message is NULL else message.size
        cdef size_t piece_size = min(size, self.quest.piece_max)
        return {
            "id": hex_of(id_of_record(glance.payload) if message is NULL else message.id),
            "timestamp_ns": <int64_t> get_be64(glance.payload) if message is NULL else message.timestamp_ns,
            "attempts": glance.attempts,
            "failures": glance.failures,
            "size": size,
            "where": PLACES[glance.where],
            "due_ns": glance.due_ns - self.monotonic_ns + self.taken_ns if glance.due_ns else None,
            "consumer": self.members.get(glance.owner) if glance.owner else None,
            "piece": body[:piece_size],
        }

    cdef dict row_of_record(self, size_t index):
        cdef Record *record = &self.scan.found[index]
        return {
            "id": hex_of(record.id),
            "timestamp_ns": record.timestamp_ns,
            "attempts": record.tries & 0xffff,
            "failures": record.tries >> 16,
            "size": record.size,
            "where": PLACES[<int> ON_DISK],
            "due_ns": None,
            "consumer": None,
            "piece": record.piece[:record.piece_size],
        }


cdef QueuePlace place_of(tuple numbers) except *:
    number, index, file, position, shift = numbers[:5]
    return QueuePlace(number, index, file, position, shift)


cdef tuple tuple_of(const QueuePlace *place):
    return place.number, place.index, place.file, place.position, place.shift


cdef str hex_of(uint64_t id):
    cdef char text[16]
    id_to_hex(id, text)
    return text[:16].decode("ascii")
