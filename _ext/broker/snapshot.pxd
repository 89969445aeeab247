"""The messages of a topic or channel at one moment, for display: nothing is changed."""

from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t

from nsqfast._ext.broker.channel cimport Channel
from nsqfast._ext.broker.message_queue cimport MessageQueue
from nsqfast._ext.core.body_search cimport BodySearch
from nsqfast._ext.core.due_heap cimport Due
from nsqfast._ext.core.message cimport Delivery, Message
from nsqfast._ext.core.ring cimport Ring
from nsqfast._ext.storage.scan cimport Quest, QueuePlace, Reads, Scan


cdef enum Where:
    IN_MEMORY = 0
    ON_DISK = 1
    IN_FLIGHT = 2
    DEFERRED = 3


ctypedef struct Glance:
    Message *message         # with a reference of our own; NULL: it is on disk alone
    char *payload            # what was read of that; NULL = not yet, or it was not wanted
    size_t payload_size
    size_t number            # of the record in `reads`
    int64_t due_ns           # on the monotonic clock; 0 = none
    uint64_t owner
    uint16_t attempts
    uint8_t failures
    uint8_t where            # a Where


cdef class Snapshot:
    cdef readonly int64_t depth      # number of messages in that state
    cdef readonly int64_t taken_ns   # Unix time
    cdef int64_t monotonic_ns
    cdef int64_t total               # how many of these could be examined
    cdef int64_t offset
    cdef QueuePlace place            # of ready messages: where it begins
    cdef bint has_place              # it begins there, and not at the offset
    cdef int64_t ring_number         # of the first glance that is in the ring
    cdef int64_t ring_end            # the number behind the last in the ring
    cdef bint is_ready
    cdef int64_t cut_count           # how many of the scan's rows are kept; -1 = all
    cdef bint has_rest               # there are more ready messages than glances and scan can reach
    cdef int64_t limit
    cdef readonly int64_t scanned
    cdef int64_t scan_max            # how many may be examined
    cdef int ended                   # an Ended
    cdef BodySearch search_for
    cdef Quest quest
    cdef Glance *glances
    cdef uint32_t glance_max
    cdef uint32_t glance_count
    cdef uint32_t examined_count     # glances that were examined
    cdef uint32_t deferred_count     # glances at deferred messages of a topic, which come before all others
    cdef uint32_t kept_count         # whose references we hold
    cdef uint32_t *found             # indexes into glances
    cdef uint32_t found_count
    cdef Reads reads                 # of deferred messages that are on disk alone; None = there are none
    cdef size_t reads_count
    cdef Scan scan                   # None: nothing on disk is needed
    cdef dict members                # number -> Consumer, for messages in flight

    cdef int collect_ready(self, MessageQueue queue) except -1
    cdef int collect_in_flight(self, Channel channel) except -1
    cdef int collect_deferred(self, Channel channel) except -1
    cdef void collect_waiting(self, Delivery *delivery, int64_t *skip) noexcept
    cdef void collect_ring(self, Ring ring, int64_t *skip) noexcept
    cdef void note(self, Message *message, Delivery *delivery, Where where) noexcept
    cdef int note_stored(self, Channel channel, const Due *due) except -1
    cdef bint is_found(self, Glance *glance) noexcept nogil
    cdef void keep(self) noexcept
    cdef void search(self) noexcept nogil
    cdef dict row_of_glance(self, Glance *glance)
    cdef dict row_of_record(self, size_t index)


cdef QueuePlace place_of(tuple numbers) except *
cdef tuple tuple_of(const QueuePlace *place)
