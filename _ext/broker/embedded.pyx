"""Bodies are noted when they are published: what a consumer has finished could not be looked up any more."""

from libc.stdint cimport INT64_MAX

from nsqfast._ext.broker.channel cimport Channel
from nsqfast._ext.core.clock cimport monotonic_ns
from nsqfast._ext.core.heap cimport HeapNode
from nsqfast._ext.core.message cimport Delivery

# Of one topic.
BODY_COUNT_MAX = 10_000
BODY_BYTES_MAX = 64 << 20

cdef int64_t MS = 1000000


cdef class EmbeddedTopics(Topics):
    """Like Topics, whose topics are of the class EmbeddedTopic."""

    cdef Topic make(self, str name):
        cdef EmbeddedTopic topic
        topic = EmbeddedTopic(name, self.durability, self.changed, self.on_last_left, self.on_deleted)
        topic.topics = self
        return topic

    def let_pass(self, int64_t time_ns):
        """Make all deferred messages due earlier by so much; return how many of those in channels became due by it."""
        cdef EmbeddedTopic topic
        cdef Py_ssize_t due_count = 0
        for topic in self.by_name.values():
            due_count += topic.let_pass(time_ns)
        return due_count


cdef class EmbeddedTopic(Topic):

    def __cinit__(self):
        self.bodies = []
        self.room = BODY_BYTES_MAX

    cdef bint add(self, const char *body, Py_ssize_t size, int64_t defer_ms, bint is_told, int64_t wall,
                  int64_t monotonic, bint is_spread, bint is_alone) except -1:
        is_spread = Topic.add(self, body, size, defer_ms, is_told, wall, monotonic, is_spread, is_alone)
        if len(self.bodies) < BODY_COUNT_MAX and size <= self.room:
            self.bodies.append(body[:size])
            self.room -= size
        else:
            self.room = -1    # so that a small one does not follow a large one that was left out
        if self.topics.on_message is not None:
            self.topics.on_message()
        return is_spread

    cdef Py_ssize_t let_pass(self, int64_t time_ns) except -1:
        cdef Channel channel
        cdef Delivery *delivery = self.deferred.queue.first
        cdef Py_ssize_t due_count = 0
        cdef int64_t now_ns = monotonic_ns()
        while delivery is not NULL:
            # Its time begins with the first channel; 0 would mean that it is not deferred.
            delivery.message.defer_ms = max(1, <int64_t> delivery.message.defer_ms - time_ns // MS)
            delivery = delivery.next
        for channel in self.channel_list:
            due_count += make_due_earlier(channel, time_ns, now_ns)
        return due_count


cdef Py_ssize_t make_due_earlier(Channel channel, int64_t time_ns, int64_t now_ns) except -1:
    """All of them by the same time, so the heap stays one."""
    cdef HeapNode *node
    cdef Py_ssize_t due_count = 0
    cdef size_t i
    cdef int64_t first_ns = INT64_MAX
    for i in range(channel.stored.heap.size):
        due_count += now_ns < channel.stored.heap.entries[i].deadline_ns <= now_ns + time_ns
        channel.stored.heap.entries[i].deadline_ns -= time_ns
        first_ns = channel.stored.heap.entries[0].deadline_ns
    for i in range(channel.deferred.size):
        node = channel.deferred.nodes[i]
        due_count += now_ns < node.deadline_ns <= now_ns + time_ns
        node.deadline_ns -= time_ns
    if channel.deferred.size:
        first_ns = min(first_ns, channel.deferred.peek().deadline_ns)
    if first_ns < INT64_MAX:
        # A deadline before the machine's start would be none.
        channel.rearm(max(now_ns, first_ns))
    return due_count
