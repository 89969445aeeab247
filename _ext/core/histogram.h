/* Counts values in buckets. Each bound is at least twice the one before, so the highest bit and one comparison find it.
 *
 * This runs at every FIN, so it takes a few instructions and no branch. */
#ifndef NSQFAST_HISTOGRAM_H
#define NSQFAST_HISTOGRAM_H

#include <stdint.h>

#define NSQ_BOUND_COUNT 20

typedef struct {
    uint64_t counts[NSQ_BOUND_COUNT + 1]; /* by the first bound not exceeded; the last counts all beyond */
    double sum_ns;
} nsq_histogram;

/* From the time that a message takes through an idle broker to an hour in a queue. */
static const int64_t nsq_bounds_ns[NSQ_BOUND_COUNT + 1] = {
    100000,     500000,     1000000,     2500000,     5000000,     10000000,     25000000,
    50000000,   100000000,  250000000,   500000000,   1000000000,  2500000000,   5000000000,
    10000000000, 30000000000, 60000000000, 300000000000, 900000000000, 3600000000000, INT64_MAX,
};

/* By the number of leading zero bits: the index of the smallest bound that such a value can be within. */
static const unsigned char nsq_first_bound[64] = {
    20, 20, 20, 20, 20, 20, 20, 20, 20, 20, 20, 20, 20, 20, 20, 20, 20, 20, 20, 20, 20, 20, 19, 19, 18,
    17, 17, 17, 16, 15, 14, 13, 12, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 3, 2, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0,
    0, 0, 0, 0, 0, 0, 0, 0, 0,
};

static inline void nsq_histogram_record(nsq_histogram *h, int64_t value_ns) {
    value_ns = value_ns < 1 ? 1 : value_ns; /* the clock was set back */
    unsigned int bound = nsq_first_bound[__builtin_clzll((unsigned long long)value_ns)];
    bound += nsq_bounds_ns[bound] < value_ns;
    h->counts[bound]++;
    h->sum_ns += (double)value_ns;
}

#endif
