"""What a client may do, where auth servers are asked (spec nsqd-tcp §11)."""

from libc.stdint cimport int64_t

from nsqfast._ext.server.host cimport Host


cdef class Auth:
    cdef Host host
    cdef bint is_required                     # there are auth servers
    cdef readonly object grant                # what one of them said (nsqfast.nsqd.auth.Grant); None before AUTH
    cdef int64_t granted_until_ns
    cdef int64_t publish_until_ns             # of that, for the last topic published to; 0 = not looked up yet
    cdef bytes secret
    cdef object question                      # on its way to an auth server; to be cancelled when nobody waits for it
    cdef bint is_asked                        # the blocked command is AUTH itself

    cdef bint authenticate(self, bytes secret) except -1
    cdef bint may(self, str command, str topic, str channel) except -1
    cdef int ask(self) except -1
    cdef int cancel(self) except -1
