"""Switches and figures of the whole process, for tests."""

from libc.stdint cimport int64_t

from nsqfast._ext.broker.deferrals cimport keep_deferred_count
from nsqfast._ext.core.budget cimport fix_parts_units
from nsqfast._ext.core.clock cimport monotonic_ns, move_clocks, wall_ahead
from nsqfast._ext.core.memory cimport Memory
from nsqfast._ext.core.message cimport count_deliveries, count_slabs, slabs_kept
from nsqfast._ext.storage.diskqueue.ackmapping cimport count_mappings, limit_mappings
from nsqfast._ext.storage.diskqueue.lag cimport set_recent_size

from nsqfast._ext.core.memory import memories


def fix_parts(int64_t units):
    """End each part of this process after so many units, however long they take; 0 restores the clock."""
    fix_parts_units(units)


def shift_wall(int64_t offset_ns):
    """Set the wall clock of this process ahead (or back) by so much; 0 ends it."""
    move_clocks(offset_ns, 0)


def let_pass(int64_t duration_ns):
    """Let that much time pass at once on this process's monotonic clock; return the new time."""
    assert duration_ns >= 0
    move_clocks(wall_ahead(), duration_ns)
    return monotonic_ns()


def keep_deferred(int64_t count):
    """Let each channel of this process keep so many deferred messages in memory."""
    keep_deferred_count(count)


def limit_recent(int64_t size):
    """Let the queues on disk of this process have records written again that lie twice so far behind the reader."""
    set_recent_size(size)


def live_deliveries():
    """How many deliveries exist now."""
    cdef Memory memory
    cdef int64_t count = 0
    for memory in memories:
        count += count_deliveries(memory.account)
    return count


def used_bytes():
    """What all brokers of this process count as memory, and what belongs to none of them."""
    cdef Memory memory
    cdef int64_t size = 0
    for memory in memories:
        size += memory.account.used
    return size


def pool_slabs(Memory memory not None):
    """Return (slabs of 1 MiB with messages in them, empty ones kept for later)."""
    return count_slabs(memory.account), slabs_kept(memory.account)


def limit_mapped(size_t count):
    """Map at most so many ack files; 0: as many as Linux allows."""
    limit_mappings(count)


def count_mapped():
    """How many ack files are mapped now."""
    return count_mappings()
