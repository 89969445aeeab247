"""The bodies of /mpub, as lines or with their sizes in front; each check returns how many messages there are."""

from libc.string cimport memchr

from nsqfast._ext.message cimport get_be32

from nsqfast.errors import ProtocolError


cdef uint64_t check_binary(const char *data, Py_ssize_t size, int64_t message_size_max, int64_t body_size_max) except 0:
    """count(4) {size(4) body}...; ProtocolError BAD_BODY or BAD_MESSAGE (spec nsqd-http §3)."""
    cdef Py_ssize_t offset = 4, message_size
    cdef uint64_t count, _
    if size < 4:
        raise ProtocolError("BAD_BODY")
    count = get_be32(data)
    if not 0 < count <= <uint64_t> ((body_size_max - 4) // 5):
        raise ProtocolError("BAD_BODY")
    for _ in range(count):
        if size - offset < 4:
            raise ProtocolError("BAD_MESSAGE")
        message_size = get_be32(data + offset)
        if not 0 < message_size <= message_size_max or size - offset - 4 < message_size:
            raise ProtocolError("BAD_MESSAGE")
        offset += 4 + message_size
    return count


cdef uint64_t check_lines(const char *data, Py_ssize_t size, Py_ssize_t message_size_max) except? 0:
    """Empty lines are no messages; ProtocolError MSG_TOO_BIG."""
    cdef Py_ssize_t line_size
    cdef uint64_t count = 0
    while size > 0:
        line_size = line_length(data, size)
        if line_size > message_size_max:
            raise ProtocolError("MSG_TOO_BIG")
        count += line_size > 0
        data += line_size + 1
        size -= line_size + 1
    return count


cdef Py_ssize_t line_length(const char *data, Py_ssize_t size) noexcept:
    cdef const char *newline = <const char *> memchr(data, c"\n", size)
    return size if newline is NULL else newline - data


cdef Py_ssize_t skip_bodies(const char *data, uint64_t count) noexcept:
    """The size of so many {size(4) body}, which were checked."""
    cdef Py_ssize_t offset = 0
    cdef uint64_t _
    for _ in range(count):
        offset += 4 + <Py_ssize_t> get_be32(data + offset)
    return offset
