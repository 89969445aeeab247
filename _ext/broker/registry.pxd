"""All topics and all clients of a broker, and what happens once per loop turn."""

from libc.stdint cimport int64_t, uint64_t

from nsqfast._ext.broker.consumer cimport Client, Consumer
from nsqfast._ext.broker.end_of_turn cimport PutOff, Release, TopicStorage
from nsqfast._ext.broker.topic cimport Topic
from nsqfast._ext.core.budget cimport Budget
from nsqfast._ext.core.busy_poll cimport BusyPoll
from nsqfast._ext.core.heap cimport Timers
from nsqfast._ext.core.settings cimport Settings
from nsqfast._ext.storage.diskqueue.syncer cimport Syncer


cdef class Registry:
    cdef readonly Settings settings
    cdef readonly Timers timers
    cdef readonly Syncer syncer
    cdef readonly bint closing
    cdef public bint is_draining     # new messages are refused, as nsqfast.nsqd.drain wants
    cdef public object on_change     # ("topic+", "topic-", "channel+" or "channel-", topic, channel or None)
    cdef public object tls_context   # for later upgrades to TLS; None = there are none
    cdef public object authorizer    # (client, secret, callback): asks for its permissions; None = nobody needs any
    cdef public object on_turn       # asks the loop to call flush() at the end of this turn
    cdef TopicStorage storage
    cdef dict topic_by_name          # name -> Topic
    cdef list names                  # of the topics, sorted
    cdef set connected               # clients
    cdef list written                # those with output from this turn
    cdef list takers                 # consumers that are handed messages in the next turn
    cdef Budget hand_out_part        # of this turn
    cdef bint is_hand_out_spent
    cdef bint is_flushing
    cdef object blocked              # deque of clients whose part ended before all of their input was processed
    cdef bint is_late                # they did not continue in the last turn
    cdef bint is_turn_asked
    cdef bint is_running_blocked
    cdef Py_ssize_t costly_count     # of commands that take long, in this turn
    cdef Py_ssize_t end_count        # of connections closed in this turn
    cdef Py_ssize_t written_size     # bytes written in this turn
    cdef BusyPoll busy_poll
    cdef set waiting                 # clients whose OK waits for an fsync
    cdef Release release
    cdef PutOff later
    cdef list callbacks              # (ticket, callable) that wait for an fsync, too
    cdef list open_callbacks         # (ticket, callable, topic) of this turn, whose write is postponed
    cdef list refused                # clients to be told of a failed write at the end of the turn
    cdef object news                 # deque of (ticket done, error or None, clients and callables not told yet)
    cdef uint64_t told_ticket        # the last one that all clients were told of
    cdef readonly uint64_t fault_count    # clients that were dropped for a bug of ours

    cdef Topic make_topic(self, str name)
    cdef int want_flush(self, Client client) except -1
    cdef int want_turn(self, Client client) except -1
    cdef int run_blocked(self) except -1
    cdef bint may_be_costly(self) noexcept
    cdef bint may_store(self) noexcept
    cdef bint may_end(self) noexcept
    cdef int ask_turn(self) except -1
    cdef int flush_some(self, list written) except -1
    cdef int hand_out(self, Consumer consumer) except -1
    cdef int hand_out_rest(self) except -1
    cdef int add_news(self, uint64_t done, object error) except -1
    cdef int tell_news(self) except -1
    cdef int tell(self, Client client, uint64_t done, object error) except -1
    cdef int put_off(self, Consumer consumer) except -1
    cdef int break_off(self, Client client, object error) except -1
    cdef int write_deferred(self) except -1
    cdef int refuse(self, Topic topic, str error) except -1
    cdef int count_messages(self, uint64_t done, bint is_good) except -1
    cdef int wait_durable(self, Client client) except -1
