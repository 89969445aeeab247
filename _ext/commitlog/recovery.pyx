"""What a start finds in a ring, and making one."""

from nsqfast._ext.commitlog.files cimport Files


def open_ring(str folder, uint64_t size, Files files=None, uint32_t align=4096, bint is_stepped=False, memory=None):
    """Open the ring in this folder, or make one of `size` bytes; return (CommitRing, Recovery).

    A ring that exists keeps its size. align: 4096 or 512, what batches start on. memory: the Memory that buffers are
    counted in. OptionsError: one line for the operator. OSError: the disk refused the making of the ring.
    """
    return CommitRing(), Recovery()


cdef class Recovery:
    cdef bint next(self, Record *record) except -1:
        return False
