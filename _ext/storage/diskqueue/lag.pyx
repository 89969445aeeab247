"""How far the first unfinished record of a queue on disk is behind the reader.

Files go when all of their records are finished, so one message that is deferred for days would keep all that came after
it. What is unfinished and lies far behind the reader is stale: it is to be written again behind all others (the broker
does that, which has these messages in memory, see `renewal`).

    cursor ├──────── stale: `size` bytes ────────┤ limit ├── recent: 32 MiB ──┤ reader
"""

import os

from nsqfast._ext.storage.diskqueue.position cimport DiskPosition
from nsqfast._ext.storage.diskqueue.segment import segment_path

# What lies closer to the reader than this is left where it is: it may be in flight and done in a moment. With fewer
# bytes than that before these, nothing is stale; together they are 64 MiB.
cdef int64_t recent_size = 33554432

cdef enum:
    # Files whose sizes one call looks up, at some microseconds each.
    LOOKED_UP_MAX = 256
    # The next look comes when the reader has gone on by one in so many of the records between cursor and reader.
    NEXT_TRY_SHARE = 4

cdef int64_t UNKNOWN = -1


cdef void set_recent_size(int64_t size) noexcept:
    global recent_size
    recent_size = size


cdef class Lag:
    def __init__(self, DiskReader reader not None):
        self.reader = reader
        self.sizes = {}

    cdef uint64_t find(self) except? 0:
        """Return the ordinal before which unfinished records are stale; 0 = none is."""
        cdef DiskPosition position = self.reader.position
        if position.closed or self.reader.next_read < self.next_try or self.reader.is_uncounted:
            return 0
        if (position.cursor_file == self.reader.read_file
                and self.reader.read_position - position.cursor_position < 2 * recent_size):
            return 0
        return self.search()

    cdef uint64_t search(self) except? 0:
        cdef DiskPosition position = self.reader.position
        cdef int64_t file = self.reader.read_file, end = self.reader.read_position, recent = recent_size, size, limit
        cdef uint64_t index
        self.looked_up = 0
        while end < recent and file > position.cursor_file:
            recent -= end
            file -= 1
            end = self.size_of(file)
            if end == UNKNOWN:
                return 0
        limit = end - recent
        index = self.index_at(file, limit)
        self.size = limit - position.cursor_position
        while file > position.cursor_file:
            file -= 1
            size = self.size_of(file)
            if size == UNKNOWN:
                return 0
            self.size += size
        if self.size < recent_size or index <= position.cursor:
            return 0
        self.forget()
        self.next_try = self.reader.next_read + (self.reader.next_read - position.cursor) // NEXT_TRY_SHARE
        return index + self.reader.shift

    cdef int64_t size_of(self, int64_t file) except -2:
        """UNKNOWN: too many were looked up, the next call goes on."""
        size = self.sizes.get(file)
        if size is None:
            if self.looked_up == LOOKED_UP_MAX:
                return UNKNOWN
            self.looked_up += 1
            try:
                size = os.stat(segment_path(self.reader.position.prefix, file)).st_size
            except OSError:
                size = 0    # somebody removed it
            self.sizes[file] = size
        return size

    cdef uint64_t index_at(self, int64_t file, int64_t position) noexcept:
        """Return the first record that was read and starts there or behind it."""
        cdef uint64_t low = self.reader.position.cursor, high = self.reader.next_read, middle
        while low < high:
            middle = (low + high) // 2
            spot = self.reader.spots[middle & self.reader.spots_mask]
            if spot.file < file or (spot.file == file and spot.position < position):
                low = middle + 1
            else:
                high = middle
        return low

    cdef int forget(self) except -1:
        """Forget the sizes of files that are gone."""
        first = self.reader.position.cursor_file
        if len(self.sizes) > 2 * (self.reader.read_file - first) + 64:
            self.sizes = {file: size for file, size in self.sizes.items() if file >= first}
        return 0
