"""The ceiling for messages and buffers (--max-memory), and how near to it the process is."""

from libc.stdint cimport int64_t


cdef extern from "core/memory.h" nogil:
    const int64_t SLAB_SIZE "NSQ_SLAB_SIZE"
    ctypedef struct Account "nsq_account":
        int64_t used
        int64_t spare
        int64_t spill
        int64_t slow
        int64_t full
        int level
    void charge "nsq_charge"(Account *account, int64_t size)


cdef enum MemoryLevel:
    MEMORY_AMPLE = 0
    MEMORY_SPILL = 1      # from 3/4 on: messages go to disk, the memory queues accept no more
    MEMORY_SLOW = 2       # from 7/8 on: no new deferred messages, and a channel reads from disk one message at a time
    MEMORY_FULL = 3       # no input may outgrow its first buffer


cdef Account account      # of this process
