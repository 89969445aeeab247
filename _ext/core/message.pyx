"""Messages and deliveries come from a pool that returns the memory of a drained or deleted queue."""

from libc.stdint cimport UINT32_MAX
from libc.string cimport memcpy

from nsqfast._ext.core.debug cimport NSQFAST_DEBUG
from nsqfast._ext.core.limits cimport MESSAGE_HEADER_SIZE
from nsqfast._ext.core.memory cimport Account, account

cdef extern from "core/pool.h" nogil:
    ctypedef struct Pool "nsq_pool":
        uint32_t slab_count
        uint32_t kept_count
        Account *account
    void *pool_get "nsq_pool_get"(Pool *pool, size_t size)
    void pool_put "nsq_pool_put"(Pool *pool, void *block, size_t size)
    void pool_release "nsq_pool_release"(Pool *pool, uint32_t count)
    void keep_freed "nsq_keep_freed"()

cdef Pool pool
pool.account = &account
cdef int64_t live_count = 0
cdef int64_t pin_count = 0       # users who follow pointers to deliveries that may have been freed
cdef Delivery *pinned = NULL     # freed deliveries that stay intact until there are no such users


cdef Message *message_new(const char *body, uint32_t size, int64_t timestamp_ns, uint64_t id) noexcept:
    """Return a message with one reference; NULL without memory. If `body` is NULL the caller fills it in."""
    cdef Message *message = <Message *> pool_get(&pool, sizeof(Message) + <size_t> size)
    if message is NULL:
        return NULL
    message.refs = 1
    message.size = size
    message.timestamp_ns = timestamp_ns
    message.id = id
    message.defer_ms = 0
    message.is_told = False
    message.attempts = 0
    if body is not NULL:
        memcpy(message.body, body, size)
    return message


cdef void message_free(Message *message) noexcept:
    pool_put(&pool, message, sizeof(Message) + <size_t> message.size)


cdef uint32_t slabs_kept() noexcept:
    """MiB that drained queues left behind and no message uses."""
    return pool.kept_count


cdef void release_slabs(uint32_t count) noexcept:
    """Return so many slabs to the kernel."""
    pool_release(&pool, count)


cdef Message *message_load(const char *payload, size_t n) noexcept:
    """Return a message from its stored form; NULL if that is shorter than a header, or without memory."""
    cdef Message *message
    if n < MESSAGE_HEADER_SIZE or n - MESSAGE_HEADER_SIZE > UINT32_MAX:
        return NULL
    message = message_new(payload + MESSAGE_HEADER_SIZE, <uint32_t> (n - MESSAGE_HEADER_SIZE),
                          <int64_t> get_be64(payload), id_of_record(payload))
    if message is not NULL:
        message.attempts = get_be16(payload + 8)
    return message


cdef Delivery *delivery_new(Message *message) noexcept:
    """Return a delivery of `message`, whose reference it takes over; NULL without memory."""
    global live_count
    cdef Delivery *delivery = <Delivery *> pool_get(&pool, sizeof(Delivery))
    if delivery is NULL:
        return NULL
    live_count += 1
    delivery.deadline_ns = 0
    delivery.heap_index = 0
    delivery.attempts = message.attempts
    delivery.is_told = message.is_told
    delivery.message = message
    delivery.delivered_ns = 0
    delivery.owner = 0
    delivery.ordinal = 0
    delivery.next = NULL
    return delivery


cdef void delivery_free(Delivery *delivery) noexcept:
    """Free the delivery and drop its reference to the message."""
    global live_count, pinned
    if NSQFAST_DEBUG:
        assert delivery.message is not NULL, "a delivery was freed twice"
    message_drop(delivery.message)
    delivery.message = NULL
    live_count -= 1
    if pin_count:
        delivery.next = pinned
        pinned = delivery
    else:
        pool_put(&pool, delivery, sizeof(Delivery))


def pin_deliveries():
    """Keep the memory of freed deliveries intact until unpin_deliveries was called as often."""
    global pin_count
    pin_count += 1


def unpin_deliveries():
    """free_pinned has to follow."""
    global pin_count
    pin_count -= 1


def free_pinned(int64_t most):
    """Free up to so many of those that were kept; return whether that is all, or left to somebody who still pins."""
    global pinned
    cdef Delivery *delivery
    while most and pin_count == 0 and pinned is not NULL:
        most -= 1
        delivery = pinned
        pinned = delivery.next
        pool_put(&pool, delivery, sizeof(Delivery))
    return pin_count > 0 or pinned is NULL


def keep_freed_memory():
    """For the whole process: let malloc keep some freed memory for the next turn's output."""
    keep_freed()


cdef int64_t count_deliveries() noexcept:
    return live_count


cdef size_t count_slabs() noexcept:
    return pool.slab_count
