"""A start: a ring is opened, what was found is brought to the disk for good, and nothing of a torn batch stays."""

from libc.stdint cimport uint32_t, uint64_t
from libc.string cimport memset

from nsqfast._ext.commitlog.files cimport Files
from nsqfast._ext.commitlog.format cimport QUARTER_COUNT, SECTOR_SIZE, align_up, place_offset, place_quarter
from nsqfast._ext.commitlog.recovery cimport Found
from nsqfast._ext.core.memory cimport Memory
from nsqfast.errors import OptionsError

cdef enum:
    PAGE_SIZE = 4096


def open_ring(
    str folder, uint64_t size, Files files=None, uint32_t align=4096, bint is_stepped=False, Memory memory=None,
    bint is_interval=False,
):
    """Open the ring in this folder, or make one of `size` bytes; return (CommitRing, Recovery).

    A ring that exists keeps its size. align: 4096 or 512, what batches start on; 512 suits those that are synced by
    time. memory: what buffers are counted in. is_interval: they are written with write(), and synced by time; either
    kind of ring goes on where the other one ended. OptionsError: one line for the operator. OSError: the disk refused.
    """
    cdef RingFolder opened = RingFolder(folder, files)
    opened.open(size, align, is_interval)
    cdef Recovery recovery = Recovery(opened)
    cdef CommitRing ring = CommitRing(opened, align, is_stepped, memory, is_interval)
    hand_over(recovery, opened, ring)
    return ring, recovery


cdef int hand_over(Recovery recovery, RingFolder folder, CommitRing ring) except -1:
    cdef int quarter
    ring.go_on(recovery.last, recovery.first, recovery.end_crc, recovery.end_quarter, recovery.end_offset)
    ring.latest_ns = recovery.latest_ns
    for quarter in range(QUARTER_COUNT):
        ring.last[quarter] = recovery.last_in[quarter]
    sync_all(recovery, folder)
    is_interval = ring.is_interval or folder.head.interval_from > 0
    if is_interval and folder.head.interval_from != ring.filling:
        # Before the headers that prove it are gone.
        folder.note_interval(ring.filling)
    return 0 if folder.is_new else erase_torn(ring, align_up(recovery.end_offset, SECTOR_SIZE))


cdef int sync_all(Recovery recovery, RingFolder folder) except -1:
    """Write again what no header proves, and the last batch in any case. OSError: it cannot be handed out, since it
    may be in the kernel's cache alone."""
    cdef bint[QUARTER_COUNT] is_written
    cdef uint64_t interval_from = folder.head.interval_from
    cdef size_t i = recovery.count
    cdef Found *found
    cdef int quarter
    memset(is_written, 0, sizeof(is_written))
    while i > 0 and (i == recovery.count or recovery.found[i - 1].sequence > recovery.proven):
        i -= 1
        found = &recovery.found[i]
        quarter = place_quarter(found.place)
        # Where each batch is synced, one in a quarter where a later write failed was.
        if not folder.is_bad(quarter) or 0 < interval_from <= found.sequence:
            is_written[quarter] |= write_again(recovery, folder, found)
    for quarter in range(QUARTER_COUNT):
        if is_written[quarter]:
            folder.sync_quarter(quarter)
    return 0


cdef bint write_again(Recovery recovery, RingFolder folder, Found *found) except -1:
    """Return whether it is whole."""
    cdef uint64_t start = place_offset(found.place)
    cdef uint64_t page = start // PAGE_SIZE * PAGE_SIZE
    cdef bint is_loaded = recovery.load_batch(found)
    if is_loaded:
        size = align_up(start + found.length, PAGE_SIZE) - page
        folder.write_again(place_quarter(found.place), page, recovery.data, size)
    recovery.salvage.size = recovery.position = 0
    return is_loaded


cdef int erase_torn(CommitRing ring, uint64_t offset) except -1:
    """Leave nothing of what was cut off, whose numbers the next ones get: its records would pass for those. It may have
    left some even where no header was written."""
    cdef RingFolder folder = ring.folder
    cdef int following = ring.quarter_behind(ring.quarter)
    cdef int quarter
    for quarter in range(QUARTER_COUNT):
        # A bad one cannot be overwritten: what was cut off there is not to be believed.
        if folder.head.failed[quarter] > ring.filling:
            folder.note_bad(quarter, ring.filling)
    if not folder.is_bad(ring.quarter):
        folder.erase(ring.quarter, offset, ring.filling)
    for _ in range(2 if folder.head.interval_from else 1):
        if following < 0 or ring.last[following] >= ring.needed_from:
            break
        folder.erase(following, 0, ring.filling)
        following = ring.quarter_behind(following)
    if folder.count_good() == 0:
        raise OptionsError(f"{folder.path}: writing fails in every quarter: move the folder to another disk")
    return 0
