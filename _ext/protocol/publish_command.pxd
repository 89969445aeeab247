"""A publish as the client sends it: PUB and DPUB with one body, MPUB with several (spec nsqd-tcp §5)."""

from libc.stdint cimport uint32_t
from libc.string cimport memcpy

from nsqfast._ext.core.limits cimport BODY_SIZE_MAX
from nsqfast._ext.core.message cimport put_be32
from nsqfast._ext.protocol.buffer cimport WriteBuffer

#   PUB, DPUB   line | size | body
#   MPUB        line | size of the rest | count | size | body | size | body ...

cdef class Encoded:
    cdef readonly bytes data    # count | size | body | size | body ...
    cdef readonly Py_ssize_t count


cdef Encoded make_encoded(bytes data, Py_ssize_t count)
cdef Py_ssize_t message_count(object body) except -1
cpdef bytes check_body(object body)
cdef Py_ssize_t as_bodies(list bodies, list kept) except -1
cdef int write_many(WriteBuffer out, bytes head, object body, Py_ssize_t size) except -1
cdef int write_checked(WriteBuffer out, bytes head, object body) except -1


# Both are inline because a call into another module would cost a PUB 4 % of its time.

cdef inline bytes as_body(object body):
    """Return one body as bytes; any bytes-like object is accepted."""
    if type(body) is bytes and 0 < len(<bytes> body) <= BODY_SIZE_MAX:
        return <bytes> body
    return check_body(body)


cdef inline int write_publish(WriteBuffer out, bytes head, object body, Py_ssize_t size) except -1:
    """`head` is the line with its newline; `body` is bytes of that size, or a list with the size from `as_bodies`.

    An Encoded contains its count, but `size` does not cover that, as for a list.
    """
    cdef Py_ssize_t head_size
    cdef char *place
    if type(body) is not bytes:
        return write_many(out, head, body, size)
    head_size = len(head)
    place = out.reserve(head_size + 4 + size)
    memcpy(place, <const char *> head, head_size)
    put_be32(place + head_size, <uint32_t> size)
    memcpy(place + head_size + 4, <const char *> <bytes> body, size)
    return 0
