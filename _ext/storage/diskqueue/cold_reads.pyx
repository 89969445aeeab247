"""What the page cache has is read at once; for anything else a thread waits, and a consumer waits for it alone."""

from libc.stdlib cimport calloc
from posix.unistd cimport dup

from nsqfast._ext.core.clock cimport monotonic_ns


cdef extern from "storage/diskqueue/cold_reads.h" nogil:
    Thread *thread_start "nsq_cold_reader_start"(int event_fd)
    void thread_add "nsq_cold_reader_add"(Thread *thread, ColdRead *read)
    ColdRead *thread_take "nsq_cold_reader_take"(Thread *thread)
    ColdRead *thread_stop "nsq_cold_reader_stop"(Thread *thread)
    void read_free "nsq_cold_read_free"(ColdRead *read)

cdef extern from "stdlib.h" nogil:
    int posix_memalign(void **memory, size_t alignment, size_t size)

cdef enum:
    PAGE_SIZE = 4096    # as a descriptor with O_DIRECT wants its memory


cdef class ReadOwner:

    cdef int end_read(self, ColdRead *done) except -1:
        """It was read, as far as `got` and `error` say. The data may be taken out of it."""
        return 0


cdef class ColdReads:
    """One for all queues of a broker: a disk that is slow for one is slow for all."""

    def __init__(self, Syncer syncer not None, Timers timers not None):
        self.syncer, self.timers = syncer, timers

    def __dealloc__(self):
        self.stop()

    cdef bint request(self, ReadOwner owner, int fd, int64_t position, int64_t size) except -1:
        """Have these bytes read; False: nothing is left for that, so the caller has to wait itself."""
        cdef ColdRead *read = <ColdRead *> calloc(1, sizeof(ColdRead))
        if read is NULL:
            return False
        read.fd = dup(fd)
        if posix_memalign(<void **> &read.data, PAGE_SIZE, size):
            read.data = NULL
        read.position, read.size = position, size
        if self.thread is NULL:
            self.thread = thread_start(dup(self.syncer.fileno()))
        if read.fd < 0 or read.data is NULL or self.thread is NULL:
            read_free(read)
            return False
        read.owner = <void *> owner
        owner.pending = read
        thread_add(self.thread, read)
        return True

    cdef int collect(self) except -1:
        """Give what was read to those who asked, and let them go on in this turn."""
        cdef ColdRead *done = thread_take(self.thread) if self.thread is not NULL else NULL
        cdef ColdRead *next
        cdef ReadOwner owner
        while done is not NULL:
            next = done.next
            if done.owner is not NULL:
                owner = <ReadOwner> done.owner
                owner.pending = NULL
                try:
                    owner.end_read(done)
                except OSError:     # the next take() has it again, and the broker's health reports it
                    pass
                if owner.taker is not None:
                    self.timers.arm(owner.taker, monotonic_ns())
            read_free(done)
            done = next
        return 0

    cdef void stop(self) noexcept:
        cdef ColdRead *left = NULL
        cdef ColdRead *next
        if self.thread is not NULL:
            with nogil:
                left = thread_stop(self.thread)
            self.thread = NULL
        while left is not NULL:
            next = left.next
            if left.owner is not NULL:
                (<ReadOwner> left.owner).pending = NULL
            read_free(left)
            left = next
