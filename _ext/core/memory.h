/* What messages and buffers hold of the memory, and how near that is to --max-memory.
 *
 * Counted is what follows what peers do: slabs of messages, larger messages, queues of pointers, heaps, tables of what is in
 * flight or on disk, input that outgrew its first buffer, output that peers do not read, what they say of themselves, what
 * packs their streams. One process has one broker, so there is one account.
 */
#ifndef NSQFAST_MEMORY_H
#define NSQFAST_MEMORY_H

#include <stdint.h>

#define NSQ_SLAB_SIZE (1 << 20) /* what the pool of messages asks the kernel for at a time */

typedef struct {
    int64_t used;   /* bytes */
    int64_t spare;  /* bytes of empty slabs, which any message may take; not in `used` */
    int64_t spill;  /* the bounds from which on a level holds; INT64_MAX without a ceiling */
    int64_t slow;
    int64_t full;
    int level;      /* 0 (all is well) to 3, see memory.pxd */
} nsq_account;

static inline void nsq_charge(nsq_account *account, int64_t size) {
    int64_t used = account->used += size;
    account->level = (used >= account->spill) + (used >= account->slow) + (used >= account->full);
}

#endif
