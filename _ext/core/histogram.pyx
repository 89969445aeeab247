"""How long things took, counted since the start into fixed steps: what Prometheus makes quantiles of."""

from libc.stdint cimport int64_t, uint64_t

BOUNDS_S = tuple([bounds_ns[i] / 1e9 for i in range(BOUND_COUNT)])


cdef class Histogram:
    """Counts by BOUNDS_S and beyond."""

    def note(self, int64_t value_ns):
        """One more; what is less than nothing counts as nothing."""
        record(&self.steps, value_ns)

    def cumulative(self):
        """How many were at most as long as each bound; the last is how many there were."""
        cdef uint64_t count = 0
        cdef int i
        found = []
        for i in range(BOUND_COUNT + 1):
            count += self.steps.counts[i]
            found.append(count)
        return found

    @property
    def sum_s(self):
        """All of them together, in seconds."""
        return self.steps.sum_ns / 1e9
