/* Detects what a power cut leaves of a record if its file grew but its data was not written: sectors full of zeros.
 *
 * Most records need nothing for that: their bodies have other bytes in every sector that they touch. A record whose
 * body was published without them is hollow. Then a checksum of the record replaces the low 16 bits of its timestamp
 * (bytes 10 and 11 of the record, 65 us): it is sealed. A hollow record without its seal is torn.
 */
#ifndef NSQFAST_HOLLOW_H
#define NSQFAST_HOLLOW_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "core/check.h"
#include "core/message.h"

#define NSQ_SECTOR_SIZE 512
#define NSQ_BODY_START 30 /* in a record */
#define NSQ_SEAL_START 10

static inline int nsq_is_zeros(const char *data, size_t size) {
    /* Usually the first byte decides. Each of the others is compared with the one before it. */
    return *data == 0 && memcmp(data, data + 1, size - 1) == 0;
}

/* Whether the part of the body in some sector of the file is all zeros. The record starts at position. */
static inline int nsq_is_hollow(const char *record, size_t size, int64_t position) {
    size_t start, end;
    for (start = NSQ_BODY_START; start < size; start = end) {
        end = start + NSQ_SECTOR_SIZE - (size_t)(((uint64_t)position + start) % NSQ_SECTOR_SIZE);
        if (end > size)
            end = size;
        if (nsq_is_zeros(record + start, end - start))
            return 1;
    }
    return 0;
}

/* The checksum of all but the two bytes of the seal: eight at a time, big endian, the last ones padded with zeros. It
 * is a sum of products with odd factors, so they are computed in parallel and a changed word changes the sum. Zeros
 * add nothing, so a body of zeros, the usual one that needs a seal, is skipped. */
static inline uint16_t nsq_checksum(const char *record, size_t size) {
    const uint64_t step = 0x9e3779b97f4a7c14ULL;
    const int is_empty = size > NSQ_BODY_START && nsq_is_zeros(record + NSQ_BODY_START, size - NSQ_BODY_START);
    const size_t end = is_empty ? NSQ_BODY_START : size;
    uint64_t sum = size, factor = 0xff51afd7ed558ccdULL;
    char rest[8] = {0};
    size_t i;
    for (i = 0; i + 8 <= end; i += 8, factor += step)
        sum += nsq_get_be64(record + i) * factor;
    memcpy(rest, record + i, end - i);
    sum += nsq_get_be64(rest) * factor;
    sum -= (nsq_get_be64(record + 8) & 0xffffULL << 32) * (0xff51afd7ed558ccdULL + step); /* the seal */
    return (uint16_t)(nsq_mix(sum) >> 48);
}

static inline void nsq_seal(char *record, size_t size) {
    nsq_put_be16(record + NSQ_SEAL_START, nsq_checksum(record, size));
}

static inline int nsq_is_sealed(const char *record, size_t size) {
    return nsq_get_be16(record + NSQ_SEAL_START) == nsq_checksum(record, size);
}

#endif
