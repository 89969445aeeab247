"""Refuses what nsqd would refuse by closing the connection."""

cimport cython
from libc.stdint cimport uint32_t
from libc.string cimport memcpy

from nsqfast._ext.core.limits cimport LENGTH_SIZE, MPUB_SIZE_MAX
from nsqfast._ext.core.message cimport get_be32, put_be32

from nsqfast.errors import PublishError, PublishRefusedError


@cython.final
cdef class Encoded:
    """The bodies of one MPUB as they are sent, for callers who have them in one block anyway."""

    def __len__(self):
        return self.count

    def bodies(self):
        """Return the bodies as a list."""
        cdef const char *place = <const char *> self.data + 4
        cdef list found = []
        cdef uint32_t size
        for _ in range(self.count):
            size = get_be32(place)
            found.append(place[4:4 + size])
            place += 4 + size
        return found


cdef Encoded make_encoded(bytes data, Py_ssize_t count):
    """The caller guarantees that `data` is well-formed."""
    cdef Encoded made = Encoded.__new__(Encoded)
    made.data = data
    made.count = count
    return made


cdef str name_cure(object body):
    """What makes bytes of it."""
    if isinstance(body, str):
        return "write text.encode()"
    return "Producer(..., encoder=nsqfast.client.payload.encode_json) makes JSON of objects"


cdef Py_ssize_t message_count(object body) except -1:
    """How many messages a publish has: `body` is bytes, a list of them, or Encoded."""
    return 1 if type(body) is bytes else len(body)


cpdef bytes check_body(object body):
    """The slow path of `as_body`."""
    if type(body) is not bytes:
        if not isinstance(body, (bytes, bytearray, memoryview)):
            raise TypeError(f"a message body is bytes, not {type(body).__name__}: {name_cure(body)}")
        body = bytes(body)
    if len(<bytes> body) == 0:
        raise PublishRefusedError("E_BAD_MESSAGE PUB invalid message body size 0")
    if len(<bytes> body) > BODY_SIZE_MAX:
        raise PublishError(f"{len(<bytes> body)} bytes are too many for one message")
    return <bytes> body


cdef Py_ssize_t as_bodies(list bodies, list kept) except -1:
    """Append the bodies of an MPUB to `kept`; return their size, including the size field of each."""
    cdef Py_ssize_t size = 0
    cdef bytes one
    for body in bodies:
        one = as_body(body)
        kept.append(one)
        size += 4 + len(one)
    if size > MPUB_SIZE_MAX - LENGTH_SIZE:
        raise PublishError(f"{size} bytes are too many for one publish")
    return size


cdef int write_many(WriteBuffer out, bytes head, object body, Py_ssize_t size) except -1:
    """Write an MPUB as `write_publish` does: a list, or Encoded."""
    cdef Py_ssize_t head_size = len(head)
    cdef char *place
    cdef bytes one
    if type(body) is Encoded:
        place = out.reserve(head_size + 8 + size)
        memcpy(place, <const char *> head, head_size)
        put_body(place + head_size, (<Encoded> body).data)
        return 0
    place = out.reserve(head_size + 8 + size)
    memcpy(place, <const char *> head, head_size)
    put_be32(place + head_size, <uint32_t> (4 + size))
    put_be32(place + head_size + 4, <uint32_t> len(<list> body))
    place += head_size + 8
    for one in <list> body:
        put_body(place, one)
        place += 4 + len(one)
    return 0


cdef int write_checked(WriteBuffer out, bytes head, object body) except -1:
    """The same for bodies that were not checked yet."""
    cdef list kept
    cdef bytes one
    if isinstance(body, list):
        kept = []
        return write_publish(out, head, kept, as_bodies(body, kept))
    one = as_body(body)
    return write_publish(out, head, one, len(one))


cdef inline void put_body(char *place, bytes body) noexcept:
    put_be32(place, <uint32_t> len(body))
    memcpy(place + 4, <const char *> body, len(body))


def encode(bytes head not None, object body):
    """Return the bytes of one publish; `body` is bytes, or a list of them."""
    cdef WriteBuffer out = WriteBuffer()
    write_checked(out, head, body)
    return out.take()
