"""Which engine the broker of this process has."""

from nsqfast._ext.core.heap cimport Timers
from nsqfast._ext.core.memory cimport Memory
from nsqfast._ext.core.settings cimport Settings
from nsqfast._ext.storage.engine cimport Store


cdef Store open_store(Settings settings, Timers timers, Memory memory)
