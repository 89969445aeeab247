"""Repeats what the commit log says, from the last checkpoint on: the result is what each queue had.

    carried ─► what the queues had at the checkpoint ─┐
    ring ────► what happened to each since then ──────┴► ReplayedQueue ─► Backlog: into its memory, or its files again

A checkpoint looks at one queue after the other, so each has its own place in the ring from which on records count for
it. All records are repeated in memory before the first queue is opened: a crash in between changes nothing.
"""

from libc.stdint cimport INT64_MAX

from nsqfast._ext.core.guid cimport next_id, time_of
from nsqfast._ext.core.message cimport (
    delivery_free, delivery_new, get_be32, message_drop, message_keep, message_new, set_tries,
)
from nsqfast._ext.storage.diskqueue.eventlog cimport (
    BEGUN, CLOSED, DELETED, EMPTIED, FINISHED, HELD, HOLES, NAMED, NAMED_SIZE, PIECE, PIECE_HEAD_SIZE, PLACED,
    PUBLISHED, PUBLISHED_SIZE, RELEASED, RETURNED, SPREAD,
    get_number, get_place, get_tries,
)


cdef class ReplayedQueue:
    def __init__(self, str name, uint32_t number, Memory memory not None):
        self.name = name
        self.number = number
        self.memory = memory
        self.cursor = self.written = Place(1, 0, 0)
        self.clear()

    def __dealloc__(self):
        cdef Delivery *delivery = self.take()
        while delivery is not NULL:
            delivery_free(delivery)
            delivery = self.take()

    cdef int clear(self) except -1:
        """Nothing is in it."""
        cdef Delivery *delivery = self.take()
        while delivery is not NULL:
            delivery_free(delivery)
            delivery = self.take()
        self.table = InFlightTable(self.memory)
        self.finished, self.holes, self.held = [], [], bytearray()
        self.cursor = self.written
        return 0

    cdef int add(self, Message *message, uint32_t tries, int64_t due_ns, bint is_carried) except -1:
        """Keeps one more reference. One that the checkpoint has seen in a part, changed, is there already."""
        cdef Delivery *delivery
        entry = self.table.find(message.id, 0)
        if entry is not NULL:
            self.give_back(message.id, tries, due_ns)
            entry.delivery.owner = is_carried
            return 0
        delivery = delivery_new(self.memory.account, message)
        message_keep(message)
        set_tries(delivery, tries)
        delivery.delivered_ns = due_ns
        self.table.insert(delivery)
        delivery.owner = is_carried
        return self.append(delivery)

    cdef int finish(self, uint64_t id, uint64_t index) except -1:
        cdef Delivery *delivery
        if 0 < index < self.written.index:
            self.finished.append(index)
            return 0
        entry = self.table.find(id, 0)
        if entry is not NULL:
            delivery = entry.delivery
            self.unlink(delivery)
            self.table.remove(delivery)
            delivery_free(delivery)
        return 0

    cdef int give_back(self, uint64_t id, uint32_t tries, int64_t due_ns) except -1:
        entry = self.table.find(id, 0)
        if entry is not NULL:
            set_tries(entry.delivery, tries)
            entry.delivery.delivered_ns = due_ns
            entry.delivery.owner = 0
            self.unlink(entry.delivery)
            self.append(entry.delivery)
        return 0

    cdef int append(self, Delivery *delivery) except -1:
        delivery.previous = self.newest
        delivery.next = NULL
        if self.newest is NULL:
            self.oldest = delivery
        else:
            self.newest.next = delivery
        self.newest = delivery
        return 0

    cdef int unlink(self, Delivery *delivery) except -1:
        if delivery.previous is NULL:
            self.oldest = delivery.next
        else:
            delivery.previous.next = delivery.next
        if delivery.next is NULL:
            self.newest = delivery.previous
        else:
            delivery.next.previous = delivery.previous
        delivery.previous = delivery.next = NULL
        return 0

    cdef Delivery *take(self) noexcept:
        """Remove and return the oldest, or NULL; the table forgets it only as a whole."""
        cdef Delivery *delivery = self.oldest
        if delivery is not NULL:
            self.oldest = delivery.next
            if self.oldest is NULL:
                self.newest = NULL
            else:
                self.oldest.previous = NULL
            delivery.next = NULL
        return delivery


