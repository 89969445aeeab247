"""A command consumes nothing until all of it was received."""

from libc.stdint cimport int32_t

from nsqfast._ext.core.message cimport get_be32

from nsqfast.errors import ProtocolError


cdef class PartialCommand:
    """The state of one connection."""

    def __init__(self, Host host not None):
        self.host = host

    cdef bint more(self, Py_ssize_t need, str code, str detail) except -1:
        """The command needs so many bytes; if no more can come, raise its error."""
        if self.host.at_eof:
            raise ProtocolError(code, detail)
        self.need = need
        return True

    cdef Py_ssize_t sized(self, const char *data, Py_ssize_t size, Line *line, str command, str missing,
                          int64_t size_max) except -2:
        """Return the size field behind the line, in range; -1 = not received yet."""
        cdef int32_t body_size
        if size < line.size + 4:
            self.more(line.size + 4, "E_BAD_BODY", f"{command} {missing}")
            return -1
        body_size = <int32_t> get_be32(data + line.size)
        if body_size <= 0:
            raise ProtocolError("E_BAD_BODY", f"{command} invalid body size {body_size}")
        if body_size > size_max:
            raise ProtocolError("E_BAD_BODY", f"{command} body too big {body_size} > {size_max}")
        return body_size


cdef str text(const char *data, Py_ssize_t size):
    return data[:size].decode("utf-8", "surrogateescape")


cdef object invalid(str detail):
    return ProtocolError("E_INVALID", detail)
