"""What a broker within a test can do beyond others: tell what was published, and let time pass for deferred messages.

Nothing of it is in the topics of a program.
"""

from libc.stdint cimport int64_t

from nsqfast._ext.broker.topic cimport Topic
from nsqfast._ext.broker.topics cimport Topics


cdef class EmbeddedTopics(Topics):
    cdef public object on_message    # called without arguments for each message that is published


cdef class EmbeddedTopic(Topic):
    cdef EmbeddedTopics topics
    cdef readonly list bodies        # bytes: those of the first messages, in the order in which they were published
    cdef int64_t room                # for the bytes of further ones

    cdef Py_ssize_t let_pass(self, int64_t time_ns) except -1
