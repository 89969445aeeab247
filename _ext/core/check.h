/* Checksums for the files beside the queues. They detect damage, not forgery. */
#ifndef NSQFAST_CHECK_H
#define NSQFAST_CHECK_H

#include <stdint.h>
#include <string.h>

/* The finalizer of splitmix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators, 2014). */
static inline uint64_t nsq_mix(uint64_t x) {
    x += 0x9e3779b97f4a7c15ULL;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ULL;
    x = (x ^ x >> 27) * 0x94d049bb133111ebULL;
    return x ^ x >> 31;
}

/* The checksum of `count` numbers; their order matters. */
static inline uint64_t nsq_check(const uint64_t *numbers, uint64_t count) {
    uint64_t check = 0;
    for (uint64_t i = 0; i < count; i++)
        check = nsq_mix(check ^ numbers[i]);
    return check;
}

/* The checksum of three numbers. Short, since it is computed for each record that is written or finished. The factors
 * are odd, so a flipped bit changes the sum. */
static inline uint64_t nsq_check_place(const void *place) {
    uint64_t numbers[3];
    memcpy(numbers, place, sizeof numbers);
    return nsq_mix(numbers[0] + numbers[1] * 0xff51afd7ed558ccdULL + numbers[2] * 0xc4ceb9fe1a85ec53ULL);
}

#endif
