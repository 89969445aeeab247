"""The engine: a queue on disk with a ring in memory before it, for each topic and for each channel."""

from libc.stdint cimport uint64_t

from nsqfast._ext.storage.diskqueue.backlog cimport SyncEnd, SyncTick
from nsqfast._ext.storage.diskqueue.cold_reads cimport ColdReads
from nsqfast._ext.storage.diskqueue.syncer cimport Syncer
from nsqfast._ext.storage.disposal cimport Disposal
from nsqfast._ext.storage.engine cimport Store
from nsqfast._ext.storage.memory cimport MemoryTopic


cdef class DiskStore(Store):
    cdef readonly Syncer syncer
    cdef SyncTick tick
    cdef SyncEnd sync_end
    cdef ColdReads cold


cdef class DiskTopic(MemoryTopic):
    pass


cdef class DiskDisposal(Disposal):
    cdef Syncer syncer
