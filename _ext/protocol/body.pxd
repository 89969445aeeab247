"""The body of one HTTP request."""


from nsqfast._ext.core.memory cimport Account


cdef class Body:
    cdef Account *account
    cdef char *data
    cdef Py_ssize_t size
    cdef Py_ssize_t capacity
    cdef Py_ssize_t announced_size   # by Content-Length

    cdef int grow(self, Py_ssize_t wanted) except -1
