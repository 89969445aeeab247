"""Topics are created when somebody first names them, and deleted by operators, or with their last channel."""

import logging
from bisect import bisect_left, insort

from nsqfast._ext.broker.shutdown cimport Shutdown

from nsqfast._ext.broker.dead_letters import REASONS
from nsqfast.errors import ProtocolError

log = logging.getLogger("nsqd")


cdef class Topics:
    def __init__(self, Durability durability not None):
        self.durability = durability
        self.by_name, self.deleting = {}, {}
        self.names = []

    def ensure(self, str name):
        """Return the topic of that (valid) name, created if need be."""
        cdef Topic topic = self.by_name.get(name)
        if topic is None:
            if name in self.deleting:
                (<Topic> self.deleting[name]).finish_deletion()
            topic = self.make(name)
            topic.exiting = self.durability.closing
            self.by_name[name] = topic
            insort(self.names, name)
            log.info("TOPIC(%s): created", name)
            self.changed("topic+", name, None)
        return topic

    cdef Topic make(self, str name):
        return Topic(name, self.durability, self.changed, self.on_last_left, self.on_deleted)

    def admit(self, str name, str channel=None):
        """ProtocolError if a client would create more of them than is allowed; a start creates all that it finds."""
        cdef Topic topic = self.by_name.get(name)
        options = self.durability.settings.options
        if topic is None and 0 < options.max_topics <= len(self.by_name):
            limit = f"--max-topics={options.max_topics}"
            raise ProtocolError("E_BAD_TOPIC", f"topic {name} not created, {limit} is reached")
        if (topic is not None and channel is not None and topic.find_channel(channel) is None
                and 0 < options.max_channels_per_topic <= len(topic.channel_list)):
            limit = f"--max-channels-per-topic={options.max_channels_per_topic}"
            raise ProtocolError("E_BAD_CHANNEL", f"channel {name}:{channel} not created, {limit} is reached")

    def find(self, str name):
        """Return the topic of that name, or None."""
        return self.by_name.get(name)

    cdef Topic find_ascii(self, const char *name, Py_ssize_t size):
        """The same for an ASCII name; often it is that of the call before."""
        if self.recent is None or not self.recent.has_name(name, size):
            self.recent = self.by_name.get(name[:size].decode("ascii"))
        return self.recent

    def sorted(self):
        """Return all of them, by name."""
        return [self.by_name[name] for name in self.names]

    def delete(self, str name):
        """Delete it with all its channels, messages and files; KeyError if there is none."""
        cdef Topic topic = self.by_name.pop(name)
        del self.names[bisect_left(self.names, name)]
        log.info("TOPIC(%s): deleting", name)
        self.deleting[name] = topic
        if topic is self.recent:
            self.recent = None
        topic.delete()
        self.changed("topic-", name, None)

    def on_last_left(self, str name):
        """An ephemeral topic lost its last channel."""
        if name in self.by_name:
            self.delete(name)

    def on_deleted(self, str name):
        """All channels of a deleted topic are deleted, too."""
        del self.deleting[name]

    def changed(self, str kind, str topic, object channel):
        """Something was created or deleted."""
        if kind == "channel+":
            log.info("TOPIC(%s): new channel(%s)", topic, channel)
        elif kind == "channel-":
            log.info("TOPIC(%s): deleting channel %s", topic, channel)
        if self.on_change is not None:
            self.on_change(kind, topic, channel)

    @property
    def dead_counts(self):
        """How many messages died, by reason."""
        return {reason: self.dead_counts[number] for number, reason in enumerate(REASONS)}

    def logged_names(self):
        """Return the names of queues that the commit log knows: "topic" or "topic:channel"."""
        return self.durability.store.logged_names()

    def remove_cut(self, str queue):
        """Return whether nothing of this queue was ever answered, as the commit log says; then its files are gone."""
        return self.durability.store.remove_cut(queue)

    def starting(self):
        """Return a context in which many topics are created, one after the other."""
        return self.durability.store.starting()

    def when_kept(self, callback):
        """See Durability.when_all_durable."""
        self.durability.when_all_durable(callback)

    def when_removed(self, callback):
        """Call callback() once the files of everything emptied or deleted so far are gone."""
        self.durability.store.disposal.when_removed(callback)

    def close(self, on_progress=None):
        """Refuse publishes, bring everything to disk, close all files. OSError says in one line what was lost. A second
        call does nothing.

        on_progress(number of queues, those whose content is on disk, those that are closed) is called several times a
        second, from within."""
        cdef Durability durability = self.durability
        if durability.closing:
            return
        durability.closing = True
        failed_before = durability.store.tickets().failed
        shutdown = Shutdown(durability.store, self.sorted(), on_progress)
        lost = shutdown.run()
        for topic in list(self.deleting.values()):
            (<Topic> topic).finish_deletion()
        unclosed = durability.store.close()
        lost = lost or unclosed
        if lost is None and durability.store.tickets().failed > failed_before:
            lost = OSError(durability.store.tickets().error, f"not everything could be closed - {durability.health()}")
        if lost is not None:
            raise lost
