"""Messages and deliveries come from a pool of their broker, which returns the memory of a drained or deleted queue."""

from libc.stdint cimport UINT32_MAX
from libc.string cimport memcpy

from nsqfast._ext.core.debug cimport NSQFAST_DEBUG
from nsqfast._ext.core.limits cimport MESSAGE_HEADER_SIZE

cdef extern from "core/pool.h":
    ctypedef struct Pool "nsq_pool":
        Account account
        uint32_t slab_count
        uint32_t kept_count
        int64_t delivery_count
        int64_t pin_count
        void *pinned
    void *pool_get "nsq_pool_get"(Account *account, size_t size)
    void pool_put "nsq_pool_put"(void *block, size_t size)
    Pool *pool_of "nsq_pool_of"(void *block, size_t size)
    void pool_release "nsq_pool_release"(Account *account, uint32_t count)
    void keep_freed "nsq_keep_freed"()


cdef Message *message_new(Account *account, const char *body, uint32_t size, int64_t timestamp_ns,
                          uint64_t id) noexcept:
    """Return a message with one reference; NULL without memory. If `body` is NULL the caller fills it in."""
    cdef Message *message = <Message *> pool_get(account, sizeof(Message) + <size_t> size)
    if message is NULL:
        return NULL
    message.refs = 1
    message.size = size
    message.timestamp_ns = timestamp_ns
    message.id = id
    message.defer_ms = 0
    message.is_told = False
    message.attempts = message.failures = 0
    if body is not NULL:
        memcpy(message.body, body, size)
    return message


cdef void message_free(Message *message) noexcept:
    pool_put(message, sizeof(Message) + <size_t> message.size)


cdef uint32_t slabs_kept(Account *account) noexcept:
    """MiB that drained queues left behind and no message uses."""
    return (<Pool *> account).kept_count


cdef void release_slabs(Account *account, uint32_t count) noexcept:
    """Return so many slabs to the kernel."""
    pool_release(account, count)


cdef Message *message_load(Account *account, const char *payload, size_t n) noexcept:
    """Return a message from its stored form; NULL if that is shorter than a header, or without memory."""
    cdef uint32_t tries
    cdef Message *message
    if n < MESSAGE_HEADER_SIZE or n - MESSAGE_HEADER_SIZE > UINT32_MAX:
        return NULL
    message = message_new(account, payload + MESSAGE_HEADER_SIZE, <uint32_t> (n - MESSAGE_HEADER_SIZE),
                          <int64_t> get_be64(payload), id_of_record(payload))
    if message is not NULL:
        tries = tries_of_record(payload)
        message.attempts, message.failures = <uint16_t> tries, <uint8_t> (tries >> 16)
    return message


cdef Delivery *delivery_new(Account *account, Message *message) except NULL:
    """Return a delivery of `message`, whose reference it takes over."""
    cdef Delivery *delivery = <Delivery *> pool_get(account, sizeof(Delivery))
    if delivery is NULL:
        raise MemoryError
    (<Pool *> account).delivery_count += 1
    delivery.deadline_ns = 0
    delivery.heap_index = 0
    delivery.attempts, delivery.failures = message.attempts, message.failures
    delivery.is_told = message.is_told
    delivery.message = message
    delivery.delivered_ns = 0
    delivery.owner = 0
    delivery.ordinal = 0
    delivery.next = NULL
    return delivery


cdef void delivery_free(Delivery *delivery) noexcept:
    """Free the delivery and drop its reference to the message."""
    cdef Pool *pool = pool_of(delivery, sizeof(Delivery))
    if NSQFAST_DEBUG:
        assert delivery.message is not NULL, "a delivery was freed twice"
    message_drop(delivery.message)
    delivery.message = NULL
    pool.delivery_count -= 1
    if pool.pin_count:
        delivery.next = <Delivery *> pool.pinned
        pool.pinned = delivery
    else:
        pool_put(delivery, sizeof(Delivery))


cdef void pin_deliveries(Account *account) noexcept:
    (<Pool *> account).pin_count += 1


cdef void unpin_deliveries(Account *account) noexcept:
    (<Pool *> account).pin_count -= 1


cdef bint free_pinned(Account *account, int64_t most) noexcept:
    cdef Pool *pool = <Pool *> account
    cdef Delivery *delivery
    while most and pool.pin_count == 0 and pool.pinned is not NULL:
        most -= 1
        delivery = <Delivery *> pool.pinned
        pool.pinned = delivery.next
        pool_put(delivery, sizeof(Delivery))
    return pool.pin_count > 0 or pool.pinned is NULL


def keep_freed_memory():
    """For the whole process: let malloc keep some freed memory for the next turn's output."""
    keep_freed()


cdef int64_t count_deliveries(Account *account) noexcept:
    return (<Pool *> account).delivery_count


cdef size_t count_slabs(Account *account) noexcept:
    return (<Pool *> account).slab_count
