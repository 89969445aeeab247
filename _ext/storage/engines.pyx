"""NSQFAST_ENGINE=memory is for tests of the broker alone: nothing is kept then, whatever the options say."""

import os

from nsqfast._ext.storage.diskqueue.store cimport DiskStore


cdef Store open_store(Settings settings, Timers timers, Memory memory):
    make = Store if os.environ.get("NSQFAST_ENGINE") == "memory" else DiskStore
    return make(settings, timers, memory)
