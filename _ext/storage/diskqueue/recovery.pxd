"""Decides where a queue starts from the files it finds, and reads and writes the metadata file."""

from libc.stdint cimport int64_t, uint64_t

from nsqfast._ext.storage.diskqueue.ackfile cimport AckFile
from nsqfast._ext.storage.diskqueue.segment cimport Segment
from nsqfast._ext.storage.diskqueue.replay cimport ReplayedQueue
from nsqfast._ext.storage.diskqueue.syncer cimport OpenFile, Syncer


cdef class Recovered:
    cdef AckFile acks           # None: nothing to store yet
    cdef uint64_t cursor
    cdef int64_t cursor_file
    cdef int64_t cursor_position
    cdef uint64_t written
    cdef int64_t write_file
    cdef int64_t write_position
    cdef int64_t first_file     # no file has a lower number
    cdef int64_t unacked
    cdef int64_t sealed_file    # see DiskPosition
    cdef int64_t sealed_position
    cdef bint is_new            # it has no file at all
    cdef bint is_killed         # its bits were set by a killed process, which may not have synced what they depend on
    cdef bint is_shorter            # than the log says: what it says of single records does not hold
    cdef bint is_whole          # indexes are the same as when the queue was closed
    cdef str meta_text          # content of the metadata file; '' if that is not good enough


# None: another broker has been here since.
cdef Recovered resume_logged(str name, str prefix, ReplayedQueue logged)
cdef Recovered recover(str name, str prefix, bint has_log, bint was_open)
cdef OpenFile *draft_meta(str draft, str text, Syncer syncer) except NULL
cdef int install_meta(str draft, str prefix, list numbers, AckFile acks, Syncer syncer) except -1
cdef str meta_of(list numbers)
cdef int64_t record_start(str prefix, int64_t file, int64_t position) except -1
cdef int set_aside(str name, Segment segment, int64_t start, int64_t end) except -1
