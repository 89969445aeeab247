"""Message (a body, shared by all channels) and Delivery (the state of a message in one channel)."""

from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t

from nsqfast._ext.core.memory cimport Account


cdef extern from "core/message.h" nogil:
    ctypedef struct Message "nsq_message":
        uint32_t refs           # 25 bits
        uint32_t size
        int64_t timestamp_ns
        uint64_t id
        uint64_t defer_ms       # 47 bits
        bint is_told
        uint8_t failures        # 7 bits
        uint16_t attempts
        char *body

    void message_put_header "nsq_message_put_header"(const Message *m, uint16_t attempts, char *out)
    void message_put_record "nsq_message_put_record"(const Message *m, uint32_t tries, char *out)
    void id_to_hex "nsq_id_to_hex"(uint64_t id, char *out)
    bint id_from_hex "nsq_id_from_hex"(const char *text, uint64_t *id)
    bint is_record_id "nsq_is_record_id"(const char *text)
    uint64_t id_of_record "nsq_id_of_record"(const char *payload)
    uint32_t tries_of_record "nsq_tries_of_record"(const char *payload)
    int FAILURES_MAX "NSQ_FAILURES_MAX"
    void message_fetch "nsq_message_fetch"(const Message *m)
    void prefetch "__builtin_prefetch"(const void *place)

    void put_be16 "nsq_put_be16"(char *p, uint16_t v)
    void put_be32 "nsq_put_be32"(char *p, uint32_t v)
    void put_be64 "nsq_put_be64"(char *p, uint64_t v)
    uint16_t get_be16 "nsq_get_be16"(const char *p)
    uint32_t get_be32 "nsq_get_be32"(const char *p)
    uint64_t get_be64 "nsq_get_be64"(const char *p)


# From the pool of an account, which counts them.
cdef Message *message_new(Account *account, const char *body, uint32_t size, int64_t timestamp_ns, uint64_t id) noexcept
cdef Message *message_load(Account *account, const char *payload, size_t n) noexcept
cdef void message_free(Message *message) noexcept
# The number of 1 MiB slabs with messages in them, and of empty ones kept for later.
cdef size_t count_slabs(Account *account) noexcept
cdef uint32_t slabs_kept(Account *account) noexcept
cdef void release_slabs(Account *account, uint32_t count) noexcept


cdef inline void message_keep(Message *message) noexcept:
    message.refs += 1


cdef inline void message_drop(Message *message) noexcept:
    message.refs -= 1
    if message.refs == 0:
        message_free(message)


ctypedef struct Delivery:
    int64_t deadline_ns     # heap key: when it expires in flight, or when it is due if deferred
    uint32_t heap_index     # its index in the heap that contains it
    uint16_t attempts       # deliveries so far, including the current one
    uint8_t failures        # of these; 0 unless a policy counts them
    uint8_t is_told         # somebody may know its id, and end its deferral by that
    Message *message
    int64_t delivered_ns    # when the current owner got it; TOUCH is capped relative to this
    uint64_t owner          # number of the consumer it is in flight to; 0 = none
    uint64_t ordinal        # its record on disk, not yet acknowledged; 0 = only in memory
    Delivery *next          # in the in-flight queue, or in the free list
    Delivery *previous      # in the in-flight queue


# How often somebody got a message, and how often that failed: attempts | failures << 16.
cdef inline uint32_t tries_of(const Delivery *delivery) noexcept nogil:
    return delivery.attempts | <uint32_t> delivery.failures << 16


cdef inline void set_tries(Delivery *delivery, uint32_t tries) noexcept nogil:
    delivery.attempts, delivery.failures = <uint16_t> tries, <uint8_t> (tries >> 16)


cdef inline uint32_t tries_before(const Message *message) noexcept nogil:
    return message.attempts | <uint32_t> message.failures << 16


cdef Delivery *delivery_new(Account *account, Message *message) except NULL
cdef void delivery_free(Delivery *delivery) noexcept
# How many exist now; tests use it to find leaks.
cdef int64_t count_deliveries(Account *account) noexcept

# Keep the memory of freed deliveries of the account intact until unpin_deliveries was called as often.
cdef void pin_deliveries(Account *account) noexcept
# free_pinned has to follow.
cdef void unpin_deliveries(Account *account) noexcept
# Free up to so many of those that were kept; return whether that is all, or left to somebody who still pins.
cdef bint free_pinned(Account *account, int64_t most) noexcept
