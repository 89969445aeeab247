"""A channel: one queue, distributed among its consumers, and the state of messages in flight and deferred."""

from libc.stdint cimport int64_t, uint64_t

from nsqfast._ext.broker.breaker cimport Breaker
from nsqfast._ext.broker.consumer cimport Consumer, ReadyRing, Timeouts, longest_held
from nsqfast._ext.broker.dead_letters cimport REASON_COUNT, DeadLetters, Reason
from nsqfast._ext.broker.deferrals cimport DeferredHeap
from nsqfast._ext.broker.message_queue cimport MessageQueue
from nsqfast._ext.broker.renewal cimport Renewal
from nsqfast._ext.broker.retry cimport Retry
from nsqfast._ext.broker.stored_deferrals cimport StoredDeferrals
from nsqfast._ext.core.budget cimport Budget
from nsqfast._ext.core.clock cimport Clock
from nsqfast._ext.core.histogram cimport Histogram
from nsqfast._ext.core.in_flight cimport Entry, InFlightTable
from nsqfast._ext.core.latency cimport Latency
from nsqfast._ext.core.message cimport Delivery, Message
from nsqfast._ext.storage.engine cimport ChannelStore, Closing, Store


cdef enum Outcome:
    # The outcome of a FIN, REQ or TOUCH.
    DONE = 0
    NOT_IN_FLIGHT = 1
    NOT_OWNED = 2
    EXITING = 3
    REFUSED = 4     # a dead letter is not taken


cdef class Channel(MessageQueue):
    cdef readonly str topic_name
    cdef readonly str name
    cdef readonly bint ephemeral
    cdef readonly bint paused
    cdef readonly uint64_t message_count
    cdef readonly uint64_t delivery_count
    cdef readonly uint64_t finish_count
    cdef readonly uint64_t requeue_count
    cdef readonly uint64_t timeout_count
    cdef Delivery *fresh             # deferred by the current put; NULL = none was
    cdef readonly int64_t max_in_flight  # 0 = any number
    cdef int64_t interval_ns         # between two deliveries, by a policy's rate; 0 = any rate
    cdef int64_t next_ns             # from then on the next one may go
    cdef public Breaker breaker      # by a policy; None: whatever fails, it goes on
    cdef public Retry retry          # of what fails, by a policy; None: it is queued again at once
    cdef public int failures_max     # after so many a message dies, by a policy; 0 = it goes on for ever
    cdef public DeadLetters dead_letters     # where to; None: nothing dies
    cdef uint64_t dead_counts[REASON_COUNT]  # by Reason
    cdef bint is_held                # as many as may be are in flight, and a consumer wants more
    cdef Store store
    cdef Clock clock
    cdef uint64_t last_number        # of a consumer that joined
    cdef InFlightTable table         # id -> delivery, those in flight: to a member, or in `returning`
    cdef Timeouts timeouts           # the members with messages in flight
    cdef list returning              # in-flight queues of consumers that left, to be queued again
    cdef DeferredHeap deferred       # by the time when they are due
    cdef StoredDeferrals stored      # what is deferred for long
    cdef Renewal renewal             # of stale records, while that goes on; else None
    cdef dict members                # number -> Consumer
    cdef ReadyRing ready
    cdef uint64_t taken[3]           # deliveries from memory, by the consumer's Distance
    cdef readonly Latency latency    # None: not measured
    cdef readonly Histogram histogram    # the same since the start; None: not measured
    cdef object on_last_left         # called with the name when an ephemeral channel lost its last consumer
    cdef uint64_t random_state

    cdef int put(self, Message *message, int64_t now_ns) except -1
    cdef int pump(self) except -1
    cdef int add_ready(self, Consumer consumer) except -1
    cdef int join(self, Consumer consumer) except -1
    cdef int leave(self, Consumer consumer) except -1
    cdef Outcome finish(self, Consumer consumer, uint64_t id) except *
    cdef Outcome requeue(self, Consumer consumer, uint64_t id, int64_t delay_ns, bytes error=*) except *
    cdef Outcome reject(self, Consumer consumer, uint64_t id, bytes error) except *
    cdef Outcome touch(self, Consumer consumer, uint64_t id, int64_t in_flight_max_ns) except *
    cdef Closing close(self)
    cdef int delete(self) except -1
    cdef int defer(self, Delivery *delivery, int64_t deadline_ns) except -1
    cdef bint must_wait(self) noexcept
    cdef bint deliver_next(self, Consumer consumer, int64_t now_ns) except -1
    cdef bint may_deliver(self, int64_t now_ns) except -1
    cdef double random_share(self) noexcept
    cdef bint requeue_returning(self, Budget *budget) except -1
    cdef Outcome check(self, Consumer consumer, uint64_t id, Delivery **delivery) noexcept
    cdef int remove(self, Consumer consumer, Delivery *delivery) except -1
    cdef int note_failure(self) except -1
    cdef int give_back(self, Consumer consumer, Delivery *delivery, int64_t delay_ns, bytes error) except -1
    cdef bint must_wait_to_die(self, uint64_t id) noexcept
    cdef bint bury(self, Delivery *delivery, Reason reason, Consumer consumer, bytes error) except -1
    cdef int keep_dead(self, Delivery *delivery) except -1
    cdef bint may_drop(self) except -1
    cdef bint drop(self, Delivery *delivery, Reason reason) except -1
    cdef int queue_due(self, Delivery *delivery) except -1
    cdef int watch(self, Consumer consumer, int64_t deadline_ns) except -1
    cdef int on_deadline(self, int64_t now_ns) except -1
    cdef bint expire(self, int64_t now_ns, Budget *budget) except -1
    cdef bint queue_deferred(self, int64_t now_ns, Budget *budget) except -1
    cdef bint queue_stored(self, int64_t now_ns) except -1
    cdef bint store_deferred(self, Budget *budget, bint is_all) except -1
    cdef size_t gather_deferred(self, Delivery **group) noexcept
    cdef bint renew(self, Budget *budget) except -1
    cdef int drop_deliveries(self) except -1
    cdef Delivery *take_deferred(self) except? NULL
    cdef int add_deliveries(self, Closing closing) except -1
    cdef int end_showing(self) except -1
    cdef int defer_again(self, Delivery *delivery) except -1
    cdef int restore_deferred(self) except -1
    cdef list in_flight_queues(self)
    cdef int64_t oldest(self) except -2
    cdef int64_t waiting_count(self) noexcept
