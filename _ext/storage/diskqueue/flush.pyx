"""Writes what a queue holds in memory to disk when the broker stops.

A message that already has a record on disk is written again behind the others, so that Go, which knows only one read
position, finds it. If that fails, its old record remains; messages without a record are lost then, and counted.
"""

from nsqfast._ext.core.message cimport delivery_free

cdef enum:
    # Bytes of messages gathered for one write: a full disk refuses the whole write though some of it may have fitted,
    # and memory full of messages has no room for a second copy of them all.
    FLUSH_SIZE = 65536


cdef class Flush:
    """The flush of one queue that has files."""

    def __init__(self, Backlog backlog not None):
        self.backlog = backlog
        self.error = None
        backlog.disk.writer.is_ending = True
        backlog.disk.writer.begin_batch()

    cdef int add(self, Delivery *delivery) except -1:
        """Write the delivery and free it."""
        cdef bint is_only_here = delivery.ordinal == 0
        if self.error is not None:
            self.lost_count += is_only_here
            delivery_free(delivery)
            return 0
        self.batch_count += is_only_here
        self.batch_size += delivery.message.size
        self.backlog.store(delivery)
        if self.batch_size > FLUSH_SIZE:
            self.end()
            self.backlog.disk.writer.begin_batch()
        return 0

    cdef int add_memory(self) except -1:
        """Write everything queued in memory."""
        cdef size_t _
        for _ in range(self.backlog.memory.size):
            self.add(self.backlog.take())
        return 0

    cdef int begin_deferred(self) except -1:
        """The following messages are deferred ones, and the last."""
        self.end()
        self.deadlines = Deadlines()
        self.deadlines.head.first_index = self.backlog.disk.position.written
        self.deadlines.head.file = self.backlog.disk.position.write_file
        self.deadlines.head.position = self.backlog.disk.position.write_position
        self.backlog.disk.writer.begin_batch()
        return 0

    cdef int add_deferred(self, Delivery *delivery, int64_t due_ns) except -1:
        """due_ns: Unix time."""
        self.deadlines.add(delivery.message.id, due_ns)
        return self.add(delivery)

    cdef int end(self) except -1:
        """Write what was gathered."""
        try:
            self.backlog.disk.writer.end_batch()
        except OSError as error:
            self.error = error
            self.lost_count += self.batch_count
        self.batch_count = self.batch_size = 0
        self.backlog.disk.deadlines = self.deadlines if self.error is None else None
        return 0
