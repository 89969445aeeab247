"""Reads a data file ahead of its queue's reader."""

from libc.stdint cimport int64_t

from nsqfast._ext.storage.diskqueue.cold_reads cimport ColdRead, ColdReads, ReadOwner
from nsqfast._ext.storage.diskqueue.position cimport DiskPosition
from nsqfast._ext.storage.diskqueue.segment cimport Segment


cdef class FileReader(ReadOwner):
    cdef ColdReads cold                 # None: fill() waits for the disk
    cdef int cold_error                 # errno of the last cold read, if the next fill() has to mind it
    cdef DiskPosition position          # of its queue
    cdef int64_t read_file
    cdef int64_t read_position
    cdef int64_t read_end               # of the read file; write_position if that is the write file
    cdef int read_fd                    # -1: not open
    cdef char *ahead
    cdef int64_t ahead_capacity
    cdef int64_t ahead_size
    cdef int64_t ahead_start            # position in the file of ahead[0]
    cdef bint is_refused                # the last read failed and is tried again

    # Read
    cdef int fill(self, int64_t size) except -1
    cdef bint begin_read(self, int64_t size, int64_t want) except -1
    cdef int64_t read_ahead(self, int64_t size, int64_t want) except -1
    cdef int note_read(self, int64_t size) except -1
    cdef int end_read(self, ColdRead *done) except -1
    cdef int close_reader(self) except -1
    cdef bint drop_pending(self) noexcept

    # Errors
    cdef object refuse(self, int error)
    cdef bint is_sound(self) except -1
    cdef int check_device(self, Segment segment) except -1
    cdef str name_damage(self, Segment segment, int64_t end)
