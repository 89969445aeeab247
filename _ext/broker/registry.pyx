"""Holds no logic: whoever has a registry uses what it owns."""

from nsqfast._ext.storage.engines cimport open_store


cdef class Registry:
    """`options` has the fields of Settings and those that IDENTIFY answers with."""

    def __init__(self, object options, object make_topics=Topics):
        self.settings = Settings(options)
        self.memory = Memory(options.max_memory)
        self.timers = Timers(self.memory)
        self.durability = Durability(open_store(self.settings, self.timers, self.memory))
        self.topics = make_topics(self.durability)
        self.turn = Turn(self.durability)
        self.checkpoints = Checkpoints(self.durability.store, self.topics)
