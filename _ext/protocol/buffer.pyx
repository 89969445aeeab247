"""A ReadBuffer doubles only when it is full of bytes that did arrive, so a peer's claim of a size costs nothing.

It keeps its size while the peer goes on sending as much, because growing again for every large message costs more than
the message, and gives it back after a while of less, or when nothing comes at all.
"""

from cpython.bytes cimport PyBytes_AS_STRING
from cpython.object cimport PyObject
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcpy, memmove

from nsqfast._ext.core.debug cimport NSQFAST_DEBUG
from nsqfast._ext.core.memory cimport account, charge


cdef extern from "Python.h":
    PyObject *PyBytes_FromStringAndSize(const char *data, Py_ssize_t size) except NULL
    int _PyBytes_Resize(PyObject **block, Py_ssize_t size) except -1
    void keep "Py_INCREF"(PyObject *held)
    void drop "Py_DECREF"(PyObject *held)


cdef enum:
    WRITE_SIZE = 4096
    # Copying as much as this costs more than a new block.
    WRITE_KEPT_SIZE_MAX = 262144
    CALM_COUNT_MAX = 64


cdef class ReadBuffer:
    """Its buffer interface is the free part: a transport reads into it, then `advance` counts what came."""

    def __cinit__(self, Py_ssize_t size_min):
        self.size_min = size_min
        self.capacity = size_min
        self.data = <char *> malloc(size_min)
        if self.data is NULL:
            raise MemoryError

    def __dealloc__(self):
        charge(&account, self.size_min - self.capacity - self.claimed)
        free(self.data)

    def __getbuffer__(self, Py_buffer *view, int flags):
        self.make_room()
        view.obj = self
        view.buf = self.data + self.end
        view.len = self.capacity - self.end
        view.readonly = 0
        view.itemsize = 1
        view.format = NULL
        view.ndim = 1
        view.shape = &view.len
        view.strides = &view.itemsize
        view.suboffsets = NULL
        view.internal = NULL
        self.view_count += 1

    def __releasebuffer__(self, Py_buffer *view):
        self.view_count -= 1

    def __len__(self):
        """Of the free part; asyncio's own loop asks."""
        return self.capacity - self.end

    cdef int make_room(self) except -1:
        """At least a quarter of the capacity is free afterwards."""
        assert self.view_count == 0, "a transport still writes into this buffer"
        cdef Py_ssize_t waiting = self.end - self.start
        if self.start > 0:
            memmove(self.data, self.data + self.start, waiting)
            self.start = 0
            self.end = waiting
        if waiting == 0 and self.calm_count > CALM_COUNT_MAX:
            return self.trim()
        if self.is_tight():
            return self.resize(self.capacity * 2)
        return 0

    cdef int trim(self) except -1:
        """Back to the least size, if nothing is in it."""
        self.calm_count = 0
        if self.start == self.end and self.view_count == 0 and self.capacity > self.size_min:
            self.start = self.end = 0
            return self.resize(self.size_min)
        return 0

    cdef int resize(self, Py_ssize_t capacity) except -1:
        cdef char *data = <char *> realloc(self.data, capacity)
        if data is NULL:
            raise MemoryError
        charge(&account, capacity - self.capacity - self.claimed)
        self.claimed = 0
        self.data = data
        self.capacity = capacity
        return 0

    cdef bint is_tight(self) noexcept:
        """Whether it grows for what comes next."""
        return self.capacity - (self.end - self.start) < self.capacity // 4

    cdef bint claim_room(self) noexcept:
        """Whether it may grow for what comes next, below the ceiling of memory.

        That is counted from now on: many can be full in one turn of the loop, and all of them grow in the next.
        """
        if not self.is_tight():
            if self.claimed:  # what filled it was parsed after all
                charge(&account, -self.claimed)
                self.claimed = 0
            return True
        if self.claimed:
            return True
        if account.used + self.capacity > account.full:
            return False
        self.claimed = self.capacity
        charge(&account, self.claimed)
        return True

    cdef int append(self, const char *data, Py_ssize_t size) except -1:
        cdef Py_ssize_t capacity
        if self.capacity - self.end < size:
            self.make_room()
            capacity = self.capacity
            while capacity - self.end < size:
                capacity *= 2
            self.resize(capacity)
        memcpy(self.data + self.end, data, size)
        self.end += size
        return 0

    cdef void consume(self, Py_ssize_t size) noexcept:
        if NSQFAST_DEBUG:
            assert 0 <= size <= self.end - self.start, "more was consumed than had come"
        self.start += size
        if self.start == self.end:
            self.calm_count = self.calm_count + 1 if self.end * 4 < self.capacity else 0
            self.start = 0
            self.end = 0

    def advance(self, Py_ssize_t size):
        """`size` bytes were written at the front of the free part."""
        assert 0 <= size <= self.capacity - self.end
        self.end += size

    def discard(self, Py_ssize_t size):
        """`size` bytes from the front were parsed."""
        assert 0 <= size <= self.end - self.start
        self.consume(size)

    def waiting(self):
        """A copy of what was not parsed yet."""
        return self.data[self.start:self.end]


cdef class WriteBuffer:
    """Grows by doubling; `take` hands the block over without copying it, and the next byte starts a new one."""

    def __cinit__(self):
        self.block = None
        self.data = NULL

    cdef char *reserve(self, Py_ssize_t size) except NULL:
        """Where the next `size` bytes go; they count as written."""
        cdef Py_ssize_t wanted = self.size + size
        cdef char *place
        if wanted > self.capacity or self.data is NULL:
            self.grow(wanted)
        place = self.data + self.size
        self.size = wanted
        return place

    cdef int grow(self, Py_ssize_t wanted) except -1:
        # One turn is mostly like the one before.
        cdef Py_ssize_t capacity = self.capacity * 2 if self.capacity else max(WRITE_SIZE, self.size_before)
        cdef PyObject *block
        cdef object fresh
        while capacity < wanted:
            capacity *= 2
        block = PyBytes_FromStringAndSize(NULL, capacity)
        fresh = <object> block
        drop(block)
        if self.size:
            memcpy(PyBytes_AS_STRING(fresh), self.data, self.size)
        self.block = fresh
        self.data = PyBytes_AS_STRING(fresh)
        self.capacity = capacity
        return 0

    cdef int append(self, const char *data, Py_ssize_t size) except -1:
        memcpy(self.reserve(size), data, size)
        return 0

    cdef bytes take(self):
        """All that was gathered, as bytes that nobody writes to any more."""
        cdef bytes taken
        if self.size == 0:
            return b""
        self.size_before = self.size
        if self.size * 2 >= self.capacity and self.size > 512:
            taken = self.hand_over()
        else:
            taken = self.data[:self.size]
        self.size = 0
        return taken

    cdef int clear(self) except -1:
        """Forget what was gathered, and keep the block for what comes next unless it is a large one."""
        self.size = 0
        if self.capacity > WRITE_KEPT_SIZE_MAX:
            self.block = None
            self.data = NULL
            self.capacity = 0
        return 0

    cdef bytes hand_over(self):
        cdef PyObject *block
        cdef bytes taken
        cdef object held = self.block
        self.block = None
        self.data = NULL
        self.capacity = 0
        block = <PyObject *> held
        keep(block)
        held = None  # a block with a second owner cannot be cut to size
        _PyBytes_Resize(&block, self.size)
        taken = <bytes> block
        drop(block)
        return taken

    def write(self, bytes data):
        """Append `data`."""
        self.append(data, len(data))

    def taken(self):
        """What `take` gives."""
        return self.take()
