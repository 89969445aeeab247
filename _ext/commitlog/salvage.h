/* Finds whole records where neither a batch's header nor a record's length is to be believed.
 *
 * A record may begin at every eighth byte, and reach as far as its length says, so the sums of all candidates together
 * would take time that grows with the square of what is searched. A CRC is linear: with the register's state at each
 * eighth byte, the seed that would make a candidate's sum right follows from a few multiplications of polynomials, and
 * from that seed the number of the batch. So each candidate costs the same, and all missing batches are searched for at
 * once. */
#ifndef NSQFAST_SALVAGE_H
#define NSQFAST_SALVAGE_H

#include <stdlib.h>

#include "commitlog/format.h"

/* x has this order modulo the polynomial, so a multiplication by x to (order - n) undoes n steps of the register. */
#define NSQ_CRC_ORDER 0x7fffffffu

typedef struct {
    const char *data;
    uint64_t size;
    uint64_t place; /* of its first byte */
    uint32_t epoch_seed;
    uint64_t first, last; /* the batches that records may belong to */
    uint32_t *states;     /* of a register that began with zero, at each eighth byte */
} nsq_salvage;

/* By four bytes of a size: x to the power of the order less eight times that part of it. */
static uint32_t nsq_undo[4][256];

static inline uint32_t nsq_multiply(uint32_t a, uint32_t b) {
    uint32_t product = 0;
    for (uint32_t bit = 1u << 31; bit != 0; bit >>= 1) {
        product ^= a & bit ? b : 0;
        b = b & 1 ? b >> 1 ^ NSQ_CRC_POLYNOMIAL : b >> 1;
    }
    return product;
}

static inline uint32_t nsq_power_of_x(uint32_t exponent) {
    uint32_t power = 1u << 31, square = 1u << 30; /* x to 0, x to 1 */
    for (; exponent != 0; exponent >>= 1) {
        if (exponent & 1)
            power = nsq_multiply(power, square);
        square = nsq_multiply(square, square);
    }
    return power;
}

static inline void nsq_salvage_prepare(void) {
    for (int k = 0; k < 4; k++) {
        uint32_t step = nsq_power_of_x(NSQ_CRC_ORDER - (uint32_t)((UINT64_C(8) << 8 * k) % NSQ_CRC_ORDER));
        nsq_undo[k][0] = 1u << 31;
        for (int i = 1; i < 256; i++)
            nsq_undo[k][i] = nsq_multiply(nsq_undo[k][i - 1], step);
    }
}

/* The register's state before it took `size` zero bytes. */
static inline uint32_t nsq_undo_zeros(uint32_t state, uint32_t size) {
    for (int k = 0; size != 0; k++, size >>= 8)
        if (size & 255)
            state = nsq_multiply(nsq_undo[k][size & 255], state);
    return state;
}

/* Returns 0 without memory. */
static inline int nsq_salvage_begin(nsq_salvage *s) {
    s->states = (uint32_t *)malloc((s->size / 8 + 1) * sizeof *s->states);
    if (s->states == NULL)
        return 0;
    s->states[0] = 0;
    for (uint64_t i = 0; i < s->size / 8; i++)
        s->states[i + 1] = nsq_crc_run(s->states[i], s->data + 8 * i, 8);
    return 1;
}

static inline void nsq_salvage_end(nsq_salvage *s) {
    free(s->states);
    s->states = NULL;
}

/* Returns the number of the batch whose seed makes the record's sum right; its upper half is assumed. */
static inline uint64_t nsq_salvage_solve(const nsq_salvage *s, uint64_t at, uint32_t length, uint64_t upper) {
    uint32_t crc;
    memcpy(&crc, s->data + at, sizeof crc);
    uint64_t end = at + length, place = s->place + at;
    uint32_t begun = nsq_crc_run(s->states[at / 8], s->data + at, 4);
    uint32_t ended = nsq_crc_run(s->states[end / 8], s->data + (end & ~UINT64_C(7)), end & 7);
    /* What the register held behind epoch, sequence and place; then behind epoch and sequence; then the sequence. */
    uint32_t state = nsq_undo_zeros(~crc ^ ended, length - 4) ^ begun;
    state = nsq_undo_zeros(state ^ nsq_crc_run(0, &place, sizeof place), 8);
    uint64_t without = upper << 32;
    return without | nsq_undo_zeros(state ^ nsq_crc_run(~s->epoch_seed, &without, sizeof without), 8);
}

/* Returns the number of the batch that a record at this offset belongs to; 0: no whole record of them stands there. */
static inline uint64_t nsq_salvage_identify(const nsq_salvage *s, uint64_t at) {
    const nsq_record *record = (const nsq_record *)(s->data + at);
    if (record->kind == 0 || record->length < sizeof *record || nsq_align_up(record->length, 8) > s->size - at)
        return 0;
    uint64_t found = nsq_salvage_solve(s, at, record->length, s->first >> 32);
    if (found < s->first || found > s->last) /* numbers may pass a multiple of 2^32 */
        found = s->first >> 32 == s->last >> 32 ? 0 : nsq_salvage_solve(s, at, record->length, s->last >> 32);
    if (found < s->first || found > s->last)
        return 0;
    uint32_t seed = nsq_crc32c_number(s->epoch_seed, found);
    return nsq_record_check(s->data + at, s->size - at, seed, s->place + at) > 0 ? found : 0;
}

/* Returns where the next whole record stands, at this offset or behind it, and its batch; the size if there is none. */
static inline uint64_t nsq_salvage_find(const nsq_salvage *s, uint64_t at, uint64_t *sequence) {
    for (; at + sizeof(nsq_record) <= s->size; at += 8)
        if ((*sequence = nsq_salvage_identify(s, at)) != 0)
            return at;
    return s->size;
}

#endif
