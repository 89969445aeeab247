"""The permissions of a client, if auth servers are configured (spec nsqd-tcp §11)."""

cimport cython
from libc.stdint cimport int64_t

from nsqfast._ext.broker.consumer cimport Client
from nsqfast._ext.broker.registry cimport Registry
from nsqfast._ext.core.heap cimport Timed, Timers
from nsqfast._ext.core.usage cimport Usage


cdef class Pause(Timed):
    cdef Client client


@cython.final
cdef class Auth(Timed):
    cdef Registry registry
    cdef Timers timers
    cdef Client client
    cdef bint is_required                     # auth servers are configured
    cdef readonly object grant                # the answer of one of them (nsqfast.nsqd.auth.Grant); None before AUTH
    cdef int64_t granted_until_ns
    cdef int64_t publish_until_ns             # of the grant, for the last topic published to; 0 = not looked up yet
    cdef bytes secret
    cdef object question  # the pending request to an auth server; cancelled when nobody waits for it
    cdef bint is_awaited                      # the blocked command waits for that
    cdef bint is_asked                        # it is AUTH itself
    cdef object error                         # ProtocolError that ends the connection; None = there is none
    cdef Usage usage                          # of its identity, among which it counts; None = it has no limits
    cdef Pause pause                          # until it may publish again; None before the first
    cdef str topic, channel                   # of its subscription; None without one

    cdef bint authenticate(self, bytes secret) except -1
    cdef bint may(self, str command, str topic, str channel) except -1
    cdef int ask(self) except -1
    cdef int cancel(self) except -1
    cdef int join(self) except -1
    cdef bint must_pause(self, int64_t count) except -1
    cdef int watch(self, str topic, str channel) except -1
    cdef int unwatch(self) except -1
    cdef bint is_withdrawn(self, object grant, bint is_refused) except -1
