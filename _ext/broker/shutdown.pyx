"""A clean stop of all queues: what consumers and deferrals hold goes back to them, and the storage closes them."""

from libc.stdint cimport int64_t

from nsqfast._ext.broker.channel cimport Channel
from nsqfast._ext.broker.topic cimport Topic
from nsqfast._ext.core.limits cimport LOST_SHOWN
from nsqfast._ext.storage.engine cimport Closing


cdef class Shutdown:
    def __init__(self, Store store not None, list topics not None, object on_progress):
        cdef Topic topic
        self.store = store
        self.topics = topics
        self.on_progress = on_progress
        for topic in topics:
            self.count += 1 + len(topic.channel_list)
        self.closings = []

    def run(self):
        """Return an OSError that says in one line what was lost, or None."""
        return self.losses(self.store.close_queues(self.queues(), self.tell))

    def queues(self):
        """Yield the queues, each after its last message."""
        cdef Topic topic
        cdef Channel channel
        for topic in self.topics:
            topic.takeover.complete()
            for channel in topic.channels():
                self.closings.append((f"{topic.name}:{channel.name}", channel.close()))
                yield channel.backlog
            self.closings.append((topic.name, topic.close()))
            yield topic.backlog
            self.tell(self.synced_count, self.closed_count)

    def tell(self, synced_count, closed_count):
        self.synced_count, self.closed_count = synced_count, closed_count
        if self.on_progress is not None:
            self.on_progress(self.count, synced_count, closed_count)

    cdef object losses(self, list errors):
        """Return one OSError for everything, or None."""
        cdef Closing closing
        lost = []
        for name, closing in self.closings:
            if closing is not None and closing.lost_count:
                lost.append(f"{closing.lost_count} of {name}")
                errors.append(closing.error)
        if not errors:
            return None
        number, reason = errors[0].errno, errors[0].strerror or str(errors[0])
        if not lost:
            return OSError(number, f"not everything could be closed - {reason}")
        others = f" and of {len(lost) - LOST_SHOWN} others" if len(lost) > LOST_SHOWN else ""
        return OSError(number, f"messages lost: {', '.join(lost[:LOST_SHOWN])}{others} - {reason}")


def count_unstored(list topics not None):
    """The messages that are only in memory, which a stop writes and a kill loses, but for those of ephemeral queues."""
    cdef Topic topic
    cdef Channel channel
    cdef Store store
    cdef int64_t count = 0
    for topic in topics:
        store = topic.durability.store
        count += store.count_unstored(topic.backlog, <int64_t> topic.deferred.queue.size + topic.takeover.count)
        for channel in topic.channel_list:
            count += store.count_unstored(channel.backlog, <int64_t> channel.table.size + channel.deferred_count)
    return count
