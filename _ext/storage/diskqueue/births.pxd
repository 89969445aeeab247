"""Where the commit log says that a queue was made; a start removes those whose names it does not have."""

from libc.stdint cimport uint64_t


cdef str birth_line(bytes epoch, uint64_t sequence)
cdef bint remove_without_metadata(str folder, object named, str name) except -1
cdef int remove_unnamed(str folder, object named, bytes epoch, uint64_t first) except -1
