"""Deliveries come from slabs that are never given back: their number follows what is in flight, not what is queued."""

from libc.stdlib cimport malloc

from nsqfast._ext.debug cimport NSQFAST_DEBUG

cdef enum:
    SLAB_SIZE = 256

cdef Delivery *free_list = NULL
cdef int64_t live_count = 0


cdef Delivery *delivery_new(Message *message) noexcept:
    """A record over `message`, whose reference it takes over; NULL where memory is short."""
    global free_list, live_count
    if free_list is NULL and not grow():
        return NULL
    cdef Delivery *delivery = free_list
    free_list = delivery.next
    live_count += 1
    delivery.deadline_ns = 0
    delivery.heap_index = 0
    delivery.attempts = message.attempts
    delivery.message = message
    delivery.delivered_ns = 0
    delivery.owner = 0
    delivery.ordinal = 0
    delivery.next = NULL
    return delivery


cdef void delivery_free(Delivery *delivery) noexcept:
    """Give the record back and drop its reference to the message."""
    global free_list, live_count
    if NSQFAST_DEBUG:
        assert delivery.message is not NULL, "a delivery was freed twice"
    message_drop(delivery.message)
    delivery.message = NULL
    delivery.next = free_list
    free_list = delivery
    live_count -= 1


cdef bint grow() noexcept:
    global free_list
    cdef Delivery *slab = <Delivery *> malloc(SLAB_SIZE * sizeof(Delivery))
    cdef Py_ssize_t i
    if slab is NULL:
        return False
    for i in range(SLAB_SIZE):
        slab[i].message = NULL
        slab[i].next = free_list
        free_list = &slab[i]
    return True


def live_deliveries():
    """How many deliveries exist now; tests look for leaks with it."""
    return live_count


def encode_record(bytes body, int64_t timestamp_ns, int attempts, uint64_t message_id):
    """The stored form of a message (spec nsqd-core §1), as tests want to see it."""
    cdef Message *message = message_new(body, <uint32_t> len(body), timestamp_ns, message_id)
    cdef char header[26]
    if message is NULL:
        raise MemoryError
    message_put_header(message, <uint16_t> attempts, header)
    message_drop(message)
    return header[:26] + body


def decode_record(bytes record):
    """(timestamp_ns, attempts, id, body) of a stored form; ValueError where it is shorter than its header."""
    cdef Message *message = message_load(record, <size_t> len(record))
    if message is NULL:
        raise ValueError(f"a record of {len(record)} bytes is shorter than its header")
    decoded = (message.timestamp_ns, message.attempts, message.id, message.body[:message.size])
    message_drop(message)
    return decoded
