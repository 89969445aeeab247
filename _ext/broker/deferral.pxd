"""One deferred message of a channel, found by its id: queued now, or dropped."""

from libc.stdint cimport uint32_t, uint64_t

from nsqfast._ext.broker.channel cimport Channel
from nsqfast._ext.core.message cimport Delivery


cdef class Deferral:
    cdef Channel channel
    cdef uint64_t id
    cdef Delivery **suspects     # those that were deferred when it was made
    cdef uint32_t count
    cdef uint32_t looked_at

    cdef Delivery *find_some(self) noexcept
    cdef bint is_deferred(self, Delivery *delivery) noexcept
