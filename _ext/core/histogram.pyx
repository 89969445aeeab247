"""Counts durations since the start in fixed buckets, from which Prometheus computes quantiles."""

from libc.stdint cimport int64_t, uint64_t

BOUNDS_S = tuple([bounds_ns[i] / 1e9 for i in range(BOUND_COUNT)])


cdef class Histogram:
    """One count per bound in BOUNDS_S, and one for everything beyond."""

    def note(self, int64_t value_ns):
        """Record one value; a negative one counts as zero."""
        record(&self.steps, value_ns)

    def cumulative(self):
        """How many values were within each bound; the last number counts them all."""
        cdef uint64_t count = 0
        cdef int i
        found = []
        for i in range(BOUND_COUNT + 1):
            count += self.steps.counts[i]
            found.append(count)
        return found

    @property
    def sum_s(self):
        """The sum of all values in seconds."""
        return self.steps.sum_ns / 1e9
