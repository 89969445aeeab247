"""A start: a ring is opened, what was found is brought to the disk for good, and nothing of a torn batch stays."""

from nsqfast._ext.commitlog.folder cimport RingFolder
from nsqfast._ext.commitlog.recovery cimport Recovery
from nsqfast._ext.commitlog.ring cimport CommitRing


# Let the ring go on behind the last batch.
cdef int hand_over(Recovery recovery, RingFolder folder, CommitRing ring) except -1
