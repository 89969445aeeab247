"""A message that waits for days needs no memory: its record says what it is, an entry when it is due.

A deferral that its publisher ends has its record finished at once. Its entry, whose place nobody knows, stays until it
is due, or until most entries are such: then each further end removes some.
"""

import logging

from nsqfast._ext.core.limits cimport DISK_RETRY_NS

log = logging.getLogger("nsqd")

cdef enum:
    # Entries that one end of a deferral looks at.
    SWEPT_COUNT = 8


cdef inline Delivery *item_of(uint64_t ordinal) noexcept:
    # Not a pointer, and never NULL.
    return <Delivery *> ordinal


cdef inline bint is_listed(const Due *due) noexcept:
    return due.is_told and due.attempts == 0


cdef class StoredDeferrals:
    def __init__(self, ChannelStore backlog not None, Memory memory not None):
        self.backlog, self.memory = backlog, memory
        self.heap = DueHeap(memory)

    cdef int put(self, Delivery *delivery) except -1:
        """Note one that has a record. It may be freed then."""
        cdef Due due = Due(delivery.deadline_ns, delivery.ordinal, delivery.message.id, delivery.message.size,
                           delivery.attempts, delivery.failures, delivery.is_told)
        if is_listed(&due):
            if self.told is None:
                self.told = InFlightTable(self.memory)
            self.told.insert_item(due.id, item_of(due.ordinal))
        return self.heap.push(due)

    cdef int64_t count(self) noexcept:
        return max(<int64_t> self.heap.size - <int64_t> self.over_count, 0)

    cdef uint64_t find_told(self, uint64_t id) noexcept:
        """Return the ordinal, or 0."""
        cdef Entry *entry = self.told.find_item(id) if self.told is not None else NULL
        return <uint64_t> entry.delivery if entry is not NULL else 0

    cdef Recall load(self, size_t index, Delivery **delivery) except *:
        """Read the message of the entry at that place, which stays."""
        cdef Due due = self.heap.entries[index]
        try:
            delivery[0] = self.backlog.load(due.ordinal, due.id)
        except OSError:     # the broker's health reports it
            return REFUSED
        if delivery[0] is NULL:
            return AWAITED if self.backlog.is_loading() else GONE
        delivery[0].is_told = due.is_told
        delivery[0].deadline_ns = due.deadline_ns
        return READ

    cdef Recall recall_first(self, int64_t now_ns, Delivery **delivery) except *:
        """Remove the first and read its message, or do what is to be done instead."""
        cdef Recall recall
        if not self.backlog.is_unfinished(self.heap.entries[0].ordinal):
            self.over_count -= self.over_count > 0
            self.drop_at(0)
            return GONE
        recall = self.load(0, delivery)
        if recall == GONE:
            log.error("a deferred message is not where it was on disk, the next start looks for it")
        if recall == READ or recall == GONE:
            self.remove_at(0)
        elif recall == REFUSED:
            self.replace_first(now_ns + DISK_RETRY_NS)
        return recall

    cdef int replace_first(self, int64_t deadline_ns) except -1:
        """Try it again then; others go on meanwhile."""
        self.show_passing(0)
        self.heap.entries[0].deadline_ns = deadline_ns
        self.heap.down(0)
        return 0

    cdef Recall recall_told(self, uint64_t id, Delivery **delivery) except *:
        """The message is due now: it is read, and the caller queues it."""
        cdef uint64_t ordinal = self.find_told(id)
        try:
            delivery[0] = self.backlog.load(ordinal, id)
        except OSError:
            return REFUSED
        if delivery[0] is NULL:
            return AWAITED if self.backlog.is_loading() else GONE
        delivery[0].is_told = True
        return READ

    cdef int end_told(self, uint64_t id) except -1:
        """Forget that its deferral goes on; its record is finished, or moved, by the caller."""
        self.told.remove_at(self.told.find_item(id))
        self.over_count += 1
        return self.sweep() if 2 * self.over_count > self.heap.size else 0

    cdef int sweep(self) except -1:
        """Remove some of those that are over."""
        cdef int _
        for _ in range(SWEPT_COUNT):
            if self.heap.size == 0:
                break
            if self.swept >= self.heap.size:
                self.swept = 0
            if self.backlog.is_unfinished(self.heap.entries[self.swept].ordinal):
                self.swept += 1
            else:
                self.drop_at(self.swept)
                self.over_count -= self.over_count > 0
        return 0

    cdef void remove_at(self, size_t index) noexcept:
        """Remove one whose deferral has gone on until now."""
        cdef Entry *entry = self.entry_of(&self.heap.entries[index])
        if entry is not NULL:
            self.told.remove_at(entry)
        self.drop_at(index)

    cdef void drop_at(self, size_t index) noexcept:
        self.show_passing(index)
        self.heap.remove_at(index)

    cdef bint show(self, Checkpoint checkpoint, int64_t to_wall_ns, Budget *budget) except -1:
        """As DeferredHeap.show."""
        self.checkpoint, self.to_wall_ns = checkpoint, to_wall_ns
        while self.shown < self.heap.size:
            self.show_at(self.shown)
            self.shown += 1
            if self.shown < self.heap.size and checkpoint.ends_part(budget, 0):
                return False
        self.shown, self.checkpoint = 0, None
        return True

    cdef void show_at(self, size_t index) noexcept:
        cdef Due *due = &self.heap.entries[index]
        self.checkpoint.add_stored(due.ordinal, self.to_wall_ns + due.deadline_ns, due.is_told)

    cdef void show_passing(self, size_t index) noexcept:
        if self.shown:
            self.show_at(self.heap.size - 1)
            self.show_at(self.heap.passing(index, self.shown))

    cdef Entry *entry_of(self, const Due *due) noexcept:
        cdef Entry *entry = self.told.find_item(due.id) if is_listed(due) and self.told is not None else NULL
        return entry if entry is not NULL and entry.delivery is item_of(due.ordinal) else NULL

    cdef int note_moved(self, size_t index, uint64_t ordinal) except -1:
        """Its record was written again."""
        cdef Entry *entry = self.entry_of(&self.heap.entries[index])
        cdef uint64_t id = self.heap.entries[index].id
        self.heap.entries[index].ordinal = ordinal
        if entry is not NULL:
            self.told.remove_at(entry)
            self.told.insert_item(id, item_of(ordinal))
        return 0
