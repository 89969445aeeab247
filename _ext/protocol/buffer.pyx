"""A ReadBuffer doubles only when it is full of bytes that did arrive, so a peer that announces a size costs nothing.

It keeps its size while the peer goes on sending as much, because growing again for every large message costs more than
the message itself; it shrinks after a while of less input, or when nothing comes at all.
"""

from cpython.bytes cimport PyBytes_AS_STRING
from cpython.object cimport PyObject
from cpython.pyport cimport PY_SSIZE_T_MAX
from libc.stdlib cimport malloc
from libc.string cimport memcpy, memmove

from nsqfast._ext.core.debug cimport NSQFAST_DEBUG
from nsqfast._ext.core.memory cimport Memory, account_of, charge, leave_account


cdef extern from "core/block.h":
    void *nsq_block_resize(void *block, Py_ssize_t before, Py_ssize_t size)
    void nsq_block_free(void *block, Py_ssize_t size)


cdef extern from "Python.h":
    PyObject *PyBytes_FromStringAndSize(const char *data, Py_ssize_t size) except NULL
    int _PyBytes_Resize(PyObject **block, Py_ssize_t size) except -1
    void keep "Py_INCREF"(PyObject *held)
    void drop "Py_DECREF"(PyObject *held)


cdef enum:
    WRITE_SIZE = 4096
    # Copying more than this costs more than a new block.
    WRITE_KEPT_SIZE_MAX = 262144
    CALM_COUNT_MAX = 64


cdef class ReadBuffer:
    """Its buffer interface exposes the free part: a transport reads into that and calls `advance`."""

    def __cinit__(self, Py_ssize_t size_min, Memory memory=None):
        self.account = account_of(memory)
        self.size_min = size_min
        self.capacity = size_min
        self.read_max = PY_SSIZE_T_MAX
        self.data = <char *> malloc(size_min)
        if self.data is NULL:
            raise MemoryError

    def __dealloc__(self):
        leave_account(self.account, self.capacity + self.claimed - self.size_min)
        nsq_block_free(self.data, self.capacity)

    def __getbuffer__(self, Py_buffer *view, int flags):
        self.make_room()
        view.obj = self
        view.buf = self.data + self.end
        view.len = min(self.capacity - self.end, self.read_max)
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
        """The size of the part that is exposed; asyncio's own loop asks for it before a read."""
        self.make_room()
        return min(self.capacity - self.end, self.read_max)

    cdef int make_room(self) except -1:
        """Have at least a quarter of the capacity free."""
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
        """Shrink to the smallest size if nothing is in it."""
        self.calm_count = 0
        if self.start == self.end and self.view_count == 0 and self.capacity > self.size_min:
            self.start = self.end = 0
            return self.resize(self.size_min)
        return 0

    cdef int resize(self, Py_ssize_t capacity) except -1:
        cdef char *data = <char *> nsq_block_resize(self.data, self.capacity, capacity)
        if data is NULL:
            raise MemoryError
        charge(self.account, capacity - self.capacity - self.claimed)
        self.claimed = 0
        self.data = data
        self.capacity = capacity
        return 0

    cdef bint is_tight(self) noexcept:
        """Whether it must grow for further input."""
        return self.capacity - (self.end - self.start) < self.capacity // 4

    cdef bint claim_room(self) noexcept:
        """Whether it may grow for further input, below the memory ceiling.

        The growth is counted at once: many buffers can fill in one turn of the loop, and all of them grow in the next.
        """
        if not self.is_tight():
            if self.claimed:  # its content was parsed after all
                charge(self.account, -self.claimed)
                self.claimed = 0
            return True
        if self.claimed:
            return True
        if self.account.used + self.capacity > self.account.full:
            return False
        self.claimed = self.capacity
        charge(self.account, self.claimed)
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
        """Add `size` bytes, which were written to the front of the free part."""
        assert 0 <= size <= self.capacity - self.end
        self.end += size

    def discard(self, Py_ssize_t size):
        """Drop `size` bytes from the front; they were parsed."""
        assert 0 <= size <= self.end - self.start
        self.consume(size)

    def waiting(self):
        """A copy of the bytes that were not parsed yet."""
        return self.data[self.start:self.end]


cdef class WriteBuffer:
    """Grows by doubling; `take` hands its block over without copying it, and the next byte starts a new one."""

    def __cinit__(self):
        self.block = None
        self.data = NULL

    cdef char *reserve(self, Py_ssize_t size) except NULL:
        """Return where to write the next `size` bytes; they count as written."""
        cdef Py_ssize_t wanted = self.size + size
        cdef char *place
        if wanted > self.capacity or self.data is NULL:
            self.grow(wanted)
        place = self.data + self.size
        self.size = wanted
        return place

    cdef int grow(self, Py_ssize_t wanted) except -1:
        # A turn usually writes about as much as the one before.
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
        """Return everything gathered as bytes that are never written to again."""
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
        """Drop everything gathered, and keep the block for later output unless it is large."""
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
        held = None  # a block with a second owner cannot be shrunk
        _PyBytes_Resize(&block, self.size)
        taken = <bytes> block
        drop(block)
        return taken

    def write(self, bytes data):
        """Append `data`."""
        self.append(data, len(data))

    def taken(self):
        """Return what `take` returns."""
        return self.take()
