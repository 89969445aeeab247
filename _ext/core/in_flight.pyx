"""A table finds a delivery that is answered; a queue tells which times out first."""

cimport cython
from libc.stdint cimport int64_t, uint32_t
from libc.stdlib cimport calloc, free

from nsqfast._ext.core.debug cimport NSQFAST_DEBUG
from nsqfast._ext.core.heap cimport HeapNode
from nsqfast._ext.core.memory cimport Memory, account_of, charge, leave_account
from nsqfast._ext.core.message cimport delivery_free

cdef enum:
    CAPACITY_MIN = 16
    # Homes whose entries one insert copies.
    COPY_COUNT = 16
    # Messages that are examined to find the oldest; a part of a turn has time for some more.
    OLDEST_SCAN_MAX = 4096

cdef uint32_t IN_LIST = 0xFFFFFFFF   # a heap_index that no heap reaches


cdef inline void place(Entry *entries, size_t mask, int shift, uint64_t id, Delivery *delivery) noexcept:
    cdef size_t i = home(id, shift)
    while entries[i].delivery is not NULL:
        i = (i + 1) & mask
    entries[i].id = id
    entries[i].delivery = delivery


cdef inline void erase(Entry *entries, size_t mask, int shift, size_t hole) noexcept:
    cdef size_t i = (hole + 1) & mask
    while entries[i].delivery is not NULL:
        # An entry may move into the hole unless its home lies cyclically behind the hole.
        if ((i - home(entries[i].id, shift)) & mask) >= ((i - hole) & mask):
            entries[hole] = entries[i]
            hole = i
        i = (i + 1) & mask
    entries[hole].delivery = NULL


@cython.final
cdef class InFlightTable:
    """Open addressing with linear probing; a removal shifts the entries behind it back, so there are no tombstones.

    A half-used table grows step by step, since moving a million entries takes 100 ms: each insert copies a few of them
    into one of twice the size, home by home, and lookups use the old table until the last one was copied. By then the
    old table is a little more than half used.

    Equal ids can come from a clock that was set back before a restart. Go forgets the second; here both are kept, and
    the owner tells them apart.
    """

    def __cinit__(self, Memory memory=None):
        self.account = account_of(memory)

    def __dealloc__(self):
        leave_account(self.account, <int64_t> (self.total_capacity() * sizeof(Entry)))
        free(self.entries)
        free(self.larger)

    cdef int insert(self, Delivery *delivery) except -1:
        return self.insert_item(delivery.message.id, delivery)

    cdef inline int insert_item(self, uint64_t id, Delivery *delivery) except -1:
        """The same for anything but NULL: then find_item and remove_at have to be used."""
        if (self.size + 1) * 2 > self.capacity or self.larger is not NULL:
            return self.insert_growing(id, delivery)
        place(self.entries, self.capacity - 1, self.shift, id, delivery)
        self.size += 1
        return 0

    cdef Entry *find_item(self, uint64_t id) noexcept:
        """Return an entry with that id, or NULL. Valid until the next change."""
        cdef size_t i
        if self.size == 0:
            return NULL
        i = home(id, self.shift)
        while self.entries[i].delivery is not NULL:
            if self.entries[i].id == id:
                return &self.entries[i]
            i = (i + 1) & (self.capacity - 1)
        return NULL

    cdef int insert_growing(self, uint64_t id, Delivery *delivery) except -1:
        self.grow()
        place(self.entries, self.capacity - 1, self.shift, id, delivery)
        if self.larger is not NULL and home(id, self.shift) < self.copied:
            place(self.larger, self.capacity * 2 - 1, self.shift - 1, id, delivery)
        self.size += 1
        return 0

    cdef int grow(self) except -1:
        """Take one step."""
        cdef size_t capacity = self.capacity * 2 if self.capacity else CAPACITY_MIN
        if self.larger is NULL:
            self.larger = <Entry *> calloc(capacity, sizeof(Entry))
            if self.larger is NULL:
                raise MemoryError
            charge(self.account, <int64_t> (capacity * sizeof(Entry)))
            self.copied = 0
        if self.capacity:
            self.copy_some()
        if self.copied == self.capacity:
            self.end_growth()
        return 0

    cdef void copy_some(self) noexcept:
        """An entry stands at its home or behind it, with no free slot between, possibly wrapping around."""
        cdef size_t mask = self.capacity - 1, end = self.copied + COPY_COUNT, i, its_home
        cdef Entry *entry
        for i in range(self.copied, self.copied + self.capacity):
            entry = &self.entries[i & mask]
            if entry.delivery is not NULL:
                its_home = home(entry.id, self.shift)
                if self.copied <= its_home < end:
                    place(self.larger, mask * 2 + 1, self.shift - 1, entry.id, entry.delivery)
            elif i >= end:
                break
        self.copied = end

    cdef void end_growth(self) noexcept:
        cdef size_t capacity = self.capacity * 2 if self.capacity else CAPACITY_MIN
        charge(self.account, -<int64_t> (self.capacity * sizeof(Entry)))
        free(self.entries)
        self.entries, self.capacity, self.larger = self.larger, capacity, NULL
        self.shift = 64
        while capacity > 1:
            self.shift -= 1
            capacity >>= 1

    cdef size_t total_capacity(self) noexcept:
        """The slots of both tables while it grows."""
        if self.larger is NULL:
            return self.capacity
        return self.capacity + (self.capacity * 2 if self.capacity else CAPACITY_MIN)

    cdef void remove(self, Delivery *delivery) noexcept:
        """Remove a delivery that is in the table."""
        cdef size_t i = home(delivery.message.id, self.shift)
        while self.entries[i].delivery is not delivery:
            i = (i + 1) & (self.capacity - 1)
        self.remove_at(&self.entries[i])

    cdef void remove_at(self, Entry *entry) noexcept:
        if self.larger is not NULL:
            self.remove_growing(entry)
            return
        self.size -= 1
        erase(self.entries, self.capacity - 1, self.shift, <size_t> (entry - self.entries))

    cdef void remove_growing(self, Entry *entry) noexcept:
        cdef size_t i, mask = self.capacity * 2 - 1
        if home(entry.id, self.shift) < self.copied:
            i = home(entry.id, self.shift - 1)
            while self.larger[i].delivery is not entry.delivery:
                i = (i + 1) & mask
            erase(self.larger, mask, self.shift - 1, i)
        self.size -= 1
        erase(self.entries, self.capacity - 1, self.shift, <size_t> (entry - self.entries))


