"""A publish as the client sends it: PUB and DPUB with one body, MPUB with several (spec nsqd-tcp §5)."""

from nsqfast._ext.buffer cimport WriteBuffer

#   PUB, DPUB   line | size | body
#   MPUB        line | size of the rest | count | size | body | size | body ...

cdef bytes as_body(object body)
cdef Py_ssize_t as_bodies(list bodies, list kept) except -1
cdef int write_publish(WriteBuffer out, bytes head, object body, Py_ssize_t size) except -1
cdef int write_checked(WriteBuffer out, bytes head, object body) except -1
