"""The commands of protocol V2 (spec nsqd-tcp §4, §5) of one client."""

from libc.stdint cimport int64_t, uint64_t

from nsqfast._ext.broker.channel cimport Channel, Outcome
from nsqfast._ext.broker.consumer cimport Consumer
from nsqfast._ext.broker.registry cimport Registry
from nsqfast._ext.core.message cimport Delivery
from nsqfast._ext.protocol.buffer cimport ReadBuffer, WriteBuffer
from nsqfast._ext.protocol.command cimport Line
from nsqfast._ext.server.auth cimport Auth
from nsqfast._ext.server.host cimport Host
from nsqfast._ext.server.partial_command cimport PartialCommand
from nsqfast._ext.server.publisher cimport Publisher


cdef class Session(Consumer):
    cdef readonly Host host                   # the connection that owns this session
    cdef Registry registry
    cdef ReadBuffer input                     # the host's
    cdef WriteBuffer output                   # the host's
    cdef PartialCommand command
    cdef Auth auth
    cdef Publisher publisher
    cdef readonly int state
    cdef readonly Channel channel             # None until SUB
    cdef readonly str client_id
    cdef int64_t identity_size                # bytes of the IDENTIFY that these strings come from
    cdef readonly str hostname
    cdef readonly str user_agent
    cdef readonly str topology_zone
    cdef readonly str topology_region
    cdef bint is_located                      # an IDENTIFY has set `distance`
    cdef readonly bint deflate
    cdef readonly bint snappy
    cdef bint needs_tls                       # no command but IDENTIFY is allowed before the handshake
    cdef readonly uint64_t message_count      # deliveries
    cdef readonly uint64_t finish_count
    cdef readonly uint64_t requeue_count
    cdef bint has_free_slot                   # a slot of the window came free while the input was processed
    cdef bint is_put_off                      # is in the registry's list of those that take more after a short delay

    cdef Py_ssize_t step(self, const char *data, Py_ssize_t size) except -1
    cdef Py_ssize_t run(self, const char *data, Py_ssize_t size, Line *line) except -1
    cdef bint waits_to_be_costly(self) except -1
    cdef int feed(self) except -1
    cdef int refill_window(self) except -1
    cdef bint is_crowded(self) noexcept
    cdef int take_more(self) except -1
    cdef Py_ssize_t read_magic(self, const char *data, Py_ssize_t size) except -1
    cdef Py_ssize_t sub(self, Line *line) except -1
    cdef Py_ssize_t ready(self, Line *line) except -1
    cdef Py_ssize_t fin(self, Line *line) except -1
    cdef Py_ssize_t req(self, Line *line) except -1
    cdef int64_t clamp(self, uint64_t delay_ms) except -1
    cdef Py_ssize_t touch(self, Line *line) except -1
    cdef int check_message_command(self, Line *line, str command, int parameters) except -1
    cdef Py_ssize_t refuse_message_command(self, Line *line, str command, Outcome outcome) except -1
    cdef Py_ssize_t cls(self, Line *line) except -1
    cdef bytes whole_body(self, const char *data, Py_ssize_t size, Line *line, str command)
    cdef Py_ssize_t identify(self, const char *data, Py_ssize_t size, Line *line) except -1
    cdef int locate(self) except -1
    cdef Py_ssize_t run_auth(self, const char *data, Py_ssize_t size, Line *line) except -1
    cdef bint wants(self) noexcept
    cdef int deliver(self, Delivery *delivery) except -1
    cdef int disconnect(self) except -1
    cdef int begin(self) except -1
    cdef int respond(self, bytes data) except -1
    cdef int on_flushed(self) except -1
    cdef int leave(self) except -1
