"""OKs of one command that wait for one ticket are counted, not one object each."""

from collections import deque


cdef class PendingAnswers:
    """The waiting answers of one connection."""

    cdef int begin(self, uint64_t ticket, uint64_t count, str command) except -1:
        """Add an entry behind all others."""
        if self.entries is None:
            self.entries = deque()
        self.entries.append([ticket, count, command, None])
        self.size += 1
        return 0

    cdef int add_ok(self, uint64_t ticket, str command) except -1:
        """Add one more OK; it is not sent before those ahead of it."""
        cdef list last = self.entries[self.size - 1] if self.size else None
        if last is None:
            return self.begin(ticket, 1, command)
        if last[0] >= ticket and last[2] == command:
            last[1] += 1
            return 0
        return self.begin(max(ticket, <uint64_t> last[0]), 1, command)

    cdef int add_frame(self, bytes frame) except -1:
        """Add another answer behind those that wait; there are some."""
        cdef list last = self.entries[self.size - 1]
        self.entries.append([last[0], 0, "", frame])
        self.size += 1
        return 0

    cdef int add_ticket(self, uint64_t ticket, str command) except -1:
        """Add no OK, but let the error of this fsync be the command's."""
        if self.size and <uint64_t> self.entries[self.size - 1][0] >= ticket:
            return 0
        return self.begin(ticket, 0, command)

    cdef int refuse_oks(self, uint64_t count, str error) except -1:
        """Replace the last `count` OKs by the error."""
        cdef list first = cut_tail(self.entries, count)
        cdef Py_ssize_t size = len(self.entries)
        ticket = self.entries[size - 1][0] if size else 0
        self.entries.append([ticket, 1, first[2], error])
        self.size = size + 1
        return 0

    cdef list take_done(self, uint64_t done_ticket):
        """Return the next entry that need not wait any more; None = there is none."""
        if self.size == 0 or <uint64_t> self.entries[0][0] > done_ticket:
            return None
        self.size -= 1
        return self.entries.popleft()

    cdef int clear(self) except -1:
        self.entries.clear()
        self.size = 0
        return 0


cdef list cut_tail(object entries, uint64_t count):
    cdef list last = None
    while count:
        last = entries.pop()
        if last[1] > count:
            entries.append([last[0], last[1] - count, *last[2:]])
            count = 0
        else:
            count -= last[1]
    return last
