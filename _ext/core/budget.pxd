"""Limits on work that may take long: it runs a part at a time, so that no client waits for another one's work.

A part lasts about a millisecond. The rest continues in a later turn of the loop, behind whatever arrived meanwhile: a
Timed arms itself again, a client is blocked and released. A unit is a command, a message or anything else that takes
some 100 ns; code that loops over many of them reports how many it did, and stops when is_spent returns true.
"""

from libc.stdint cimport int64_t


ctypedef struct Budget:
    int64_t until_ns    # on the real clock, which tests do not move
    int64_t units       # until the clock is read again


cdef Budget begin_part() noexcept
cdef Budget begin_short_part() noexcept
cdef bint check_clock(Budget *budget) noexcept
# How many parts of this thread, and so of its loop, took twice their time: a single unit does that waits for the disk.
cdef int64_t count_overspent() noexcept
# For tests: end each part after so many units, however long they take; 0 restores the clock.
cdef void fix_parts_units(int64_t units) noexcept


cdef inline bint is_spent(Budget *budget, int64_t units) noexcept:
    """Whether the part ends here; `units` is the work done since the last call."""
    budget.units -= units
    return budget.units <= 0 and check_clock(budget)
