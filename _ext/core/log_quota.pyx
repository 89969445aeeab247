"""Allows a burst of lines, then some a second, so that a peer can fill neither a disk nor the others' time. The first
line that is logged again says how many were dropped before it.
"""

from nsqfast._ext.core.clock cimport monotonic_ns
from nsqfast._ext.core.limits cimport LOG_LINE_NS, LOG_LINES_AT_ONCE


cdef class LogQuota:
    """The quota of one connection, for every line that its peer can cause repeatedly."""

    def admit(self):
        """Return a suffix for the line, or None if it is not to be logged."""
        cdef int64_t now_ns = monotonic_ns()
        cdef uint64_t left_out = self.left_out
        self.used_ns = max(self.used_ns, now_ns - LOG_LINES_AT_ONCE * LOG_LINE_NS)
        if self.used_ns >= now_ns:
            self.left_out += 1
            return None
        self.used_ns += LOG_LINE_NS
        self.left_out = 0
        return f" ({left_out} lines before it left out)" if left_out else ""
