"""Finds one deferred message of a channel by its id, to queue or drop it now."""

from libc.stdint cimport uint32_t, uint64_t

from nsqfast._ext.broker.channel cimport Channel
from nsqfast._ext.core.message cimport Delivery


cdef class Deferral:
    cdef Channel channel
    cdef uint64_t id
    cdef Delivery **suspects     # the deferred deliveries when it was created
    cdef uint32_t count
    cdef uint32_t examined

    cdef Delivery *find_some(self) noexcept
    cdef bint is_deferred(self, Delivery *delivery) noexcept
