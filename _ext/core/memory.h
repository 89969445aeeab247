/* How much memory messages and buffers use, and how near that is to --max-memory.
 *
 * It counts what peers can make grow: slabs of messages, larger messages, queues of pointers, heaps, tables of messages
 * in flight or on disk, input beyond the first buffer, output that peers do not read, their IDENTIFYs, and compressors
 * and TLS of their streams. All brokers of a process share one account, and the ceiling of the one that came last.
 */
#ifndef NSQFAST_MEMORY_H
#define NSQFAST_MEMORY_H

#include <stdint.h>

#define NSQ_SLAB_SIZE (1 << 20) /* the message pool allocates this much from the kernel at a time */

typedef struct {
    int64_t used;   /* bytes */
    int64_t spare;  /* bytes of empty slabs, for any message; not in `used` */
    int64_t spill;  /* the levels begin at these bounds; INT64_MAX without a ceiling */
    int64_t slow;
    int64_t full;
    int level;      /* 0 (enough memory) to 3, see memory.pxd */
} nsq_account;

static inline void nsq_charge(nsq_account *account, int64_t size) {
    int64_t used = account->used += size;
    account->level = (used >= account->spill) + (used >= account->slow) + (used >= account->full);
}

#endif
