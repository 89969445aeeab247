"""Holds no logic: whoever has a registry uses what it owns."""

from nsqfast._ext.storage.diskqueue.syncer cimport Syncer


cdef class Registry:
    """`options` has the fields of Settings and those that IDENTIFY answers with."""

    def __init__(self, object options, object make_topics=Topics):
        self.settings = Settings(options)
        self.timers = Timers()
        self.durability = Durability(self.settings, Syncer(), self.timers)
        self.topics = make_topics(self.durability)
        self.turn = Turn(self.durability)
