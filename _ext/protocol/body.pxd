"""The body of one HTTP request."""


cdef class Body:
    cdef char *data
    cdef Py_ssize_t size
    cdef Py_ssize_t capacity
    cdef Py_ssize_t announced_size   # by Content-Length

    cdef int grow(self, Py_ssize_t wanted) except -1