@cython.final
@cython.no_gc_clear  # the heap is needed until the deliveries are freed
cdef class InFlightQueue:
    """Deliveries, the earliest deadline first; the queue frees those still in it when it is freed itself.

    A consumer has one message timeout, so a later delivery has a later deadline, and a list will do: adding and
    removing cost the same however many are in flight. A delivery whose TOUCH leads to an earlier deadline goes to a
    heap beside it.
    """

    def __cinit__(self, Memory memory=None):
        self.others = DeadlineHeap(memory)

    def __dealloc__(self):
        cdef Delivery *delivery
        while self.size and not self.is_borrowed:
            delivery = self.peek()
            self.remove(delivery)
            delivery_free(delivery)

    cdef int push(self, Delivery *delivery) except -1:
        if self.last is not NULL and delivery.deadline_ns < self.last.deadline_ns:
            self.others.push(<HeapNode *> delivery)
        else:
            delivery.heap_index = IN_LIST
            delivery.next = NULL
            delivery.previous = self.last
            if self.last is NULL:
                self.first = delivery
            else:
                self.last.next = delivery
            self.last = delivery
        self.size += 1
        return 0

    cdef Delivery *peek(self) noexcept:
        """Return the earliest, or NULL."""
        cdef Delivery *other = <Delivery *> self.others.peek()
        if other is NULL or (self.first is not NULL and self.first.deadline_ns <= other.deadline_ns):
            return self.first
        return other

    cdef void remove(self, Delivery *delivery) noexcept:
        """Remove a delivery. Call it before changing a deadline, too, and push the delivery again."""
        self.size -= 1
        if delivery.heap_index == IN_LIST:
            self.unlink(delivery)
        else:
            self.others.remove(<HeapNode *> delivery)

    cdef void unlink(self, Delivery *delivery) noexcept:
        if NSQFAST_DEBUG:
            assert (delivery.previous is NULL) == (delivery is self.first), "not in this line"
            assert (delivery.next is NULL) == (delivery is self.last), "not in this line"
        if delivery is self.cursor:
            self.cursor = delivery.next
        if delivery.previous is NULL:
            self.first = delivery.next
        else:
            delivery.previous.next = delivery.next
        if delivery.next is NULL:
            self.last = delivery.previous
        else:
            delivery.next.previous = delivery.previous
        delivery.next = delivery.previous = NULL

    cdef InFlightQueue take_all(self):
        """Move everything into a new queue and return that."""
        cdef InFlightQueue taken = InFlightQueue(<Memory> self.others.account.owner)
        taken.first, taken.last, taken.size = self.first, self.last, self.size
        taken.others, self.others = self.others, taken.others
        self.first = self.last = self.cursor = NULL
        self.size = 0
        return taken

    cdef int64_t oldest(self, uint32_t most, bint by_delivery) noexcept:
        """When the oldest message was published, or delivered; 0 = the queue is empty. A requeued or touched message
        may stand anywhere, so all are examined; if there are more than `most`, only about so many, those with the
        earliest deadlines first."""
        cdef int64_t oldest_ns = 0, time_ns
        cdef Delivery *delivery = self.first
        cdef uint32_t i, _, others = self.others.size
        if self.size > most:
            others = min(others, most // 2)
        for i in range(others):
            time_ns = time_of(<Delivery *> self.others.nodes[i], by_delivery)
            if oldest_ns == 0 or time_ns < oldest_ns:
                oldest_ns = time_ns
        for _ in range(most - min(most, others)):
            if delivery is NULL:
                break
            time_ns = time_of(delivery, by_delivery)
            if oldest_ns == 0 or time_ns < oldest_ns:
                oldest_ns = time_ns
            delivery = delivery.next
        return oldest_ns


cdef int64_t oldest_published(list queues) noexcept:
    """When the oldest message in these queues was published; 0 = they are empty."""
    cdef InFlightQueue queue
    cdef int64_t oldest_ns = 0, queue_ns
    cdef uint32_t most = OLDEST_SCAN_MAX
    cdef size_t size = 0
    for queue in queues:
        size += queue.size
    if size > OLDEST_SCAN_MAX:
        most = max(1, OLDEST_SCAN_MAX // <uint32_t> len(queues))
    for queue in queues:
        queue_ns = queue.oldest(most, False)
        if oldest_ns == 0 or 0 < queue_ns < oldest_ns:
            oldest_ns = queue_ns
    return oldest_ns


cdef inline int64_t time_of(Delivery *delivery, bint by_delivery) noexcept:
    return delivery.delivered_ns if by_delivery else delivery.message.timestamp_ns
