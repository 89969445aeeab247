"""The state of all data files of a process: failing operations, since when, and bytes read and written."""

from libc.stdint cimport int64_t, uint64_t


cdef class Trouble:
    """One kind of operation, from its first failure to its next success."""
    cdef str verb                  # 'writing'
    cdef str error                 # the last one
    cdef dict failing              # queue -> (when it last failed, whether the cause is its own)
    cdef set queues                # those that failed since the last line
    cdef uint64_t refused_since    # messages, since the last line
    cdef uint64_t refused_count    # messages, since the trouble began
    cdef int64_t begun_ns
    cdef int64_t told_ns           # when the last ERROR was logged
    cdef int64_t ended_ns          # 0 = it never happened
    cdef bint is_told              # its begin was logged, but not its end

    cdef int begin(self, str queue, str error, bint is_own, int64_t now_ns) except -1
    cdef int end(self, str queue, int64_t now_ns) except -1
    cdef int drop(self, str queue, int64_t now_ns) except -1
    cdef int check_over(self, int64_t now_ns) except -1
    cdef int tell(self, int64_t now_ns) except -1


cdef class Health:
    cdef Trouble writing
    cdef Trouble syncing
    cdef Trouble reading
    cdef public object low_disk    # why no message is taken, as nsqfast.nsqd.data_folder wants; None = they are
    cdef str given_up              # unreadable data skipped since the last successful write; '' = none
    cdef readonly bint is_failing          # any of them
    cdef readonly uint64_t written_bytes   # of records, since the start
    cdef readonly uint64_t read_bytes
    cdef readonly uint64_t unreadable_bytes    # skipped because the disk did not return them
    cdef int64_t read_at_ns        # when a read that waited for the disk succeeded last
    cdef int64_t asked_at_ns       # when the disk was asked last whether it returns anything

    cdef OSError fail(self, str operation, str path, int error)    # the caller raises it
    cdef int fail_reading(self, str path, object error) except -1
    cdef int wrote(self, str path) except -1
    cdef int was_read(self, str path) except -1
    cdef int synced(self) except -1
    cpdef int refused(self, uint64_t count) except -1
    cdef int forget(self, str path) except -1
    cdef int give_up(self, str path, int error, str ranges, uint64_t size) except -1
    cdef int update_is_failing(self) except -1
    cdef Trouble trouble(self, str operation)
