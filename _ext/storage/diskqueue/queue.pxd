"""A queue on disk in go-diskqueue's format, with acknowledgements that survive a kill -9."""

from libc.stdint cimport int64_t, uint64_t

from nsqfast._ext.storage.diskqueue.ackfile cimport Place
from nsqfast._ext.storage.diskqueue.deferred cimport Deadlines
from nsqfast._ext.storage.diskqueue.position cimport DiskPosition, FileOwner
from nsqfast._ext.storage.diskqueue.reader cimport DiskReader
from nsqfast._ext.storage.diskqueue.writer cimport DiskWriter


cdef enum:
    CLOSE_STEPS = 3


cdef class DiskQueue(FileOwner):
    cdef readonly DiskPosition position # where it begins and ends
    cdef readonly DiskReader reader
    cdef readonly DiskWriter writer
    cdef int64_t first_file             # no data file has a lower number
    cdef bint keeps_deadlines           # their file stays until the log's next checkpoint
    cdef Deadlines deadlines            # of deferred messages, found at the start or to be kept at the stop; or None

    cpdef int empty(self) except -1
    cdef int begin_log(self) except -1
    cdef int fill_holes(self) except -1
    cdef list end_copies(self, list copied)
    cpdef int close(self) except -1
    cpdef uint64_t close_some(self, int step) except? 0
    cdef uint64_t keep_all(self) except? 0
    cdef uint64_t close_last(self) except? 0
    cpdef int delete_files(self) except -1
    cdef int put_back_unread(self) except -1
    cdef bint put_back(self, str path) except -1
    cdef int close_files(self) except -1
    cdef int release(self) except -1
    cdef bint close_idle(self) except -1
    cdef int note_checkpoint(self, Place place) except -1
