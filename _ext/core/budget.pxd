"""Work that may take long is done a part at a time, so that nobody waits for somebody else.

A part lasts about a millisecond. What is left then goes on in a later turn of the loop, behind what came meanwhile: a
Timed arms itself again, a client is held and released. A unit is a command, a message or whatever else takes some
100 ns; work that goes through many of them says how many it did, and stops where is_spent says so.
"""

from libc.stdint cimport int64_t


ctypedef struct Budget:
    int64_t until_ns    # of the clock that no test moves
    int64_t units       # until the clock is looked at again


cdef Budget begin_part() noexcept
cdef Budget begin_short_part() noexcept
cdef bint look_at_clock(Budget *budget) noexcept
# Whether a part took twice its time, as a single unit that waits for the disk does, since this was asked last.
cdef bint was_overspent() noexcept
# Let each part end after so many units, however long they take; 0 ends it.
cdef void fix_parts_units(int64_t units) noexcept


cdef inline bint is_spent(Budget *budget, int64_t units) noexcept:
    """Whether the part ends here; `units`: what was done since the last call."""
    budget.units -= units
    return budget.units <= 0 and look_at_clock(budget)
