"""The clock is read once in so many units, because reading it costs as much as a third of a unit."""

from nsqfast._ext.core.clock cimport now_monotonic

cdef enum:
    UNITS = 64

cdef int64_t PART_NS = 1000000
cdef int64_t fixed_units = 0
# Whether some part took twice its time since the last was_overspent().
cdef bint is_overspent = False


cdef Budget begin_part() noexcept:
    if fixed_units:
        return Budget(0, fixed_units)
    return Budget(now_monotonic() + PART_NS, UNITS)


cdef Budget begin_short_part() noexcept:
    """For work that usually ends within a few units: the clock is first read after that many; the time starts then."""
    return Budget(0, fixed_units or UNITS)


cdef bint check_clock(Budget *budget) noexcept:
    global is_overspent
    cdef int64_t now_ns
    if fixed_units:
        return True
    now_ns = now_monotonic()
    if budget.until_ns == 0:
        budget.until_ns = now_ns + PART_NS
    if now_ns < budget.until_ns:
        budget.units = UNITS
        return False
    if now_ns >= budget.until_ns + PART_NS:
        is_overspent = True
    return True


cdef bint was_overspent() noexcept:
    global is_overspent
    cdef bint found = is_overspent
    is_overspent = False
    return found


cdef class Part:
    """A part of work that runs in Python."""
    cdef Budget budget

    def __init__(self):
        self.budget = begin_part()

    def is_spent(self, int64_t units):
        """Whether the part ends here; `units` is the work done since the last call."""
        return is_spent(&self.budget, units)


cdef void fix_parts_units(int64_t units) noexcept:
    global fixed_units, is_overspent
    fixed_units = units
    is_overspent = False
