"""An OK of a broker with a commit log waits for its batch: when that is written news are told, in this turn or later.

Python code runs per client and per turn, never per message.
"""

import os
from collections import deque

from nsqfast._ext.storage.engine cimport Tickets

# Never changed.
cdef object NOTHING_DUE = deque()


cdef class Durability:
    """What all topics of a broker share."""

    def __init__(self, Store store not None):
        self.store, self.settings, self.timers = store, store.settings, store.timers
        self.waiting = set()
        self.callbacks, self.unwritten_deaths = [], []
        self.news = deque()

    cdef int wait(self, Client client) except -1:
        """Tell the client of each batch that is written until end_wait()."""
        self.waiting.add(client)
        self.store.waiting_count = len(self.waiting)
        return 0

    cdef int end_wait(self, Client client) except -1:
        self.waiting.discard(client)
        self.store.waiting_count = len(self.waiting)
        return 0

    def when_durable(self, uint64_t ticket, callback):
        """Call callback(None) once everything up to the ticket is on disk, or callback(error text) if that failed."""
        if ticket <= self.store.tickets().done:
            callback(None)
        else:
            self.callbacks.append((ticket, callback))

    def when_all_durable(self, callback):
        """Call callback(None) once the commit log has all that happened until now, or callback(error text); without a
        log at once."""
        cdef Tickets tickets = self.store.tickets()
        if not self.settings.has_log:
            callback(None)
        elif tickets.error:
            callback("the commit log cannot be written: " + os.strerror(tickets.error).lower())
        else:
            self.when_durable(tickets.last, callback)

    cdef int note_written(self) except -1:
        """The turn has written its batch to the log itself; no fsync that ended has to be followed up for that."""
        return self.add_news(self.store.tickets().done, None)

    cdef int end_batch(self) except -1:
        """A batch is written, or fsyncs are done."""
        done, error = self.store.completed()
        return self.add_news(done, error or None)

    cdef int add_news(self, uint64_t done, object error) except -1:
        """Queue the result for all who wait now; a success is joined with the previous one if nobody was told of it."""
        due = NOTHING_DUE
        if self.callbacks:
            waiting, self.callbacks = self.callbacks, [item for item in self.callbacks if item[0] > done]
            due = deque([callback for ticket, callback in waiting if ticket <= done])
        if not (due or self.waiting):
            return 0
        if len(self.news) > 1 and error is None and self.news[len(self.news) - 1][1] is None:
            due = self.news.pop()[3] + due
        self.news.append((done, error, list(self.waiting), due))
        return 0

    cdef int want_deaths_written(self, Deaths deaths) except -1:
        if deaths not in self.unwritten_deaths:
            self.unwritten_deaths.append(deaths)
            self.store.announce()
        return 0

    cdef int write_deaths(self) except -1:
        written, self.unwritten_deaths = self.unwritten_deaths, []
        for deaths in written:
            pieces = deaths.take()
            if self.on_deaths is not None:
                self.on_deaths(deaths.topic, pieces)
        return 0

    def fileno(self):
        """A descriptor that becomes readable when a batch is written, or an fsync ends; then call Turn.on_synced."""
        return self.store.fileno()

    def health(self):
        """"OK", or "NOK" with the last disk error."""
        return self.store.health.text
