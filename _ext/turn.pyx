"""A client that waits for its answer before it sends again is back within some microseconds. To sleep until then and be
woken costs both sides more than to look for it; a look that finds nothing costs only us, and so is left out after some.
"""

from libc.stdint cimport uint32_t

from nsqfast._ext.clock cimport monotonic_ns
from nsqfast._ext.memory cimport account
from nsqfast._ext.message cimport release_slabs, slabs_kept

cdef enum:
    # Where nothing came in so many looks, one in so many is left.
    LOOK_MISS_MAX = 8
    LOOK_LEFT_OUT_MAX = 64
    # More than some answers is a turn whose work is worth a wake-up, for clients that need the processor themselves.
    LOOK_SIZE_MAX = 2048
    # Empty slabs (of 1 MiB) that a broker keeps for good.
    KEPT_MIN = 32
    # Of those beyond, one in so many is given back at each step: half of them in 11 s.
    RELEASE_SHARE = 64
    # At once; each takes some 30 us.
    RELEASE_MAX = 64
    SLAB_SIZE = 1048576

cdef int64_t LOOK_NS = 30000
cdef int64_t PUT_OFF_NS = 1000000
cdef int64_t RELEASE_STEP_NS = 250000000


cdef class Look:
    """Whether the loop turns on for a moment instead of going to sleep."""

    cdef void begin(self, Py_ssize_t written_size) noexcept:
        """So many bytes were answered in this turn; if that was in the middle of a look, it paid."""
        if written_size > LOOK_SIZE_MAX:
            self.is_on = False
            return
        if self.is_on:
            self.misses = 0
        elif self.misses >= LOOK_MISS_MAX:
            self.left_out += 1
            if self.left_out < LOOK_LEFT_OUT_MAX:
                return
            self.left_out = 0
        self.is_on = True
        self.until_ns = monotonic_ns() + LOOK_NS

    cdef void check(self) noexcept:
        """Nothing came in this turn."""
        if self.is_on and monotonic_ns() >= self.until_ns:
            self.is_on = False
            self.misses += 1

    cdef void stop(self) noexcept:
        """Others need the processor, and the clients wait for them."""
        self.is_on = False


cdef class PutOff(Timed):
    """Consumers that take more messages in a moment."""

    def __init__(self, Timers timers):
        self.timers = timers
        self.consumers = []

    cdef int add(self, Consumer consumer) except -1:
        self.consumers.append(consumer)
        if not self.is_armed:
            self.timers.arm(self, monotonic_ns() + PUT_OFF_NS)
        return 0

    cdef int on_deadline(self, int64_t now_ns) except -1:
        cdef Consumer consumer
        cdef list consumers = self.consumers
        self.consumers = []
        for consumer in consumers:
            consumer.take_more()
        return 0


cdef class Release(Timed):
    """Gives back, little by little, the memory that drained queues have left."""

    def __init__(self, Timers timers):
        self.timers = timers

    cdef int check(self) except -1:
        if account.spare and account.used + account.spare > account.full:
            release_slabs(<uint32_t> ((account.used + account.spare - account.full) // SLAB_SIZE + 1))
        if slabs_kept() > KEPT_MIN and not self.is_armed:
            self.timers.arm(self, monotonic_ns() + RELEASE_STEP_NS)
        return 0

    cdef int on_deadline(self, int64_t now_ns) except -1:
        cdef uint32_t kept = slabs_kept()
        if kept > KEPT_MIN:
            release_slabs(min(RELEASE_MAX, (kept - KEPT_MIN + RELEASE_SHARE - 1) // RELEASE_SHARE))
        return self.check()
