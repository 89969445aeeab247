"""Three levels below one ceiling, so that messages that can go to disk do so before any client is refused."""

from cpython.ref cimport Py_INCREF
from libc.stdint cimport INT64_MAX

from weakref import WeakSet

cdef extern from "core/pool.h":
    Account *pool_make "nsq_pool_make"(void *owner)
    void pool_end "nsq_pool_end"(Account *account)
    void pool_trim "nsq_pool_trim"(Account *account)

# Of this process, for figures that tests look at.
memories = WeakSet()


cdef class Memory:
    """What the messages and buffers of one broker hold, and the pool that its messages come from."""

    def __cinit__(self, int64_t ceiling=0):
        self.account = pool_make(<void *> self)
        if self.account is NULL:
            raise MemoryError
        self.set_ceiling(ceiling)
        memories.add(self)

    def __dealloc__(self):
        pool_end(self.account)

    def set_ceiling(self, int64_t ceiling):
        """Set the ceiling in bytes; 0 = none. What is counted already remains counted."""
        self.account.spill = ceiling // 4 * 3 if ceiling else INT64_MAX
        self.account.slow = ceiling // 8 * 7 if ceiling else INT64_MAX
        self.account.full = ceiling if ceiling else INT64_MAX
        charge(self.account, 0)

    def charge_bytes(self, int64_t size):
        """Count so many bytes more, or fewer if negative. For buffers that Python holds."""
        charge(self.account, size)

    def is_full(self):
        """Whether buffers must not grow."""
        return self.account.level >= MEMORY_FULL

    def release_free(self):
        """Return to the system what drained queues, or a start, left behind."""
        pool_trim(self.account)

    def used_bytes(self):
        """Bytes counted now."""
        return self.account.used


# Of what belongs to no broker: a client's buffers, those of the tools and of other daemons.
process_memory = Memory()


cdef Account *account_of(Memory memory) except NULL:
    cdef Memory found = process_memory if memory is None else memory
    Py_INCREF(found)
    return found.account