cdef class Replay:
    def __init__(self, Memory memory not None):
        self.memory = memory
        self.begin()

    def begin(self):
        self.by_number, self.by_name, self.spread_to = {}, {}, {}
        self.deleted = set()
        self.pieces, self.released = {}, set()
        self.has_begun = False

    cdef int apply(self, uint8_t kind, uint8_t flags, uint16_t extra, uint32_t subject, const char *data, size_t size,
                   uint64_t sequence) except -1:
        """Repeat a record of that batch; sequence 0: a checkpoint carried it."""
        cdef ReplayedQueue queue
        if sequence != self.sequence:
            self.sequence, self.count = sequence, 0
        self.count += 1
        self.has_begun = True
        if kind == CLOSED:
            self.closed_in = sequence
            if sequence >= self.carried_to:
                self.begin()    # or what a later checkpoint carried counts
            return 0
        if kind == BEGUN:
            self.life = subject
            return self.end_mpubs(subject)
        if kind == NAMED:
            return self.name_queue(subject, data, size)
        queue = self.by_number.get(subject)
        if queue is None and kind == DELETED:
            name = data[:size].decode()
            if name not in self.by_name:
                self.deleted.add(name)
        if queue is None:
            return 0    # it was deleted before the last checkpoint
        if kind == PUBLISHED:
            return self.publish(queue, flags, get_tries(flags, extra), data, size)
        if kind == PIECE:
            self.pieces[get_number(data), get_number(data + 8)] = subject, data[:size]
            return 0
        if kind == RELEASED:
            if get_number(data):
                self.released.add(get_number(data))
            _, piece = self.pieces.pop((get_number(data), get_number(data + 8)), (0, None))
            return 0 if piece is None else self.release(queue, flags & SPREAD, piece)
        if not self.counts(queue):
            return 0
        if kind == FINISHED:
            queue.finish(get_number(data), get_number(data + 8))
        elif kind == RETURNED:
            queue.give_back(get_number(data), get_tries(flags, extra), <int64_t> get_number(data + 8))
        elif kind == EMPTIED:
            queue.clear()
        elif kind == DELETED:
            self.forget(queue)
        elif kind == PLACED:
            queue.cursor, queue.written = get_place(data), get_place(data + 24)
            queue.is_placed = True
            queue.is_carried = self.sequence == 0
            queue.finished, queue.holes, queue.held = [], [], bytearray()
        elif kind == HOLES:
            queue.holes.append((get_number(data), data[8:size]))
        elif kind == HELD:
            queue.held += data[:size]
        return 0

    cdef bint counts(self, ReplayedQueue queue) noexcept:
        """Whether the checkpoint did not see this record's change."""
        if self.sequence == 0 or self.life != queue.life:
            return self.sequence == 0 or self.life > queue.life
        return self.sequence > queue.sequence or (self.sequence == queue.sequence and self.count > queue.seen)

    cdef int name_queue(self, uint32_t number, const char *data, size_t size) except -1:
        cdef ReplayedQueue queue
        cdef str name
        if number in self.by_number:
            return 0    # the checkpoint knew it
        name = data[NAMED_SIZE:size].decode()
        queue = ReplayedQueue(name, number, self.memory)
        queue.life, queue.sequence, queue.seen = get_number(data), get_number(data + 8), get_number(data + 16)
        self.life = max(self.life, <uint32_t> queue.life)
        self.last_number = max(self.last_number, number)
        if name in self.by_name:
            self.forget(self.by_name[name])
        self.by_number[number] = self.by_name[name] = queue
        self.deleted.discard(name)
        topic, colon, _ = name.partition(":")
        if colon:
            self.spread_to.setdefault(topic, []).append(queue)
        return 0

    cdef int publish(self, ReplayedQueue queue, uint8_t flags, uint32_t tries, const char *data,
                     size_t size) except -1:
        cdef int64_t due_ns = <int64_t> get_number(data + 16)
        cdef Message *message = message_new(
            self.memory.account, data + PUBLISHED_SIZE, <uint32_t> (size - PUBLISHED_SIZE), <int64_t> get_number(data),
            get_number(data + 8))
        if message is NULL:
            raise MemoryError
        message.attempts, message.failures = <uint16_t> tries, <uint8_t> (tries >> 16)
        try:
            return self.put(queue, flags & SPREAD, message, tries, due_ns)
        finally:
            message_drop(message)

    cdef int put(self, ReplayedQueue queue, bint is_spread, Message *message, uint32_t tries,
                 int64_t due_ns) except -1:
        cdef ReplayedQueue other
        if message.id <= INT64_MAX:     # as all of NSQ's are
            self.latest_ns = max(self.latest_ns, time_of(message.id))
        if not is_spread:
            return queue.add(message, tries, due_ns, self.sequence == 0) if self.counts(queue) else 0
        for other in self.spread_to.get(queue.name, ()):
            if self.counts(other):
                other.add(message, tries, due_ns, False)
        return 0

    # Large MPUBs

    cdef int release(self, ReplayedQueue queue, bint is_spread, bytes piece) except -1:
        cdef const char *data = piece
        cdef const char *end = data + len(piece)
        cdef int64_t published_ns = <int64_t> get_number(data + 16)
        cdef uint64_t id = get_number(data + 24)
        cdef Message *message
        data += PIECE_HEAD_SIZE
        while data < end:
            message = message_new(self.memory.account, data + 4, get_be32(data), published_ns, id)
            if message is NULL:
                raise MemoryError
            try:
                self.put(queue, is_spread, message, 0, 0)
            finally:
                message_drop(message)
            data += 4 + get_be32(data)
            id = next_id(id)
        return 0

    cdef int end_mpubs(self, uint64_t life) except -1:
        """This life begins: of an earlier MPUB that was being released the topic gets the rest; of the others nothing
        is kept."""
        cdef ReplayedQueue queue
        for key in [key for key in self.pieces if <uint64_t> key[0] >> 32 < life]:
            number, piece = self.pieces.pop(key)
            queue = self.by_number.get(number)
            if key[0] in self.released and queue is not None:
                self.release(queue, False, piece)
        return 0

    cdef int end(self) except -1:
        """There are no more records: as if the next life had begun, which no checkpoint has seen."""
        self.life += 1
        self.end_mpubs(self.life)
        self.life -= 1
        return 0

    cdef int forget(self, ReplayedQueue queue) except -1:
        del self.by_number[queue.number]
        if self.by_name.get(queue.name) is queue:
            del self.by_name[queue.name]
        self.deleted.add(queue.name)
        topic, colon, _ = queue.name.partition(":")
        if colon:
            self.spread_to[topic].remove(queue)
        return 0

    def names(self):
        """Return the names of the queues that exist."""
        return list(self.by_name)
