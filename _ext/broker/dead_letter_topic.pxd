"""A topic that the dead letters of a channel are published to."""

from nsqfast._ext.broker.channel cimport Channel
from nsqfast._ext.broker.dead_letters cimport DeadLetters
from nsqfast._ext.broker.topic cimport Topic
from nsqfast._ext.broker.topics cimport Topics
from nsqfast._ext.core.message cimport Delivery


cdef class DeadLetterTopic(DeadLetters):
    cdef str topic_name          # the channel's
    cdef str channel_name
    cdef Topics topics
    cdef Topic topic             # with that name, when it was last needed; None: it was not

    cdef Topic find(self)
    cdef bint copy(self, Delivery *delivery) except -1


# The channel gets the default ones, unless it has some.
cdef int find_dead_letters(Topics topics, Channel channel) except -1
