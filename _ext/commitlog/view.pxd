"""A ring as somebody looks at it, while it is written perhaps: its figures, its batches and their records."""

from libc.stdint cimport uint64_t

from nsqfast._ext.commitlog.contents cimport RingContents
from nsqfast._ext.commitlog.recovery cimport Record, Recovery


cdef class RingView:
    cdef RingContents contents
    cdef Recovery recovery
    cdef Record record                      # the next one, if there is one
    cdef bint has_record
    cdef uint64_t[256] kinds                # records that count() saw
    cdef readonly uint64_t payload_bytes    # of them

    cdef tuple locate(self, uint64_t sequence, uint64_t place)
    cdef tuple describe(self)
