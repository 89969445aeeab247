/* A message: one block of memory, a header and the body behind it, with a reference count.
 *
 * The id is stored as the number that its 16 hex digits spell. Memory comes from the pool of the module `message`.
 */
#ifndef NSQFAST_MESSAGE_H
#define NSQFAST_MESSAGE_H

#include <stdint.h>
#include <string.h>

typedef struct {
    uint32_t refs : 25;
    uint32_t failures : 7; /* of its deliveries before it was stored; 0 unless a policy counts them */
    uint32_t size;        /* of the body, bytes */
    int64_t timestamp_ns; /* when it was published, Unix time */
    uint64_t id;
    uint64_t defer_ms : 47; /* from DPUB; starts at the fan-out; exceeds any int64_t of nanoseconds */
    uint64_t is_told : 1;   /* its publisher knows the id, and may end the deferral by it */
    uint64_t attempts : 16; /* deliveries before it was stored; 0 for a fresh message */
    char body[];
} nsq_message;

static inline void nsq_put_be16(char *p, uint16_t v) { v = __builtin_bswap16(v); memcpy(p, &v, 2); }
static inline void nsq_put_be32(char *p, uint32_t v) { v = __builtin_bswap32(v); memcpy(p, &v, 4); }
static inline void nsq_put_be64(char *p, uint64_t v) { v = __builtin_bswap64(v); memcpy(p, &v, 8); }
static inline uint16_t nsq_get_be16(const char *p) { uint16_t v; memcpy(&v, p, 2); return __builtin_bswap16(v); }
static inline uint32_t nsq_get_be32(const char *p) { uint32_t v; memcpy(&v, p, 4); return __builtin_bswap32(v); }
static inline uint64_t nsq_get_be64(const char *p) { uint64_t v; memcpy(&v, p, 8); return __builtin_bswap64(v); }

/* Lower-case hex digits, eight at a time: each nibble is spread to a byte, and 'a'-'0'-10 is added to those above 9. */
static inline uint64_t nsq_hex8(uint32_t v) {
    uint64_t x = v;
    x = ((x << 16) | x) & 0x0000ffff0000ffffULL;
    x = ((x << 8) | x) & 0x00ff00ff00ff00ffULL;
    x = ((x << 4) | x) & 0x0f0f0f0f0f0f0f0fULL;
    uint64_t above_nine = ((x + 0x0606060606060606ULL) >> 4) & 0x0101010101010101ULL;
    return x + 0x3030303030303030ULL + above_nine * ('a' - '0' - 10);
}

static inline void nsq_id_to_hex(uint64_t id, char *out) {
    nsq_put_be64(out, nsq_hex8((uint32_t)(id >> 32)));
    nsq_put_be64(out + 8, nsq_hex8((uint32_t)id));
}

/* The inverse of nsq_hex8; the result is undefined if the bytes are not its output. */
static inline uint32_t nsq_unhex8(uint64_t x) {
    uint64_t letters = (x >> 6) & 0x0101010101010101ULL;
    x = (x & 0x0f0f0f0f0f0f0f0fULL) + letters * 9;
    x = (x | (x >> 4)) & 0x00ff00ff00ff00ffULL;
    x = (x | (x >> 8)) & 0x0000ffff0000ffffULL;
    return (uint32_t)(x | (x >> 16));
}

/* Returns 1 if the 16 bytes are lower-case hex digits, as all ids given out are; else 0, and *id is unchanged. */
static inline int nsq_id_from_hex(const char *in, uint64_t *id) {
    uint64_t first = nsq_get_be64(in), second = nsq_get_be64(in + 8);
    uint32_t high = nsq_unhex8(first), low = nsq_unhex8(second);
    if (nsq_hex8(high) != first || nsq_hex8(low) != second)
        return 0;
    *id = (uint64_t)high << 32 | low;
    return 1;
}

/* The 26 bytes before the body, in a frame and in a record (spec nsqd-core §1). */
static inline void nsq_message_put_header(const nsq_message *m, uint16_t attempts, char *out) {
    nsq_put_be64(out, (uint64_t)m->timestamp_ns);
    nsq_put_be16(out + 8, attempts);
    nsq_id_to_hex(m->id, out + 10);
}

/* Prefetches the message and as much of its body as is usual. */
static inline void nsq_message_fetch(const nsq_message *m) {
    for (int i = 0; i < 256; i += 64)
        __builtin_prefetch((const char *)m + i);
}

/* How often a message failed stands in a record beside its attempts, where go-diskqueue has no room for it: in which of
 * three alphabets each of the id's first digits is written. To Go an id is any 16 bytes, and these are letters and
 * digits; without failures they are what Go writes. The count is in base three, the lowest digit first. */
enum { NSQ_FAILURES_MAX = 127, NSQ_MARKED_DIGITS = 5 };

static inline void nsq_mark_failures(char *id, uint32_t failures) {
    for (int i = 0; i < NSQ_MARKED_DIGITS; i++, failures /= 3) {
        char value = (char)(id[i] <= '9' ? id[i] - '0' : id[i] - 'a' + 10);
        if (failures % 3)
            id[i] = (char)((failures % 3 == 1 ? 'g' : 'G') + value);
    }
}

/* Returns 1 and sets both if an id of ours stands there, marked or not; else 0, and nothing is set. */
static inline int nsq_id_from_marked(const char *in, uint64_t *id, uint32_t *failures) {
    char plain[16];
    uint32_t count = 0, power = 1;
    *failures = 0;
    if (nsq_id_from_hex(in, id))
        return 1;
    memcpy(plain, in, sizeof plain);
    for (int i = 0; i < NSQ_MARKED_DIGITS; i++, power *= 3) {
        int alphabet = in[i] >= 'g' && in[i] <= 'v' ? 1 : in[i] >= 'G' && in[i] <= 'V' ? 2 : 0;
        if (alphabet == 0)
            continue;
        plain[i] = "0123456789abcdef"[in[i] - (alphabet == 1 ? 'g' : 'G')];
        count += (uint32_t)alphabet * power;
    }
    if (count > NSQ_FAILURES_MAX || !nsq_id_from_hex(plain, id))
        return 0;
    *failures = count;
    return 1;
}

static inline int nsq_is_record_id(const char *in) {
    uint64_t id;
    uint32_t failures;
    return nsq_id_from_marked(in, &id, &failures);
}

/* The bytes before the body in a record. */
static inline void nsq_message_put_record(const nsq_message *m, uint32_t tries, char *out) {
    nsq_message_put_header(m, (uint16_t)tries, out);
    if (tries >> 16)
        nsq_mark_failures(out + 10, tries >> 16);
}

static inline uint32_t nsq_tries_of_record(const char *payload) {
    uint64_t id;
    uint32_t failures;
    nsq_id_from_marked(payload + 10, &id, &failures);
    return nsq_get_be16(payload + 8) | failures << 16;
}

/* Returns the id of a stored message. A foreign id (not written by NSQ) is replaced by its 64-bit FNV-1a hash, so that
 * the message can still be delivered and finished. */
static inline uint64_t nsq_id_of_record(const char *payload) {
    uint64_t id;
    uint32_t failures;
    if (nsq_id_from_marked(payload + 10, &id, &failures))
        return id;
    id = 0xcbf29ce484222325ULL;
    for (int i = 10; i < 26; i++)
        id = (id ^ (unsigned char)payload[i]) * 0x100000001b3ULL;
    return id;
}

#endif
