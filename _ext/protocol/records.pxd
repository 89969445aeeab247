"""Records in one block of bytes: where each begins and ends, and MPUBs made of them.

No record becomes a Python object. A position is an int64 offset into the block; positions are passed as blocks of bytes
in native byte order, which numpy reads directly.
"""

from libc.stdint cimport int64_t


cdef Py_ssize_t count_pieces(const char *data, Py_ssize_t size, int delimiter) noexcept nogil
cdef Py_ssize_t find_pieces(const char *data, Py_ssize_t size, int delimiter, int64_t *starts,
                            int64_t *ends) noexcept nogil
