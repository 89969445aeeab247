"""An OK of a durable broker waits for two things, and so does the count of what was published.

    postpone ─► write_postponed: into all of its queues, or refused ─► fsync ─► end_batch: counted ─► news, told later

Python code runs per topic, per client and per turn, never per message.
"""

import os
from collections import deque

from nsqfast._ext.broker.channel cimport Channel
from nsqfast._ext.storage.engine cimport Tickets


cdef class PostponingQueue(MessageQueue):

    cdef int count(self, uint64_t count, uint64_t size, list channels) except -1:
        self.message_count += count
        self.message_bytes += size
        if channels is not None:
            for channel in channels:
                (<Channel> channel).message_count += count
        return 0

    cdef int add_publisher(self, Client client) except -1:
        """Its OK waits at least until what it published here is written."""
        cdef Py_ssize_t size = len(self.publishers)
        if size == 0 or self.publishers[size - 1] is not client:
            self.publishers.append(client)
        return 0

    cdef int on_written(self) except -1:
        """The turn ends, and nothing is postponed any more."""
        raise NotImplementedError


cdef class Durability:
    """What all topics of a broker share."""

    def __init__(self, Store store not None):
        self.store, self.settings, self.timers = store, store.settings, store.timers
        store.before_write = self.write_postponed
        self.waiting = set()
        self.callbacks, self.postponed_callbacks = [], []
        self.postponed, self.uncounted, self.refused = [], [], []
        self.news = deque()

    # -- writes that are postponed to the end of the turn --------------------------------------------------------------

    cdef int postpone(self, PostponingQueue queue) except -1:
        if not queue.is_postponed:
            queue.is_postponed = True
            self.postponed.append(queue)
        return 0

    cpdef int write_postponed(self) except -1:
        """Afterwards these messages are in all the queues they are for, or in none and refused."""
        cdef PostponingQueue queue
        cdef Client client
        for queue in self.postponed:
            try:
                queue.fanout.store.end(None)
            except OSError as error:
                self.refuse(queue, error.strerror or str(error))
        for queue in self.postponed:
            self.count_later(self.store.tickets().open, queue)
            publishers, queue.publishers = queue.publishers, []
            for client in publishers:
                client.on_written(None)
        self.callbacks += [(ticket, callback) for ticket, callback, _ in self.postponed_callbacks]
        self.postponed_callbacks = []
        return 0

    cdef int refuse(self, PostponingQueue queue, str error) except -1:
        """Tell those who published to this queue; all others keep waiting."""
        cdef Client client
        self.store.health.refused(queue.fanout.take_counts()[0])
        for client in queue.publishers:
            if client.on_written(error):
                self.refused.append(client)
        waiting, self.postponed_callbacks = self.postponed_callbacks, []
        for ticket, callback, its_queue in waiting:
            if its_queue is queue:
                callback(error)
            else:
                self.postponed_callbacks.append((ticket, callback, its_queue))
        return 0

    cdef int finish_postponed(self) except -1:
        """End the turn of these queues, before fsyncs start, so that they cover all tickets given out."""
        cdef list postponed = self.postponed
        cdef PostponingQueue queue
        cdef Client client
        if not postponed:
            return 0
        self.write_postponed()
        self.postponed = []
        for queue in postponed:
            queue.on_written()
        refused, self.refused = self.refused, []
        for client in refused:
            client.on_durable(self.told_ticket, None)
        return 0

    # -- fsyncs --------------------------------------------------------------------------------------------------------

    cdef int count_later(self, uint64_t ticket, PostponingQueue queue) except -1:
        """Count what was put into the queue, when the ticket's fsync is done."""
        counts = queue.fanout.take_counts()
        if counts[0]:
            self.uncounted.append((ticket, queue, counts))
        return 0

    cdef int wait(self, Client client) except -1:
        """Tell the client of each fsync until end_wait()."""
        self.waiting.add(client)
        return 0

    cdef int end_wait(self, Client client) except -1:
        self.waiting.discard(client)
        return 0

    def when_durable(self, uint64_t ticket, callback, queue):
        """Call callback(None) once everything up to the ticket is on disk, or callback(error text) if that failed.

        `queue`: the topic whose write was postponed to the end of the turn and can still fail; None = it was written.
        """
        if ticket <= self.store.tickets().done:
            callback(None)
        elif queue is None or not self.settings.is_durable:
            self.callbacks.append((ticket, callback))
        else:
            self.postponed_callbacks.append((ticket, callback, queue))

    def when_all_durable(self, callback):
        """Call callback(None) once the commit log has all that happened until now, or callback(error text); without a
        log at once."""
        cdef Tickets tickets = self.store.tickets()
        if not self.settings.has_log:
            callback(None)
        elif tickets.error:
            callback("the commit log cannot be written: " + os.strerror(tickets.error).lower())
        else:
            self.when_durable(tickets.last, callback, None)

    cdef int end_batch(self) except -1:
        """A batch of fsyncs is done."""
        done, error = self.store.completed()
        self.count_messages(done, not error)
        return self.add_news(done, error or None)

    cdef int count_messages(self, uint64_t done, bint is_good) except -1:
        """Count messages whose fsync is done as accepted, or as refused."""
        waiting, self.uncounted = self.uncounted, []
        for item in waiting:
            ticket, queue, (count, size, channels) = item
            if ticket > done:
                self.uncounted.append(item)
            elif is_good:
                (<PostponingQueue> queue).count(count, size, None)
                for channel, count in channels:
                    (<Channel> channel).message_count += count
            else:
                self.store.health.refused(count)
        return 0

    cdef int add_news(self, uint64_t done, object error) except -1:
        """Queue the result for all who wait now; a success is joined with the previous one if nobody was told of it."""
        waiting, self.callbacks = self.callbacks, [item for item in self.callbacks if item[0] > done]
        due = deque([callback for ticket, callback in waiting if ticket <= done])
        if len(self.news) > 1 and error is None and self.news[len(self.news) - 1][1] is None:
            due.extendleft(reversed(self.news.pop()[3]))
        self.news.append((done, error, list(self.waiting), due))
        return 0

    def fileno(self):
        """A descriptor that becomes readable when an fsync ends; then call Turn.on_synced."""
        return self.store.fileno()

    def health(self):
        """"OK", or "NOK" with the last disk error."""
        return self.store.health.text
