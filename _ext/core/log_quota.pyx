"""Allows a burst of lines, then some a second, so that a peer can fill neither a disk nor the others' time. The first
line that is logged again says how many were dropped before it.
"""

from nsqfast._ext.core.clock cimport monotonic_ns
from nsqfast._ext.core.limits cimport (
    LOG_ADDRESS_LINE_NS, LOG_ADDRESS_LINES_AT_ONCE, LOG_ADDRESSES_MAX, LOG_LINE_NS, LOG_LINES_AT_ONCE,
)


# By address, those of the longest ago first. Whoever has more addresses than fit has that much more quota anyway.
cdef dict of_addresses = {}


cdef class Allowance:
    """So many lines at once, and one more in each interval."""

    def __cinit__(self, int64_t lines_at_once, int64_t line_ns):
        self.line_ns = line_ns
        self.ahead_ns = lines_at_once * line_ns

    cdef bint has_line(self, int64_t now_ns) noexcept:
        self.used_ns = max(self.used_ns, now_ns - self.ahead_ns)
        return self.used_ns < now_ns


cdef Allowance find_allowance(str address):
    cdef Allowance found = of_addresses.get(address)
    if found is None:
        if len(of_addresses) >= LOG_ADDRESSES_MAX:
            del of_addresses[next(iter(of_addresses))]
        found = of_addresses[address] = Allowance(LOG_ADDRESS_LINES_AT_ONCE, LOG_ADDRESS_LINE_NS)
    return found


cdef class LogQuota:
    """The quota of one connection, within that of its peer's address, for every line that the peer can cause."""

    def __cinit__(self, str address not None):
        self.own = Allowance(LOG_LINES_AT_ONCE, LOG_LINE_NS)
        self.of_address = find_allowance(address)

    def admit(self, bint is_last=False):
        """Return a suffix for the line, or None if it is not to be logged. A last line needs none of the own quota."""
        cdef int64_t now_ns = monotonic_ns()
        cdef uint64_t left_out = 0
        for allowance in (self.of_address,) if is_last else (self.own, self.of_address):
            if not (<Allowance> allowance).has_line(now_ns):
                (<Allowance> allowance).left_out += 1
                return None
        for allowance in (self.own, self.of_address):
            (<Allowance> allowance).used_ns += (<Allowance> allowance).line_ns
            left_out += (<Allowance> allowance).left_out
            (<Allowance> allowance).left_out = 0
        return f" ({left_out} lines before it left out)" if left_out else ""
