"""A connection fills the buffers as it reads; `take` hands them over without copying."""

from typing import NamedTuple

cimport cython
from libc.stdint cimport int64_t, uint16_t
from libc.string cimport memcpy

from nsqfast._ext.core.limits cimport MESSAGE_ID_SIZE
from nsqfast._ext.protocol.buffer cimport WriteBuffer


class Taken(NamedTuple):
    """In native byte order; `offsets` has one number more than there are messages."""

    bodies: bytes
    offsets: bytes
    timestamps: bytes
    attempts: bytes
    identities: bytes
    sources: bytes
    connections: list


@cython.final
cdef class Columns:
    """A batch that grows."""

    def __init__(self):
        self.begin()

    cdef int begin(self) except -1:
        cdef int64_t zero = 0
        self.bodies = WriteBuffer()
        self.offsets = WriteBuffer()
        self.timestamps = WriteBuffer()
        self.attempts = WriteBuffer()
        self.identities = WriteBuffer()
        self.sources = WriteBuffer()
        self.offsets.append(<const char *> &zero, 8)
        self.connections = []
        self.last_connection = None
        self.count = self.size = 0
        return 0

    cdef int add(self, object connection, const char *identity, int64_t timestamp_ns, uint16_t attempts,
                 const char *body, Py_ssize_t size) except -1:
        if connection is not self.last_connection:
            self.last_connection = connection
            if connection not in self.connections:
                self.connections.append(connection)
            self.source = self.connections.index(connection)
        self.size += size
        if size:
            self.bodies.append(body, size)
        self.offsets.append(<const char *> &self.size, 8)
        self.timestamps.append(<const char *> &timestamp_ns, 8)
        self.attempts.append(<const char *> &attempts, 2)
        memcpy(self.identities.reserve(MESSAGE_ID_SIZE), identity, MESSAGE_ID_SIZE)
        self.sources.append(<const char *> &self.source, 2)
        self.count += 1
        return 0

    def take(self):
        """Return everything gathered; the next message starts anew."""
        taken = Taken(self.bodies.take(), self.offsets.take(), self.timestamps.take(), self.attempts.take(),
                      self.identities.take(), self.sources.take(), self.connections)
        self.begin()
        return taken
