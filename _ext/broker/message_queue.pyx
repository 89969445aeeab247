"""How old the oldest message is that waits in a topic or a channel."""

from nsqfast._ext.core.clock cimport wall_ns
from nsqfast._ext.storage.engine cimport disk_depth


cdef class MessageQueue(Timed):

    cdef int64_t oldest(self) except -2:
        """When it was published; 0 = there is none, -1 = unreadable."""
        return self.backlog.oldest()

    @property
    def backend_depth(self):
        return disk_depth(self.backlog)

    def age_ns(self):
        """The age of the oldest message here, without deferred ones; 0 = there is none, -1 = it is on disk and
        unreadable."""
        cdef int64_t oldest_ns = self.oldest()
        return max(wall_ns() - oldest_ns, 0) if oldest_ns > 0 else oldest_ns
