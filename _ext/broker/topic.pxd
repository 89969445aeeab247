"""A topic: gives ids to published messages and passes them to every channel."""

cimport cython
from libc.stdint cimport int64_t, uint64_t
from libc.string cimport memcmp

from nsqfast._ext.broker.deaths cimport Deaths
from nsqfast._ext.broker.deferrals cimport DeferredList
from nsqfast._ext.broker.durability cimport Durability
from nsqfast._ext.broker.fanout cimport Fanout
from nsqfast._ext.broker.large_mpub cimport LargeMpub
from nsqfast._ext.broker.message_queue cimport MessageQueue
from nsqfast._ext.broker.takeover cimport Takeover
from nsqfast._ext.core.clock cimport Clock
from nsqfast._ext.core.guid cimport GuidFactory
from nsqfast._ext.core.message cimport Message
from nsqfast._ext.storage.engine cimport Closing, TopicStore


cdef enum:
    # Without a commit log a publish that is too large for a turn (WHOLE_MAX) is put in slices of so many messages.
    SLICE_MAX = 1024


# The backlog fills only without channels, while paused, with a publish that takes too long for a turn, and until that
# was passed on.
cdef class Topic(MessageQueue):
    cdef readonly uint64_t message_count
    cdef readonly uint64_t message_bytes
    cdef readonly str name
    cdef readonly bint ephemeral
    cdef readonly bint paused
    cdef bint awaits_channels  # other servers may know of more; until they answer, no channel gets anything
    cdef bint is_deleted
    cdef uint64_t log_mark           # behind what was logged before the current put
    cdef readonly Deaths deaths      # of the dead letters that it takes; None = it takes none
    cdef list large_mpubs            # LargeMpub, of those that are being released
    cdef int rejecting_count         # so many of its queues refuse publishes when they are full
    cdef int dropping_count          # and so many drop their oldest messages then
    cdef bint has_log                # what happens is logged, and an OK waits for that
    cdef const char *name_start      # the UTF-8 of `name`, which keeps it
    cdef Py_ssize_t name_size
    cdef Durability durability
    cdef TopicStore store
    cdef Fanout fanout
    cdef Clock clock
    cdef GuidFactory guid
    cdef DeferredList deferred   # deferred messages that wait for a first channel
    cdef list channel_list       # Channel, in the order of creation
    cdef Takeover takeover       # of the backlog, by the channels
    cdef dict channel_by_name    # name -> Channel
    cdef object on_change        # ("channel+" or "channel-", topic name, channel name)
    cdef object on_last_left     # called with the name when an ephemeral topic lost its last channel
    cdef object on_deleted       # called with the name when all channels of a deleted topic are deleted

    @cython.final
    cdef inline bint has_name(self, const char *name, Py_ssize_t size) noexcept:
        return self.name_size == size and memcmp(self.name_start, name, <size_t> size) == 0

    # is_told: its publisher is told the id, which is guid.last().
    cdef uint64_t publish(self, const char *body, Py_ssize_t size, int64_t defer_ms,
                          bint is_told=*) except? 0
    # is_slice: refuse_if_full was asked for the whole.
    cdef uint64_t publish_many(self, const char *data, uint64_t size, uint64_t count, bint is_slice=*) except? 0
    cdef int add_many(self, const char *data, uint64_t count, bint is_spread) except -1
    cdef int put_logged(self, const char *data, uint64_t size, uint64_t count, bint is_spread) except -1
    cdef Closing close(self)
    cdef int delete(self) except -1
    cdef int delete_some(self) except -1
    cdef int delete_last(self) except -1
    cdef int end_deletion(self) except -1
    cdef int finish_deletion(self) except -1
    cdef int refuse_if_exiting(self) except -1
    cdef int refuse_if_full(self, uint64_t count, uint64_t size) except -1
    cdef int count_limits(self, MessageQueue queue, int change) except -1
    cdef int drop_beyond(self) except -1
    cdef int64_t waiting_count(self) noexcept
    cdef int admit(self, uint64_t count, uint64_t size) except -1
    cdef bint add(self, const char *body, Py_ssize_t size, int64_t defer_ms, bint is_told, int64_t wall,
                 int64_t monotonic, bint is_spread, bint is_alone) except -1
    cdef bint is_open(self) noexcept
    cdef int spread(self, Message *message, int64_t now_ns) except -1
    cdef int keep(self, Message *message) except -1
    cdef int restore_deferred(self) except -1
    cdef LargeMpub begin_large(self, uint64_t count)
    cdef bint may_add_piece(self, LargeMpub mpub) except -1
    cdef int add_piece(self, LargeMpub mpub, bytes bodies, uint64_t count) except -1
    cdef int release_large(self, LargeMpub mpub) except -1
    cdef int put_bodies(self, const char *data, uint64_t count, int64_t published_ns, uint64_t id,
                        bint is_spread) except -1
    cdef int close_large(self, Closing closing) except -1
    cdef int refuse(self, uint64_t count, object error, str kind=*) except -1
    cdef uint64_t finish_put(self, uint64_t count, uint64_t size, bint is_spread) except? 0
    cdef int pump_channels(self) except -1
    cdef int on_deadline(self, int64_t now_ns) except -1
    cdef bint is_flowing(self) noexcept
    cdef bint pass_on(self, bint is_owed, int64_t now_ns) except -1
    cdef int pass_on_owed(self, uint64_t count) except -1
    cdef int open(self) except -1
