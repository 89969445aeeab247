"""The publish commands of a client."""

from libc.stdint cimport int64_t, uint64_t

from nsqfast._ext.broker.consumer cimport Waiter
from nsqfast._ext.broker.deferral_end cimport DeferralEnd
from nsqfast._ext.broker.registry cimport Registry
from nsqfast._ext.broker.topic cimport Topic
from nsqfast._ext.protocol.command cimport Line, MpubScan
from nsqfast._ext.server.auth cimport Auth
from nsqfast._ext.server.host cimport Host
from nsqfast._ext.server.partial_command cimport PartialCommand


cdef class Publisher(Waiter):
    cdef Host host
    cdef Registry registry
    cdef PartialCommand command
    cdef Auth auth
    cdef MpubScan scan
    cdef uint64_t sliced_count                # messages of a large MPUB that were put, while the rest waits for a turn
    cdef Py_ssize_t sliced_size               # bytes before the next one, from the line's first; 0 = none were put
    cdef Topic topic                          # the last one published to, with its number of publishes since then
    cdef uint64_t topic_count
    cdef dict counts                          # topic name -> publishes, without those of `topic_count`
    cdef list uncounted                       # [ticket, publishes, topic name] of those whose OK waits, without:
    cdef uint64_t last_ticket                 # those of the last ticket, as long as all are for one topic
    cdef uint64_t last_count
    cdef Topic last_topic
    cdef uint64_t open_oks                    # of this turn, whose write is postponed
    cdef uint64_t open_count                  # the number of messages in these
    cdef bint tells_ids                       # the client negotiated that it may be told the ids of deferred messages
    cdef DeferralEnd deferral_end             # of the command that is blocked; None = it has not begun
    cdef bint is_refused                      # that write failed; its error ends the connection

    cdef Py_ssize_t pub(self, const char *data, Py_ssize_t size, Line *line) except -1
    cdef Py_ssize_t dpub(self, const char *data, Py_ssize_t size, Line *line) except -1
    cdef Py_ssize_t message_size(self, const char *data, Py_ssize_t size, Line *line, str command) except -1
    cdef int check_topic(self, Line *line, str command, str prefix) except -1
    cdef bint may_publish(self, Line *line, str command) except -1
    cdef bint is_last_topic(self, Line *line) noexcept
    cdef int choose_topic(self, Line *line) except -1
    cdef int add_up_counts(self) except -1
    cdef int check_open(self, str command) except -1
    cdef bint was_refused(self) except -1
    cdef int close_last(self) except -1
    cdef int note_taken(self, uint64_t ticket, uint64_t count, bint is_put_off) except -1
    cdef int accept(self, uint64_t ticket, str command, uint64_t count, bint is_put_off) except -1
    cdef int publish(self, Line *line, str command, const char *body, Py_ssize_t size, int64_t delay_ms,
                     bint is_told) except -1
    cdef Py_ssize_t mpub(self, const char *data, Py_ssize_t size, Line *line) except -1
    cdef Py_ssize_t put_slices(self, const char *data, Line *line) except -1
    cdef bint mpub_head(self, const char *data, Py_ssize_t size, Line *line) except -1
    cdef bint mpub_bodies(self, const char *data, Py_ssize_t size, Py_ssize_t start) except -1
    cdef Py_ssize_t end_deferral(self, Line *line) except -1
    cdef int on_durable(self, uint64_t done_ticket, str error) except -1
