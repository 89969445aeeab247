"""ReadBuffer: input that is not parsed yet. WriteBuffer: the output of one loop turn."""

from libc.stdint cimport int64_t

from nsqfast._ext.core.memory cimport Account


cdef class ReadBuffer:
    #   data            start            end            capacity
    #    | parsed        | to be parsed   | free          |
    cdef Account *account
    cdef char *data
    cdef Py_ssize_t start
    cdef Py_ssize_t end
    cdef Py_ssize_t capacity
    cdef Py_ssize_t size_min
    cdef Py_ssize_t claimed      # bytes that are counted before the buffer grows by them
    cdef Py_ssize_t view_count
    cdef public Py_ssize_t read_max     # bytes that one read may bring
    cdef int calm_count          # reads in a row that would have fitted into a quarter

    cdef int make_room(self) except -1
    cdef int trim(self) except -1
    cdef bint is_tight(self) noexcept
    cdef bint claim_room(self) noexcept
    cdef int append(self, const char *data, Py_ssize_t size) except -1
    cdef void consume(self, Py_ssize_t size) noexcept
    cdef int resize(self, Py_ssize_t capacity) except -1


cdef class WriteBuffer:
    cdef object block        # bytes of `capacity`, which take() hands over whole; None when nothing is gathered
    cdef char *data
    cdef Py_ssize_t size
    cdef Py_ssize_t capacity
    cdef Py_ssize_t size_before  # of what was taken last

    cdef char *reserve(self, Py_ssize_t size) except NULL
    cdef int append(self, const char *data, Py_ssize_t size) except -1
    cdef bytes take(self)
    cdef int clear(self) except -1
    cdef int grow(self, Py_ssize_t wanted) except -1
    cdef bytes hand_over(self)
