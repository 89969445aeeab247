"""What one client is sent, in the order of its commands, and what of it waits for the disk."""

cimport cython
from libc.stdint cimport uint64_t

from nsqfast._ext.broker.channel cimport Outcome
from nsqfast._ext.broker.consumer cimport Client
from nsqfast._ext.broker.registry cimport Registry
from nsqfast._ext.broker.topic cimport Topic
from nsqfast._ext.protocol.buffer cimport WriteBuffer


@cython.final
cdef class Answers:
    cdef Registry registry
    cdef Client client                # who gets them
    cdef WriteBuffer output           # what is sent at the end of the turn
    cdef bint is_listed               # in the turn's list of those with output from this turn
    # What waits for the disk. OKs for one topic that wait for one ticket are a group, counted and not one object each:
    # the last group stands in the fields below, the earlier ones in a deque of [ticket, number of OKs, command,
    # other frame, topic name, messages]; None = nothing ever waited.
    cdef object waiting
    cdef Py_ssize_t waiting_count     # entries, with the last group
    cdef uint64_t last_ticket         # of all that wait: nothing is sent before what stands ahead of it
    cdef str last_command             # None = what stands last is no group
    cdef Topic last_topic
    cdef uint64_t last_ok_count
    cdef uint64_t last_message_count
    cdef dict publish_counts          # topic name -> messages that it has published

    cdef int want_flush(self) except -1
    cdef int send(self, int frame_type, bytes data) except -1
    cdef bytes refuse(self, str command, bytes id, Outcome outcome)
    cdef int accept(self, uint64_t ticket, str command, Topic topic, uint64_t message_count) except -1
    cdef int accept_with_id(self, uint64_t ticket, str command, Topic topic, uint64_t id) except -1
    cdef uint64_t send_kept(self, str command, bytes data) except? 0
    cdef int count(self, str topic_name, uint64_t message_count) except -1
    cdef int begin_entry(self, uint64_t ticket) except -1
    cdef int begin_group(self, uint64_t ticket, str command, Topic topic) except -1
    cdef int end_group(self) except -1
    cdef int append(self, uint64_t ticket, str command, object other, str topic_name, uint64_t message_count) except -1
    cdef list take_done(self, uint64_t done_ticket)
    cdef bint answer_group(self, uint64_t done_ticket) except -1
    cdef int on_durable(self, uint64_t done_ticket, str error) except -1


# Of a command, for a message; bytes that are no UTF-8 stay what they are.
cdef str text(const char *data, Py_ssize_t size)
cdef object invalid(str detail)
cdef object wrong_state(str command)

# Counts it, too.
cdef object publish_failed(str command, object error)
