"""What nsqd would refuse, and with it the connection, is refused here."""

cimport cython
from libc.stdint cimport uint32_t
from libc.string cimport memcpy

from nsqfast._ext.core.limits cimport LENGTH_SIZE, MPUB_SIZE_MAX
from nsqfast._ext.core.message cimport get_be32, put_be32

from nsqfast.errors import PublishError, PublishRefusedError


@cython.final
cdef class Encoded:
    """The bodies of one MPUB as they go over the wire, for those who have them in one block anyway."""

    def __len__(self):
        return self.count

    def bodies(self):
        """Each on its own."""
        cdef const char *place = <const char *> self.data + 4
        cdef list found = []
        cdef uint32_t size
        for _ in range(self.count):
            size = get_be32(place)
            found.append(place[4:4 + size])
            place += 4 + size
        return found


cdef Encoded make_encoded(bytes data, Py_ssize_t count):
    """`data` is well-formed; whoever made it sees to that."""
    cdef Encoded made = Encoded.__new__(Encoded)
    made.data = data
    made.count = count
    return made


cdef Py_ssize_t message_count(object body) except -1:
    """How many a publish has: `body` is bytes, a list of them, or Encoded."""
    return 1 if type(body) is bytes else len(body)


cdef bytes check_body(object body):
    """What `as_body` cannot say yes to at once."""
    if type(body) is not bytes:
        if not isinstance(body, (bytes, bytearray, memoryview)):
            raise TypeError(f"a message body is bytes, not {type(body).__name__}")
        body = bytes(body)
    if len(<bytes> body) == 0:
        raise PublishRefusedError("E_BAD_MESSAGE PUB invalid message body size 0")
    if len(<bytes> body) > BODY_SIZE_MAX:
        raise PublishError(f"{len(<bytes> body)} bytes are too many for one message")
    return <bytes> body


cdef Py_ssize_t as_bodies(list bodies, list kept) except -1:
    """Append the bodies of an MPUB to `kept`; returns what they take, with the size that stands before each."""
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
    """MPUB, as `write_publish` has it: a list, or Encoded."""
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
    """The same for what nobody has looked at yet."""
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
    """The bytes of one publish; `body` is bytes, or a list of them."""
    cdef WriteBuffer out = WriteBuffer()
    write_checked(out, head, body)
    return out.take()
