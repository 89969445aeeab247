"""Some lines at once, then some a second. The first that is written again says how many were left out before it, so
that a peer fills neither a disk nor the time of others with what it is told.
"""

from nsqfast._ext.core.clock cimport monotonic_ns
from nsqfast._ext.core.limits cimport LOG_LINE_NS, LOG_LINES_AT_ONCE


cdef class LogQuota:
    """Of one connection, for all that its peer can have said again and again."""

    def admit(self):
        """What to write behind the line; None: leave it out."""
        cdef int64_t now_ns = monotonic_ns()
        cdef uint64_t left_out = self.left_out
        self.used_ns = max(self.used_ns, now_ns - LOG_LINES_AT_ONCE * LOG_LINE_NS)
        if self.used_ns >= now_ns:
            self.left_out += 1
            return None
        self.used_ns += LOG_LINE_NS
        self.left_out = 0
        return f" ({left_out} lines before it left out)" if left_out else ""
