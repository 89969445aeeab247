"""A body that comes in pieces. It grows without being copied: 5 MB would take longer than a part of a turn. What came
counts as memory until it is freed.
"""

from cpython.buffer cimport PyBuffer_FillInfo
from libc.string cimport memcpy

from nsqfast._ext.core.limits cimport INPUT_SIZE
from nsqfast._ext.core.memory cimport Memory, account_of, charge, leave_account


cdef extern from "core/block.h":
    void *nsq_block_resize(void *block, Py_ssize_t before, Py_ssize_t size)
    void nsq_block_free(void *block, Py_ssize_t size)
    const Py_ssize_t MAPPED_SIZE "NSQ_MAPPED_SIZE"


cdef class Body:
    """Its buffer interface exposes all that came; nothing may be added or freed meanwhile."""

    def __cinit__(self, Py_ssize_t announced_size=0, Memory memory=None):
        self.account = account_of(memory)
        self.announced_size = announced_size

    def __dealloc__(self):
        leave_account(self.account, self.size)
        nsq_block_free(self.data, self.capacity)

    def __len__(self):
        return self.size

    def __getbuffer__(self, Py_buffer *view, int flags):
        PyBuffer_FillInfo(view, self, self.data, self.size, 1, flags)

    def add(self, bytes piece not None):
        """Append it."""
        cdef Py_ssize_t size = len(piece)
        if self.capacity - self.size < size:
            self.grow(self.size + size)
        memcpy(self.data + self.size, <const char *> piece, size)
        self.size += size
        charge(self.account, size)

    cdef int grow(self, Py_ssize_t wanted) except -1:
        # What is announced is taken at once, up to the first mapping: nothing is copied, and memory that is not filled
        # costs nothing. Blocks of malloc that such bodies grow out of would stay with the process.
        cdef Py_ssize_t capacity = max(self.capacity, INPUT_SIZE, min(self.announced_size, MAPPED_SIZE))
        cdef char *data
        while capacity < wanted:
            capacity *= 2
        data = <char *> nsq_block_resize(self.data, self.capacity, capacity)
        if data is NULL:
            raise MemoryError
        self.data = data
        self.capacity = capacity
        return 0

    def free(self):
        """Give the memory back: a large one takes as long as some hundred commands."""
        charge(self.account, -self.size)
        nsq_block_free(self.data, self.capacity)
        self.data = NULL
        self.size = self.capacity = 0
