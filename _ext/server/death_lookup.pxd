"""What a consumer asks of the dead letters that it has (DEATHS)."""

cimport cython

from nsqfast._ext.broker.consumer cimport Client
from nsqfast._ext.broker.registry cimport Registry


@cython.final
cdef class DeathLookup:
    cdef Registry registry
    cdef Client client
    cdef object question     # the future of the answer; None = nobody waits for one
    cdef bytes answer        # to the command that is blocked; None = it has not come

    cdef bytes find(self, str topic_name, bytes ids)
    cdef int ask(self, str topic_name, bytes ids) except -1
    cdef int cancel(self) except -1
