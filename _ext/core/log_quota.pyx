"""Some lines at once, then some a second. The first that is written again says how many were left out before it, so
that a peer fills neither a disk nor the time of others with what it is told.
"""

from nsqfast._ext.core.clock cimport monotonic_ns

cdef enum:
    LINES_AT_ONCE = 100

cdef int64_t STEP_NS = 100000000      # ten lines a second


cdef class LogQuota:
    """Of one connection, for all that its peer can have said again and again."""

    def admit(self):
        """What to write behind the line; None: leave it out."""
        cdef int64_t now_ns = monotonic_ns()
        cdef uint64_t left_out = self.left_out
        self.used_ns = max(self.used_ns, now_ns - LINES_AT_ONCE * STEP_NS)
        if self.used_ns >= now_ns:
            self.left_out += 1
            return None
        self.used_ns += STEP_NS
        self.left_out = 0
        return f" ({left_out} lines before it left out)" if left_out else ""
