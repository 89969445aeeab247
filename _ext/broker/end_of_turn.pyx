"""Work that is done in a later turn than the one that caused it."""

from libc.stdint cimport uint32_t

from nsqfast._ext.core.budget cimport Budget, begin_part, is_spent
from nsqfast._ext.core.clock cimport monotonic_ns
from nsqfast._ext.core.limits cimport SLABS_KEPT_MIN
from nsqfast._ext.core.memory cimport SLAB_SIZE, account
from nsqfast._ext.core.message cimport release_slabs, slabs_kept
from nsqfast._ext.core.settings cimport Settings
from nsqfast._ext.storage.diskqueue.syncer cimport Syncer

cdef enum:
    # Each step gives back one in so many of the empty slabs beyond SLABS_KEPT_MIN: half of them in 11 s.
    RELEASE_SHARE = 64
    # At once; each takes some 30 us.
    RELEASE_MAX = 64
    # Units that a consumer counts for when it takes more, or is disconnected: some messages.
    CALL_UNITS = 16

cdef int64_t PUT_OFF_NS = 1000000
cdef int64_t RELEASE_STEP_NS = 250000000


cdef class PutOff(Timed):
    """Consumers that take more messages after a short delay."""

    def __init__(self, Timers timers):
        self.timers = timers
        self.consumers = []

    cdef int add(self, Consumer consumer) except -1:
        self.consumers.append(consumer)
        if not self.is_armed:
            self.timers.arm(self, monotonic_ns() + PUT_OFF_NS)
        return 0

    cdef int call(self, Consumer consumer) except -1:
        return consumer.take_more()

    cdef int on_deadline(self, int64_t now_ns) except -1:
        """Call the consumers that came first, as far as a part goes; the others in later turns."""
        cdef Budget budget = begin_part()
        cdef list consumers = self.consumers
        cdef Py_ssize_t done = 0, count = len(consumers)
        self.consumers = []
        try:
            while done < count:
                done += 1
                self.call(consumers[done - 1])
                if is_spent(&budget, CALL_UNITS):
                    break
        finally:
            if done < count:
                self.consumers = consumers[done:] + self.consumers
                self.timers.arm(self, now_ns + 1)
        return 0


cdef class CutOff(PutOff):
    """Consumers whose channel was deleted."""

    cdef int call(self, Consumer consumer) except -1:
        return consumer.client.close()


cdef class Release(Timed):
    """Gives back, little by little, the memory that drained queues left behind."""

    def __init__(self, Timers timers):
        self.timers = timers

    cdef int check(self) except -1:
        if account.spare and account.used + account.spare > account.full:
            release_slabs(<uint32_t> ((account.used + account.spare - account.full) // SLAB_SIZE + 1))
        if slabs_kept() > SLABS_KEPT_MIN and not self.is_armed:
            self.timers.arm(self, monotonic_ns() + RELEASE_STEP_NS)
        return 0

    cdef int on_deadline(self, int64_t now_ns) except -1:
        cdef uint32_t kept = slabs_kept()
        if kept > SLABS_KEPT_MIN:
            release_slabs(min(RELEASE_MAX, (kept - SLABS_KEPT_MIN + RELEASE_SHARE - 1) // RELEASE_SHARE))
        return self.check()


cdef class TopicStorage(Storage):
    """What all topics of a broker share."""

    def __init__(self, Settings settings, Syncer syncer, Timers timers):
        super().__init__(settings, syncer, timers)
        self.unwritten = []
        self.uncounted = []
        self.deleting = {}

    cdef int begin_deletion(self, str name, object topic) except -1:
        self.deleting[name] = topic
        self.disposal.deletion_count += 1
        return 0

    cdef int end_deletion(self, str name) except -1:
        """All its channels are deleted."""
        del self.deleting[name]
        return self.disposal.end_deletion()

    cdef int write_batch(self) except -1:
        if self.unwritten and self.on_mixed is not None:
            self.on_mixed()
        return 0

    cdef int close(self) except -1:
        """All queues are closed."""
        self.disposal.finish()
        self.syncer.close()
        self.timers.disarm(self.tick)
        return self.timers.disarm(self.sync_end)
