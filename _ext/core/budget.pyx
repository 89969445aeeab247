"""The clock is read once in so many units, because reading it costs as much as a third of a unit."""

from nsqfast._ext.core.clock cimport now_monotonic

cdef enum:
    UNITS = 64

cdef int64_t PART_NS = 1000000
cdef int64_t fixed_units = 0

cdef extern from *:
    """
    static __thread int64_t nsq_overspent_count;
    """
    int64_t overspent_count "nsq_overspent_count"


cdef Budget begin_part() noexcept:
    if fixed_units:
        return Budget(0, fixed_units)
    return Budget(now_monotonic() + PART_NS, UNITS)


cdef Budget begin_short_part() noexcept:
    """For work that usually ends within a few units: the clock is first read after that many; the time starts then."""
    return Budget(0, fixed_units or UNITS)


cdef bint check_clock(Budget *budget) noexcept:
    global overspent_count
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
        overspent_count += 1
    return True


cdef int64_t count_overspent() noexcept:
    return overspent_count


cdef class Part:
    """A part of work that runs in Python."""
    cdef Budget budget

    def __init__(self):
        self.budget = begin_part()

    def is_spent(self, int64_t units):
        """Whether the part ends here; `units` is the work done since the last call."""
        return is_spent(&self.budget, units)


cdef void fix_parts_units(int64_t units) noexcept:
    global fixed_units
    fixed_units = units
