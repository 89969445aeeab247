"""What a channel defers for long: on disk, with an entry of 32 bytes for each message in memory."""

from libc.stdint cimport int64_t, uint64_t

from nsqfast._ext.core.budget cimport Budget
from nsqfast._ext.core.due_heap cimport Due, DueHeap
from nsqfast._ext.core.in_flight cimport Entry, InFlightTable
from nsqfast._ext.core.memory cimport Memory
from nsqfast._ext.core.message cimport Delivery
from nsqfast._ext.storage.engine cimport ChannelStore, Checkpoint


cdef enum Recall:
    # What became of an entry whose message was to be read.
    READ = 0
    AWAITED = 1              # a disk has to answer first; the channel goes on then
    GONE = 2                 # it is finished, or cannot be read any more; its entry is removed
    REFUSED = 3              # it cannot be read now; it is due again in a while


cdef class StoredDeferrals:
    cdef ChannelStore backlog
    cdef Memory memory
    cdef DueHeap heap
    cdef InFlightTable told          # id -> ordinal, as items of item_of(), of those not delivered yet; None = none
    cdef size_t over_count           # entries whose deferral is over, and which are still in the heap
    cdef size_t swept                # the entry at which the search for these goes on
    cdef Checkpoint checkpoint       # which the first so many of its entries were shown to
    cdef size_t shown
    cdef int64_t to_wall_ns

    cdef int put(self, Delivery *delivery) except -1
    cdef int64_t count(self) noexcept
    cdef uint64_t find_told(self, uint64_t id) noexcept
    cdef Recall load(self, size_t index, Delivery **delivery) except *
    cdef Recall recall_first(self, int64_t now_ns, Delivery **delivery) except *
    cdef Recall recall_told(self, uint64_t id, Delivery **delivery) except *
    cdef int end_told(self, uint64_t id) except -1
    cdef int sweep(self) except -1
    cdef bint show(self, Checkpoint checkpoint, int64_t to_wall_ns, Budget *budget) except -1
    cdef void show_at(self, size_t index) noexcept
    cdef void show_passing(self, size_t index) noexcept
    cdef void drop_at(self, size_t index) noexcept
    cdef void remove_at(self, size_t index) noexcept
    cdef Entry *entry_of(self, const Due *due) noexcept
    cdef int note_moved(self, size_t index, uint64_t ordinal) except -1
    cdef int replace_first(self, int64_t deadline_ns) except -1
