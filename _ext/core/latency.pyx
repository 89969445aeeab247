"""A histogram whose steps grow with the value: a quantile is off by less than one percent, whatever the values.

NSQ keeps a sketch of samples instead (spec nsqd-core §11); the windows are the same.
"""

from libc.stdlib cimport calloc, free
from libc.string cimport memset

from nsqfast._ext.core.clock cimport monotonic_ns

cdef extern from * nogil:
    int __builtin_clzll(unsigned long long value)

cdef enum:
    STEP_BITS = 6
    STEPS = 64                       # per doubling
    BUCKET_COUNT = 58 * STEPS        # up to the largest 63-bit number


cdef inline size_t bucket_of(int64_t value) noexcept:
    cdef int exponent
    if value < STEPS:
        return <size_t> max(value, 0)  # negative if the clock was set back
    exponent = 63 - __builtin_clzll(<unsigned long long> value)
    return <size_t> ((exponent - STEP_BITS + 1) * STEPS + ((value >> (exponent - STEP_BITS)) & (STEPS - 1)))


cdef inline int64_t middle_of(size_t bucket) noexcept:
    cdef int shift = <int> (bucket // STEPS) - 1
    if shift < 0:
        return <int64_t> bucket
    return ((STEPS + <int64_t> (bucket % STEPS)) << shift) + ((<int64_t> 1 << shift) >> 1)


cdef class Latency:
    """The latency of one channel."""

    def __init__(self, int64_t window_ns):
        self.half_window_ns = max(window_ns // 2, 1)

    def __dealloc__(self):
        free(self.counts[0])

    cdef int record(self, int64_t value_ns, int64_t now_ns) except -1:
        """Record one value; called at each FIN."""
        if self.counts[0] is NULL:
            self.counts[0] = <uint32_t *> calloc(2 * BUCKET_COUNT, sizeof(uint32_t))
            if self.counts[0] is NULL:
                raise MemoryError
            self.counts[1] = self.counts[0] + BUCKET_COUNT
            self.rotate_ns = now_ns + self.half_window_ns
        if now_ns >= self.rotate_ns:
            self.rotate(now_ns)
        self.counts[self.current][bucket_of(value_ns)] += 1
        return 0

    cdef int rotate(self, int64_t now_ns) noexcept:
        """Clear what is too old: the older half, or both after a long silence."""
        while now_ns >= self.rotate_ns:
            self.current = 1 - self.current
            memset(self.counts[self.current], 0, BUCKET_COUNT * sizeof(uint32_t))
            self.rotate_ns += self.half_window_ns
            if now_ns >= self.rotate_ns + self.half_window_ns:
                memset(self.counts[1 - self.current], 0, BUCKET_COUNT * sizeof(uint32_t))
                self.rotate_ns = now_ns + self.half_window_ns
        return 0

    cdef int add_to(self, uint64_t *sums) noexcept:
        cdef size_t i
        if self.counts[0] is not NULL:
            for i in range(<size_t> BUCKET_COUNT):
                sums[i] += self.counts[0][i] + <uint64_t> self.counts[1][i]
        return 0

    def note(self, int64_t value_ns):
        """Record a value now; for tests."""
        self.record(value_ns, monotonic_ns())


def summarize(list latencies not None, list quantiles not None):
    """Return (number of values, quantiles in ns) over all of them together; quantiles are 0 where there is no value."""
    cdef Latency latency
    cdef uint64_t count = 0
    cdef size_t i
    cdef uint64_t *sums = <uint64_t *> calloc(BUCKET_COUNT, sizeof(uint64_t))
    if sums is NULL:
        raise MemoryError
    try:
        for latency in latencies:
            if latency.counts[0] is not NULL and monotonic_ns() >= latency.rotate_ns:
                latency.rotate(monotonic_ns())
            latency.add_to(sums)
        for i in range(<size_t> BUCKET_COUNT):
            count += sums[i]
        return count, [quantile_of(sums, count, quantile) for quantile in quantiles]
    finally:
        free(sums)


cdef int64_t quantile_of(const uint64_t *sums, uint64_t count, double quantile) noexcept:
    """Return the smallest value that this share of all values does not exceed."""
    cdef uint64_t seen = 0, wanted = <uint64_t> (quantile * <double> count)
    cdef size_t i
    if count == 0:
        return 0
    if <double> wanted < quantile * <double> count or wanted == 0:
        wanted += 1
    for i in range(<size_t> BUCKET_COUNT):
        seen += sums[i]
        if seen >= wanted:
            return middle_of(i)
    return middle_of(BUCKET_COUNT - 1)
