"""The commit ring and its recovery as Python objects."""

from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy

from nsqfast._ext.commitlog.files cimport Files
from nsqfast._ext.commitlog.recovery cimport Record, Recovery
from nsqfast._ext.commitlog.ring cimport CommitRing

from nsqfast._ext.commitlog.recovery import open_ring


cdef class OpenRing:
    """A ring as open_ring() returns it, and what that found; see ring.pxd and recovery.pxd."""
    cdef CommitRing ring
    cdef Recovery recovery

    def __init__(self, str folder, uint64_t size, Files files=None, uint32_t align=4096, bint is_stepped=False):
        self.ring, self.recovery = open_ring(folder, size, files, align, is_stepped)

    def append(self, bytes payload, uint8_t kind=1, uint8_t flags=0, uint16_t extra=0, uint32_t subject=0):
        """Return the number of the batch that it went to."""
        memcpy(self.ring.append(kind, flags, extra, subject, <size_t> len(payload)), <char *> payload, len(payload))
        return self.ring.filling

    def room(self):
        return self.ring.room()

    def commit(self, int64_t wall_ns=0):
        return bool(self.ring.commit(wall_ns))

    def step(self):
        return bool(self.ring.step())

    def end_write(self):
        return bool(self.ring.end_write())

    def fileno(self):
        return self.ring.fileno()

    def wait(self, uint64_t sequence, int timeout_ms=-1):
        return bool(self.ring.wait(sequence, timeout_ms))

    def checkpoint(self, uint64_t needed_from):
        self.ring.checkpoint(needed_from)

    def is_full(self):
        return bool(self.ring.is_full())

    def fill(self):
        return self.ring.fill()

    def close(self):
        self.ring.close()

    def read(self):
        """Return all records that recovery has yet to hand out: (sequence, kind, flags, extra, subject, payload)."""
        cdef Record record
        found = []
        while self.recovery.next(&record):
            payload = record.payload[:record.size]
            found.append((record.sequence, record.kind, record.flags, record.extra, record.subject, payload))
        return found

    @property
    def filling(self):
        return self.ring.filling

    @property
    def committed(self):
        return self.ring.committed

    @property
    def needed_from(self):
        return self.ring.needed_from

    @property
    def failed(self):
        return self.ring.failed

    @property
    def first(self):
        return self.recovery.first

    @property
    def last(self):
        return self.recovery.last

    @property
    def is_torn(self):
        return bool(self.recovery.is_torn)

    @property
    def damaged(self):
        return self.recovery.damaged
