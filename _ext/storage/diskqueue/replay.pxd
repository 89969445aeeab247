"""What the commit log knows of each queue, repeated at a start."""

from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t

from nsqfast._ext.core.in_flight cimport InFlightTable
from nsqfast._ext.core.memory cimport Memory
from nsqfast._ext.core.message cimport Delivery, Message
from nsqfast._ext.storage.diskqueue.ackmapping cimport Place


cdef class ReplayedQueue:
    cdef readonly str name
    cdef readonly uint32_t number
    cdef uint64_t life               # what a checkpoint has seen of it: up to so many records of that batch
    cdef uint64_t sequence
    cdef uint64_t seen
    cdef Memory memory
    cdef Place cursor                # what its files have
    cdef Place written
    cdef bint is_placed              # the places are known; else it had no files
    cdef bint is_carried             # by a checkpoint, and so is what is deferred
    cdef list finished               # indexes in its files
    cdef list holes                  # (first index, bytes of bits)
    cdef bytearray held              # payloads of HELD: index, file, position, due
    cdef InFlightTable table         # what is not known to be in a file, by id
    # In order. `delivered_ns` is when one is due, 0 = at once; `owner` is 1 for those that a checkpoint carried: they
    # were in memory, in front of what is in the files.
    cdef Delivery *oldest
    cdef Delivery *newest

    cdef int add(self, Message *message, uint32_t tries, int64_t due_ns, bint is_carried) except -1
    cdef int finish(self, uint64_t id, uint64_t index) except -1
    cdef int give_back(self, uint64_t id, uint32_t tries, int64_t due_ns) except -1
    cdef int clear(self) except -1
    cdef int append(self, Delivery *delivery) except -1
    cdef int unlink(self, Delivery *delivery) except -1
    cdef Delivery *take(self) noexcept


cdef class Replay:
    cdef Memory memory
    cdef dict by_number              # number -> ReplayedQueue
    cdef dict by_name                # name -> ReplayedQueue
    cdef dict spread_to              # name -> ReplayedQueues that get what has SPREAD under it
    cdef readonly set deleted        # names of queues that were deleted
    cdef readonly uint32_t life      # whose records are being repeated
    cdef int64_t latest_ns           # up to when ids are of messages that it saw
    cdef readonly uint32_t last_number
    cdef readonly bint has_begun     # there are records behind the last clean stop
    cdef readonly uint64_t closed_in # the batch of that stop; 0 = it is not in the log
    cdef uint64_t carried_to         # the batch at which a checkpoint began whose file was repeated; 0 = there is none
    cdef uint64_t sequence           # of the batch whose records are being repeated, and their number
    cdef uint64_t count
    cdef dict pieces                 # (number of a large MPUB, of its piece) -> (the record's subject, its payload)
    cdef set released                # numbers of those of which a piece was released

    cdef int apply(self, uint8_t kind, uint8_t flags, uint16_t extra, uint32_t subject, const char *data, size_t size,
                   uint64_t sequence) except -1
    cdef int name_queue(self, uint32_t number, const char *data, size_t size) except -1
    cdef int publish(self, ReplayedQueue queue, uint8_t flags, uint32_t tries, const char *data,
                     size_t size) except -1
    cdef int put(self, ReplayedQueue queue, bint is_spread, Message *message, uint32_t tries,
                 int64_t due_ns) except -1
    cdef int release(self, ReplayedQueue queue, bint is_spread, bytes piece) except -1
    cdef int end_mpubs(self, uint64_t life) except -1
    cdef int end(self) except -1
    cdef int forget(self, ReplayedQueue queue) except -1
    cdef bint counts(self, ReplayedQueue queue) noexcept
