"""A deferred message has a copy in each channel. It is at its topic as long as that is paused or has no channel, and
for a moment in a batch that some channels have and others lack (see `takeover`).

Copies whose deferral is over already are left alone, queued ones as well as delivered ones.
"""

from nsqfast._ext.broker.channel cimport Channel
from nsqfast._ext.broker.deferrals cimport find_told
from nsqfast._ext.broker.stored_deferrals cimport AWAITED, READ, Recall
from nsqfast._ext.core.budget cimport is_spent
from nsqfast._ext.core.heap cimport HeapNode
from nsqfast._ext.core.message cimport Delivery, delivery_free


cdef class DeferralEnd:
    """Call `go_on` until it is over, a part in each turn; `count` says how many copies were still deferred."""

    def __init__(self, Topic topic not None, uint64_t id, bint is_run):
        self.topic = topic
        self.id = id
        self.is_run = is_run
        self.place = len(topic.channel_list)
        self.end_at_topic()
        self.end_in_batch()

    cdef bint go_on(self, Budget *budget) except -1:
        """False: the part ended first. Channels are asked from the last to the first: none is left out if others are
        deleted meanwhile, and new ones come behind."""
        cdef Channel channel
        cdef Delivery *delivery
        self.place = min(self.place, len(self.topic.channel_list))
        while self.place:
            self.place -= 1
            channel = self.topic.channel_list[self.place]
            delivery = find_told(channel.deferred.told, self.id)
            if delivery is NULL and not self.end_stored(channel):
                self.place += 1     # a disk has to answer first
                return False
            if delivery is not NULL:
                self.count += 1
                channel.deferred.remove(<HeapNode *> delivery)
                if self.is_run:
                    channel.queue_due(delivery)
                    channel.pump()
                else:
                    channel.backlog.done(delivery)
            if is_spent(budget, 1) and self.place:
                return False
        return True

    cdef bint end_stored(self, Channel channel) except -1:
        """The same where the message is on disk alone; False: not yet."""
        cdef uint64_t ordinal = channel.stored.find_told(self.id)
        cdef Delivery *delivery = NULL
        cdef Recall recall
        if ordinal == 0 or not channel.backlog.is_unfinished(ordinal):
            return True
        if not self.is_run:
            self.count += 1
            channel.backlog.finish_record(ordinal, self.id)
            channel.stored.end_told(self.id)
            return True
        recall = channel.stored.recall_told(self.id, &delivery)
        if recall != READ:
            return recall != AWAITED
        # The entry stays in the heap, so its record has to be another one.
        if not channel.backlog.renew(delivery, False):
            delivery_free(delivery)
            return True
        self.count += 1
        channel.stored.end_told(self.id)
        channel.queue_due(delivery)
        channel.pump()
        return True

    cdef int end_at_topic(self) except -1:
        cdef Delivery *delivery = find_told(self.topic.deferred.told, self.id)
        if delivery is NULL or delivery.message.defer_ms == 0:
            return 0
        self.count += 1
        if self.is_run:
            delivery.message.defer_ms = 0   # its first channel has it at once
            return 0
        self.topic.deferred.remove(delivery)
        return self.topic.backlog.done(delivery)

    cdef int end_in_batch(self) except -1:
        cdef Delivery *delivery = self.topic.takeover.find_told(self.id)
        if delivery is NULL:
            return 0
        self.count += self.topic.takeover.lacking_count(delivery)
        if self.is_run:
            delivery.message.defer_ms = 0
            return 0
        self.topic.takeover.leave_out(delivery)
        return self.topic.backlog.done(delivery)
