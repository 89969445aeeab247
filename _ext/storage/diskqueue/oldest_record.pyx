"""Reads the record at a reader's position and changes nothing: the reader itself finds and repairs damage.

A queue whose reader has not moved costs nothing; else it costs at most one read of a few bytes, which are usually in
the reader's memory.
"""

from posix.unistd cimport close, pread

import os

from nsqfast._ext.core.limits cimport MESSAGE_HEADER_SIZE
from nsqfast._ext.core.message cimport get_be32, get_be64
from nsqfast._ext.storage.diskqueue.segment import segment_path

cdef enum:
    # The record's size and the first field of the message.
    HEAD_SIZE = 12


cdef class OldestRecord:
    """For one queue. After a kill the record may already be finished; its neighbours are of about the same age."""

    cdef int64_t find_timestamp_ns(self, DiskReader reader) except -2:
        """Return Unix time in ns; 0 = nothing is unread, or UNREADABLE."""
        cdef int64_t file = reader.read_file, position = reader.read_position, timestamp_ns
        if reader.position.closed or reader.depth == 0:
            return 0
        if position >= reader.read_end and file < reader.position.write_file:
            file, position = file + 1, 0
        if self.timestamp_ns and file == self.file and position == self.position:
            return self.timestamp_ns
        timestamp_ns = read_timestamp(reader, file, position)
        if timestamp_ns != UNREADABLE:
            self.file, self.position, self.timestamp_ns = file, position, timestamp_ns
        return timestamp_ns

    def find_timestamp(self, DiskReader reader not None):
        """find_timestamp_ns() for tests."""
        return self.find_timestamp_ns(reader)


cdef int64_t read_timestamp(DiskReader reader, int64_t file, int64_t position) except -2:
    cdef int64_t offset = position - reader.ahead_start
    cdef char data[HEAD_SIZE]
    cdef int fd = reader.read_fd
    cdef ssize_t size
    if file == reader.read_file and fd >= 0 and 0 <= offset and offset + HEAD_SIZE <= reader.ahead_size:
        return timestamp_of(reader.ahead + offset)
    if file == reader.read_file and fd >= 0:
        size = pread(fd, data, HEAD_SIZE, position)
    else:
        try:
            fd = os.open(segment_path(reader.position.prefix, file), os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError:
            return UNREADABLE
        size = pread(fd, data, HEAD_SIZE, position)
        close(fd)
    return timestamp_of(data) if size == HEAD_SIZE else UNREADABLE


cdef int64_t timestamp_of(const char *record) noexcept:
    cdef int64_t timestamp_ns = <int64_t> get_be64(record + 4)
    return timestamp_ns if get_be32(record) >= MESSAGE_HEADER_SIZE and timestamp_ns > 0 else UNREADABLE
