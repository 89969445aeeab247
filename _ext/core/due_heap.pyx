"""An entry is a copy and has no place that others could know; who wants one that is not the first looks at all."""

from libc.stdlib cimport free, realloc

from nsqfast._ext.core.memory cimport Memory, account_of, charge, leave_account

cdef enum:
    CAPACITY_MIN = 64


cdef class DueHeap:
    """The earliest deadline first."""

    def __cinit__(self, Memory memory=None):
        self.account = account_of(memory)

    def __dealloc__(self):
        leave_account(self.account, <int64_t> (self.capacity * sizeof(Due)))
        free(self.entries)

    cdef int push(self, Due due) except -1:
        if self.size == self.capacity:
            self.grow()
        self.entries[self.size] = due
        self.size += 1
        self.up(self.size - 1)
        return 0

    cdef int grow(self) except -1:
        cdef size_t capacity = self.capacity * 2 if self.capacity else CAPACITY_MIN
        cdef Due *entries = <Due *> realloc(self.entries, capacity * sizeof(Due))
        if entries is NULL:
            raise MemoryError
        charge(self.account, <int64_t> ((capacity - self.capacity) * sizeof(Due)))
        self.entries = entries
        self.capacity = capacity
        return 0

    cdef Due *peek(self) noexcept:
        """Return the earliest, or NULL. Valid until the next change."""
        return self.entries if self.size else NULL

    cdef void remove_at(self, size_t index) noexcept:
        """The last one takes its place; it may go on from there in both directions."""
        self.size -= 1
        if index == self.size:
            return
        self.entries[index] = self.entries[self.size]
        self.up(index)
        self.down(index)

    cdef void up(self, size_t index) noexcept:
        cdef Due due = self.entries[index]
        cdef size_t parent
        while index:
            parent = (index - 1) >> 1
            if self.entries[parent].deadline_ns <= due.deadline_ns:
                break
            self.entries[index] = self.entries[parent]
            index = parent
        self.entries[index] = due

    cdef void down(self, size_t index) noexcept:
        cdef Due due = self.entries[index]
        cdef size_t child = 2 * index + 1
        while child < self.size:
            if child + 1 < self.size and self.entries[child + 1].deadline_ns < self.entries[child].deadline_ns:
                child += 1
            if self.entries[child].deadline_ns >= due.deadline_ns:
                break
            self.entries[index] = self.entries[child]
            index = child
            child = 2 * index + 1
        self.entries[index] = due

    cdef size_t passing(self, size_t index, size_t limit) noexcept:
        """As DeadlineHeap.passing."""
        cdef size_t child = 2 * index + 1, last = self.size - 1
        while child < last:
            if child + 1 < last and self.entries[child + 1].deadline_ns < self.entries[child].deadline_ns:
                child += 1
            if child >= limit:
                return child
            child = 2 * child + 1
        return last
