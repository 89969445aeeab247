"""The ceiling for messages and buffers (--max-memory), and how near to it a broker is."""

from libc.stdint cimport int64_t


cdef extern from "core/memory.h":
    const int64_t SLAB_SIZE "NSQ_SLAB_SIZE"
    ctypedef struct Account "nsq_account":
        int64_t used
        int64_t spare
        int64_t spill
        int64_t slow
        int64_t full
        int level
        void *owner
    void charge "nsq_charge"(Account *account, int64_t size)
    # Of __dealloc__: the bytes that are still counted, and the reference that account_of() took.
    void leave_account "nsq_account_leave"(Account *account, int64_t size)


cdef enum MemoryLevel:
    MEMORY_AMPLE = 0
    MEMORY_SPILL = 1      # from 3/4 on: messages go to disk, the memory queues accept no more
    MEMORY_SLOW = 2       # from 7/8 on: no new deferred messages, and a channel reads from disk one message at a time
    MEMORY_FULL = 3       # no input may outgrow its first buffer


cdef class Memory:
    cdef Account *account
    cdef object __weakref__


# Of None: that of what belongs to no broker. Its keeper leaves it.
cdef Account *account_of(Memory memory) except NULL
