"""The bodies of /mpub: checked before the first message is queued."""

from libc.stdint cimport int64_t, uint64_t


cdef uint64_t check_binary(const char *data, Py_ssize_t size, int64_t message_size_max, int64_t body_size_max) except 0
cdef uint64_t check_lines(const char *data, Py_ssize_t size, Py_ssize_t message_size_max) except? 0
cdef Py_ssize_t line_length(const char *data, Py_ssize_t size) noexcept
cdef Py_ssize_t skip_bodies(const char *data, uint64_t count) noexcept
