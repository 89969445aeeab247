/* How much memory messages and buffers use, and how near that is to --max-memory.
 *
 * It counts what peers can make grow: slabs of messages, larger messages, queues of pointers, heaps, tables of messages
 * in flight or on disk, input beyond the first buffer, output that peers do not read, their IDENTIFYs, and compressors
 * and TLS of their streams. Each broker has an account, and the process one more for what belongs to none of them.
 */
#ifndef NSQFAST_MEMORY_H
#define NSQFAST_MEMORY_H

#include <Python.h>
#include <stdint.h>

#define NSQ_SLAB_SIZE (1 << 20) /* the message pool allocates this much from the kernel at a time */

typedef struct {
    int64_t used;   /* bytes */
    int64_t spare;  /* bytes of empty slabs, for any message; not in `used` */
    int64_t spill;  /* the levels begin at these bounds; INT64_MAX without a ceiling */
    int64_t slow;
    int64_t full;
    int level;      /* 0 (enough memory) to 3, see memory.pxd */
    PyObject *owner; /* the Memory; whoever counts something here has a reference to it */
} nsq_account;

static inline void nsq_charge(nsq_account *account, int64_t size) {
    int64_t used = account->used += size;
    account->level = (used >= account->spill) + (used >= account->slow) + (used >= account->full);
}

/* What has counted `size` bytes goes; NULL: its constructor failed before it had an account. */
static inline void nsq_account_leave(nsq_account *account, int64_t size) {
    if (account == NULL)
        return;
    nsq_charge(account, -size);
    Py_DECREF(account->owner);
}

#endif
