"""Picks messages of a channel by id or by content, and requeues, drops, copies or moves them."""

from libc.stdint cimport int64_t, uint64_t

from nsqfast._ext.broker.channel cimport Channel
from nsqfast._ext.broker.topic cimport Topic
from nsqfast._ext.core.body_search cimport BodySearch
from nsqfast._ext.core.budget cimport Budget
from nsqfast._ext.core.limits cimport PEEK_COUNT_MAX
from nsqfast._ext.core.memory cimport Account
from nsqfast._ext.core.message cimport Delivery, Message
from nsqfast._ext.storage.scan cimport Quest, QueuePlace, Scan


cdef enum Action:
    REQUEUE = 0
    DROP = 1
    COPY = 2
    MOVE = 3


cdef enum Phase:
    IN_MEMORY = 0        # the ready ones, first those in memory,
    ON_DISK = 1          # then those on disk: a scan is to be made
    SEARCHING = 2        # or runs, in another thread
    HELD = 3             # those in flight or deferred
    FREEING = 4          # what was dropped meanwhile, of all who pinned
    STORED = 5           # those that are deferred on disk
    OVER = 6


cdef class Picker:
    cdef Account *account        # of the channel's broker
    cdef Channel channel
    cdef Topic target            # of copies; None: nothing is copied
    cdef Action action
    cdef Phase phase
    cdef bint is_deferred        # HELD: deferred, else in flight
    cdef readonly int64_t examined
    cdef readonly int64_t changed
    cdef readonly uint64_t ticket    # covers the copies, if they are durable; 0 = none
    cdef BodySearch search_for
    cdef uint64_t[PEEK_COUNT_MAX] ids
    cdef Quest quest

    # Ready messages
    cdef QueuePlace place
    cdef int64_t number_end      # in the ring, and
    cdef uint64_t index_end      # on disk: what comes from there on came later
    cdef Scan scan
    cdef int64_t scan_max        # how many messages it may examine
    cdef int ended               # how the last scan ended: an Ended

    # Held ones, when it was created
    cdef Delivery **suspects
    cdef uint64_t *suspect_ids   # of those in flight, which are found by it
    cdef size_t suspect_count
    cdef size_t seen_count
    cdef bint is_pinning
    cdef size_t stored_left      # entries of those on disk still to be seen, from the last to the first

    # What this part has picked
    cdef Delivery **picked       # and taken out of its place
    cdef int picked_count
    cdef char *copies            # {4 bytes size, body} of each
    cdef size_t copies_size
    cdef size_t copies_capacity
    cdef int copy_count

    cdef int begin(self, tuple place) except -1
    cdef int do_part(self) except -1
    cdef int note_in_flight(self) except -1
    cdef int note_deferred(self) except -1
    cdef bint is_chosen(self, Message *message) noexcept
    cdef bint is_full(self) noexcept
    cdef int pick_memory(self, Budget *budget) except -1
    cdef int pick_item(self, size_t i, Message *message, Delivery *delivery) except -1
    cdef int pick_held(self, Budget *budget) except -1
    cdef int pick_stored(self, Budget *budget) except -1
    cdef int take_stored(self) except -2
    cdef bint is_held(self, size_t i) noexcept
    cdef int take_held(self, Delivery *delivery) except -1
    cdef void pick(self, Delivery *delivery) noexcept
    cdef int add_copy(self, const char *body, size_t size) except -1
    cdef int end_part(self) except -1
    cdef int publish(self) except -1
    cdef int put_back(self) except -1
    cdef int start_scan(self) except -1
    cdef int end_scan(self) except -1
    cdef int change_records(self) except -1
