"""NSQFAST_ENGINE=memory is for tests of the broker alone: nothing is kept then, whatever the options say."""

import os

from nsqfast._ext.storage.diskqueue.store cimport DiskStore
from nsqfast._ext.storage.memory cimport MemoryStore


cdef Store open_store(Settings settings, Timers timers, Memory memory):
    make = MemoryStore if os.environ.get("NSQFAST_ENGINE") == "memory" else DiskStore
    return make(settings, timers, memory)
