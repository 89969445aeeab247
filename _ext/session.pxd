"""The commands of protocol V2 (spec nsqd-tcp §4, §5) on one connection."""

from libc.stdint cimport int64_t, uint64_t

from nsqfast._ext.channel cimport Channel, Settled
from nsqfast._ext.command cimport Line, MpubScan
from nsqfast._ext.connection cimport Connection
from nsqfast._ext.message cimport Delivery
from nsqfast._ext.topic cimport Topic


cdef class Session(Connection):
    cdef readonly int state
    cdef readonly Channel channel             # None until SUB
    cdef readonly str client_id
    cdef readonly str hostname
    cdef readonly str user_agent
    cdef readonly str topology_zone
    cdef readonly str topology_region
    cdef readonly uint64_t message_count      # deliveries
    cdef readonly uint64_t finish_count
    cdef readonly uint64_t requeue_count
    cdef bint has_settled                     # a slot of the window came free while the input was read
    cdef Py_ssize_t scanned                   # bytes at the front of the input known to hold no newline
    cdef Py_ssize_t need                      # bytes without which another look is useless
    cdef MpubScan scan
    cdef Topic topic                          # the last one published to, and how often since it became the last
    cdef uint64_t topic_count
    cdef dict counts                          # topic name -> publishes, without the ones above

    cdef Py_ssize_t step(self, const char *data, Py_ssize_t size) except -1
    cdef Py_ssize_t run(self, const char *data, Py_ssize_t size, Line *line) except -1
    cdef int feed(self) except -1
    cdef int take_more(self) except -1
    cdef Py_ssize_t read_magic(self, const char *data, Py_ssize_t size) except -1
    cdef bint more(self, Py_ssize_t need, str code, str detail) except -1
    cdef Py_ssize_t pub(self, const char *data, Py_ssize_t size, Line *line) except -1
    cdef Py_ssize_t dpub(self, const char *data, Py_ssize_t size, Line *line) except -1
    cdef Py_ssize_t message_size(self, const char *data, Py_ssize_t size, Line *line, str command) except -1
    cdef int check_topic(self, Line *line, str command, str prefix) except -1
    cdef bint is_last_topic(self, Line *line) noexcept
    cdef int choose_topic(self, Line *line) except -1
    cdef int settle_counts(self) except -1
    cdef int publish(self, Line *line, str command, const char *body, Py_ssize_t size, int64_t delay_ms) except -1
    cdef Py_ssize_t mpub(self, const char *data, Py_ssize_t size, Line *line) except -1
    cdef bint mpub_head(self, const char *data, Py_ssize_t size, Line *line) except -1
    cdef bint mpub_bodies(self, const char *data, Py_ssize_t size, Py_ssize_t start) except -1
    cdef Py_ssize_t sub(self, Line *line) except -1
    cdef Py_ssize_t ready(self, Line *line) except -1
    cdef Py_ssize_t fin(self, Line *line) except -1
    cdef Py_ssize_t req(self, Line *line) except -1
    cdef int64_t clamp(self, uint64_t delay_ms) except -1
    cdef Py_ssize_t touch(self, Line *line) except -1
    cdef int check_settling(self, Line *line, str command, int parameters) except -1
    cdef Py_ssize_t not_settled(self, Line *line, str command, Settled settled) except -1
    cdef Py_ssize_t cls(self, Line *line) except -1
    cdef Py_ssize_t sized(self, const char *data, Py_ssize_t size, Line *line, str command, str missing, int64_t size_max) except -2
    cdef bytes whole_body(self, const char *data, Py_ssize_t size, Line *line, str command)
    cdef Py_ssize_t identify(self, const char *data, Py_ssize_t size, Line *line) except -1
    cdef Py_ssize_t auth(self, const char *data, Py_ssize_t size, Line *line) except -1
    cdef bint wants(self) noexcept
    cdef int deliver(self, Delivery *delivery) except -1
    cdef int flush(self) except -1
    cdef int leave(self) except -1
