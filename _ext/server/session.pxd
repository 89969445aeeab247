"""The commands of protocol V2 (spec nsqd-tcp §4, §5) of one client."""

cimport cython
from libc.stdint cimport int64_t, uint64_t

from nsqfast._ext.broker.channel cimport Channel, Outcome
from nsqfast._ext.broker.consumer cimport Client, Consumer
from nsqfast._ext.broker.deferral_end cimport DeferralEnd
from nsqfast._ext.broker.large_mpub cimport LargeMpub
from nsqfast._ext.broker.registry cimport Registry
from nsqfast._ext.broker.topic cimport Topic
from nsqfast._ext.core.clock cimport Clock
from nsqfast._ext.core.log_quota cimport LogQuota
from nsqfast._ext.protocol.buffer cimport ReadBuffer, WriteBuffer
from nsqfast._ext.protocol.v2 cimport Line, MpubScan
from nsqfast._ext.server.answers cimport Answers
from nsqfast._ext.server.auth cimport Auth
from nsqfast._ext.server.death_lookup cimport DeathLookup


@cython.final
cdef class Session(Consumer):
    cdef Registry registry
    cdef Clock clock
    cdef ReadBuffer input
    cdef WriteBuffer output
    cdef Answers answers
    cdef Auth auth
    # What its connection sets and looks at.
    cdef bint is_blocked                      # the command at the front of the input waits; so do all behind it
    cdef bint is_broken                       # the input can no longer become a command
    cdef bint is_writable                     # the transport takes output
    cdef bint needs_tls                       # no command but IDENTIFY is allowed before the handshake
    cdef int64_t heartbeat_ns                 # 0 = off; then the client may be silent between commands
    cdef int64_t command_since_ns             # when we began to wait for the next command
    cdef list new_layers                      # of the stream, as an IDENTIFY has just agreed on; None = none has
    cdef Py_ssize_t output_size_max           # with more output than this the client gets no messages
    # The command at the front of the input, as far as it was received.
    cdef bint at_eof                          # the peer sends nothing more
    cdef Py_ssize_t scanned                   # bytes known to contain no newline
    cdef Py_ssize_t need                      # bytes needed before parsing again makes sense
    cdef Py_ssize_t more_units                # units that it takes besides those for its size
    cdef MpubScan scan
    cdef uint64_t sliced_count                # messages of a large MPUB that were put, while the rest waits for a turn
    cdef Py_ssize_t sliced_size               # bytes before the next one, from the line's first; 0 = it was not begun
    cdef LargeMpub large                      # the same with a commit log, on its way there or into the queues
    cdef DeferralEnd deferral_end             # of the command that is blocked; None = it has not begun
    cdef DeathLookup death_lookup             # None before the first DEATHS
    # The client.
    cdef str remote_address
    cdef str remote_host
    cdef LogQuota lines                       # of the log; None = the peer has caused no line yet
    cdef int64_t charged_size                 # bytes counted by charge_bytes()
    cdef readonly int state
    cdef int64_t identity_size                # bytes of the IDENTIFY that these strings come from
    cdef readonly str hostname
    cdef readonly str user_agent
    cdef readonly str topology_zone
    cdef readonly str topology_region
    cdef bint is_located                      # an IDENTIFY has set `distance`
    cdef bint tls                             # was agreed on, as were the next two
    cdef readonly bint deflate
    cdef readonly bint snappy
    cdef bint may_reject                      # the client negotiated REJ, DEATHS, and why a message failed
    cdef bint tells_ids                       # the client negotiated that it may be told the ids of deferred messages
    # Publishing and consuming.
    cdef Topic topic                          # the last one published to, with its number of publishes since then
    cdef uint64_t topic_count
    cdef readonly Channel channel             # None unless it is subscribed
    cdef uint64_t sub_ticket                  # what its OK waits for, and with it the first message; 0 = for nothing
    cdef readonly uint64_t message_count      # deliveries
    cdef readonly uint64_t finish_count
    cdef readonly uint64_t requeue_count
    cdef bint has_free_slot                   # a slot of the window came free while the input was processed
    cdef bint waits_to_refill                 # is in the turn's list of those that take more after a short delay

    cdef int begin(self, str remote_address, str remote_host) except -1
    cdef int feed(self, bint at_eof) except -1
    cdef int block_for_turn(self) except -1
    cdef bint waits_to_be_costly(self) except -1
    cdef int say(self, int level, str line, bint is_last=*) except -1
    cdef int charge_bytes(self, int64_t size) except -1
    cdef int leave(self) except -1
    cdef int on_flushed(self) except -1
    cdef int refill_window(self) except -1
    cdef bint is_crowded(self) noexcept

    cdef Py_ssize_t step(self, const char *data, Py_ssize_t size) except -1
    cdef Py_ssize_t run(self, const char *data, Py_ssize_t size, Line *line) except -1
    cdef bint more(self, Py_ssize_t need, str code, str detail) except -1
    cdef Py_ssize_t body_size(self, const char *data, Py_ssize_t size, Line *line, str command, str missing,
                              int64_t size_max) except -2
    cdef bint is_allowed(self, str command, str topic, str channel) except -1

    cdef Py_ssize_t sub(self, Line *line) except -1
    cdef Py_ssize_t ready(self, Line *line) except -1
    cdef Py_ssize_t fin(self, Line *line) except -1
    cdef Py_ssize_t req(self, Line *line) except -1
    cdef int64_t clamp(self, uint64_t delay_ms) except -1
    cdef Py_ssize_t touch(self, Line *line) except -1
    cdef uint64_t message_id(self, Line *line, str command, int parameters) except? 0
    cdef Py_ssize_t rej(self, Line *line) except -1
    cdef Py_ssize_t look_up_deaths(self, const char *data, Py_ssize_t size, Line *line) except -1
    cdef bytes error_of(self, Line *line, int place)
    cdef Py_ssize_t refuse_message_command(self, Line *line, str command, Outcome outcome) except -1
    cdef Py_ssize_t cls(self, Line *line) except -1

    cdef Py_ssize_t pub(self, const char *data, Py_ssize_t size, Line *line) except -1
    cdef Py_ssize_t dpub(self, const char *data, Py_ssize_t size, Line *line) except -1
    cdef bint must_wait(self) except -1
    cdef Py_ssize_t message_size(self, const char *data, Py_ssize_t size, Line *line, str command) except -1
    cdef int check_topic(self, Line *line, str command, str prefix) except -1
    cdef bint may_publish(self, Line *line, str command) except -1
    cdef bint is_last_topic(self, Line *line) noexcept
    cdef int choose_topic(self, Line *line) except -1
    cdef int add_up_counts(self) except -1
    cdef int check_open(self, str command) except -1
    cdef int publish(self, Line *line, str command, const char *body, Py_ssize_t size, int64_t delay_ms,
                     bint is_told) except -1
    cdef int accept(self, uint64_t ticket, str command, uint64_t count) except -1
    cdef int pay(self, uint64_t count) except -1
    cdef Py_ssize_t mpub(self, const char *data, Py_ssize_t size, Line *line) except -1
    cdef Py_ssize_t put_large(self, const char *data, Line *line) except -1
    cdef uint64_t put_slices(self, const char *data) except? 0
    cdef uint64_t put_pieces(self, const char *data) except? 0
    cdef int leave_large(self) except -1
    cdef bint mpub_head(self, const char *data, Py_ssize_t size, Line *line) except -1
    cdef bint mpub_bodies(self, const char *data, Py_ssize_t size, Py_ssize_t start) except -1
    cdef Py_ssize_t end_deferral(self, Line *line) except -1

    cdef bytes whole_body(self, const char *data, Py_ssize_t size, Line *line, str command, int64_t size_max)
    cdef Py_ssize_t identify(self, const char *data, Py_ssize_t size, Line *line) except -1
    cdef Py_ssize_t run_auth(self, const char *data, Py_ssize_t size, Line *line) except -1
