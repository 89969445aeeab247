/* An allocator for queued messages: very many blocks, mostly freed in the order of their allocation.
 *
 *     slab (1 MiB, aligned)   | header | block | block | block | never used yet ...
 *                                        ^ freed blocks form a list  ^ fresh
 *
 * A slab has blocks of one size, a block has no header of its own (its address tells its slab), and a drained queue
 * leaves whole slabs; malloc merges neighbours on every free instead, which was a tenth of the cost of a finished
 * message. Empty slabs are kept until nsq_pool_release(): fresh memory from the kernel doubles the cost of a published
 * message, and a queue that was full once is usually full again. Only one thread uses it.
 *
 * Each account has a pool. A slab knows its own, and so does each block that is in no slab, by a header. While a message
 * is in them they have a reference to the account's owner, so it may be freed later than all else of its broker.
 */
#ifndef NSQFAST_POOL_H
#define NSQFAST_POOL_H

#include <stdint.h>
#include <stdlib.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif
#include <sys/mman.h>

#include "core/debug.h"
#include "core/memory.h"

/* Block sizes: every 16 bytes up to 2 KiB, then sixteen per doubling, so that at most a sixteenth is unused (of which
 * the kernel allocates only touched pages). Blocks larger than half a slab come from malloc. */
#define NSQ_STEP 16
#define NSQ_SMALL_MAX 2048
#define NSQ_BLOCK_MAX ((size_t)512 << 10)
#define NSQ_CLASS_COUNT (NSQ_SMALL_MAX / NSQ_STEP + 1 + 8 * 16)

typedef struct nsq_slab {
    struct nsq_slab *next, *previous; /* in the list of slabs of this size with free blocks */
    void *freed;
    char *fresh, *end;
    uint32_t class_number;
    uint32_t block_size;
    uint32_t live;
    int is_listed;
    struct nsq_pool *pool;
} nsq_slab;

/* The header of a block that is in no slab; malloc's alignment is that of the block behind it, too. */
typedef struct {
    _Alignas(16) struct nsq_pool *pool;
} nsq_large;

typedef struct nsq_pool {
    nsq_account account;                  /* first: a pointer to one is a pointer to the other */
    int64_t delivery_count;
    int64_t pin_count; /* users who follow pointers to deliveries that may have been freed */
    void *pinned;      /* freed deliveries that stay intact until there are no such users */
    nsq_slab *with_room[NSQ_CLASS_COUNT]; /* by size class; allocation uses the first */
    nsq_slab *kept;                       /* empty slabs */
    uint32_t kept_count;
    uint32_t slab_count; /* slabs with blocks in use */
} nsq_pool;

/* No includer needs all of them. */
#define NSQ_SELDOM static __attribute__((noinline, unused))

/* Returns the size class for `size`; *block_size is the size of its blocks. */
static inline uint32_t nsq_class_of(size_t size, uint32_t *block_size) {
    if (size <= NSQ_SMALL_MAX) {
        uint32_t number = (uint32_t)(size + NSQ_STEP - 1) / NSQ_STEP;
        *block_size = number * NSQ_STEP;
        return number;
    }
    /* 2^(shift+4) < size <= 2^(shift+5) */
    uint32_t shift = 27 - (uint32_t)__builtin_clz((uint32_t)size - 1);
    uint32_t steps = ((uint32_t)size - 1) >> shift; /* 16..31 */
    *block_size = (steps + 1) << shift;
    return NSQ_SMALL_MAX / NSQ_STEP + 1 + (shift - 7) * 16 + steps - 16;
}

static inline void nsq_slab_list(nsq_pool *pool, nsq_slab *slab) {
    nsq_slab **head = &pool->with_room[slab->class_number];
    slab->previous = NULL;
    slab->next = *head;
    if (*head)
        (*head)->previous = slab;
    *head = slab;
    slab->is_listed = 1;
}

static inline void nsq_slab_unlist(nsq_pool *pool, nsq_slab *slab) {
    if (slab->previous)
        slab->previous->next = slab->next;
    else
        pool->with_room[slab->class_number] = slab->next;
    if (slab->next)
        slab->next->previous = slab->previous;
    slab->is_listed = 0;
}

NSQ_SELDOM nsq_slab *nsq_slab_map(void) {
    char *start = (char *)mmap(NULL, 2 * NSQ_SLAB_SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (start == MAP_FAILED)
        return NULL;
    size_t before = (size_t)(-(uintptr_t)start & (NSQ_SLAB_SIZE - 1));
    if (before)
        munmap(start, before);
    munmap(start + before + NSQ_SLAB_SIZE, NSQ_SLAB_SIZE - before);
    return (nsq_slab *)(start + before);
}

NSQ_SELDOM nsq_slab *nsq_slab_new(nsq_pool *pool, uint32_t class_number, uint32_t block_size) {
    nsq_slab *slab = pool->kept;
    if (slab) {
        pool->kept = slab->next;
        pool->kept_count--;
        pool->account.spare -= NSQ_SLAB_SIZE;
    } else {
        slab = nsq_slab_map();
        if (slab == NULL)
            return NULL;
    }
    slab->pool = pool;
    slab->freed = NULL;
    slab->class_number = class_number;
    slab->block_size = block_size;
    slab->live = 0;
    /* Blocks start on cache lines where their size allows it. */
    slab->fresh = (char *)slab + 128;
    slab->end = slab->fresh + (NSQ_SLAB_SIZE - 128) / block_size * block_size;
    pool->slab_count++;
    nsq_charge(&pool->account, NSQ_SLAB_SIZE);
    Py_INCREF(pool->account.owner);
    nsq_slab_list(pool, slab);
    return slab;
}

NSQ_SELDOM void nsq_slab_empty(nsq_slab *slab) {
    nsq_pool *pool = slab->pool;
    if (slab->is_listed)
        nsq_slab_unlist(pool, slab);
    pool->slab_count--;
    slab->next = pool->kept;
    pool->kept = slab;
    pool->kept_count++;
    pool->account.spare += NSQ_SLAB_SIZE;
    nsq_account_leave(&pool->account, NSQ_SLAB_SIZE); /* last: the pool may end with its owner */
}

/* Returns so many empty slabs to the kernel. */
NSQ_SELDOM void nsq_pool_release(nsq_account *account, uint32_t count) {
    nsq_pool *pool = (nsq_pool *)account;
    while (count-- && pool->kept) {
        nsq_slab *slab = pool->kept;
        pool->kept = slab->next;
        pool->kept_count--;
        pool->account.spare -= NSQ_SLAB_SIZE;
        munmap(slab, NSQ_SLAB_SIZE);
    }
}

/* Returns all that is free to the kernel. */
NSQ_SELDOM void nsq_pool_trim(nsq_account *account) {
    nsq_pool_release(account, UINT32_MAX);
#ifdef __GLIBC__
    malloc_trim(0);
#endif
}

/* Returns NULL without memory. */
NSQ_SELDOM nsq_account *nsq_pool_make(PyObject *owner) {
    nsq_pool *pool = (nsq_pool *)calloc(1, sizeof(nsq_pool));
    if (pool == NULL)
        return NULL;
    pool->account.owner = owner;
    return &pool->account;
}

/* Its owner goes: no message is left. */
NSQ_SELDOM void nsq_pool_end(nsq_account *account) {
    if (account == NULL)
        return;
    nsq_pool_release(account, UINT32_MAX);
    free(account);
}

/* Output blocks are large, short-lived and allocated again in every turn. By default malloc maps each from the kernel,
 * which clears it page by page; this makes it keep 16 MiB of freed memory. */
static inline void nsq_keep_freed(void) {
#ifdef __GLIBC__
    mallopt(M_MMAP_THRESHOLD, 8 << 20);
    mallopt(M_TRIM_THRESHOLD, 16 << 20);
#endif
}

/* Not inlined, to keep the following functions small: they are inlined for every message. */
NSQ_SELDOM void *nsq_large_get(nsq_pool *pool, size_t size) {
    nsq_large *large = (nsq_large *)malloc(sizeof(nsq_large) + size);
    if (large == NULL)
        return NULL;
    large->pool = pool;
    nsq_charge(&pool->account, (int64_t)(sizeof(nsq_large) + size));
    Py_INCREF(pool->account.owner);
    return large + 1;
}

NSQ_SELDOM void nsq_large_put(void *block, size_t size) {
    nsq_large *large = (nsq_large *)block - 1;
    nsq_pool *pool = large->pool;
    free(large);
    nsq_account_leave(&pool->account, (int64_t)(sizeof(nsq_large) + size));
}

static inline nsq_slab *nsq_slab_of(void *block) {
    return (nsq_slab *)((uintptr_t)block & ~(uintptr_t)(NSQ_SLAB_SIZE - 1));
}

/* Where a block of that size came from. */
static inline nsq_pool *nsq_pool_of(void *block, size_t size) {
    /* The sanitizers check malloc only. */
    return NSQFAST_DEBUG || size > NSQ_BLOCK_MAX ? ((nsq_large *)block - 1)->pool : nsq_slab_of(block)->pool;
}

/* Returns NULL without memory. */
static inline void *nsq_pool_get(nsq_account *account, size_t size) {
    nsq_pool *pool = (nsq_pool *)account;
    if (NSQFAST_DEBUG || size > NSQ_BLOCK_MAX)
        return nsq_large_get(pool, size);
    uint32_t block_size, class_number = nsq_class_of(size, &block_size);
    nsq_slab *slab = pool->with_room[class_number];
    void *block;
    if (slab == NULL && (slab = nsq_slab_new(pool, class_number, block_size)) == NULL)
        return NULL;
    if (slab->freed) {
        block = slab->freed;
        slab->freed = *(void **)block;
    } else {
        block = slab->fresh;
        slab->fresh += block_size;
    }
    slab->live++;
    if (slab->freed == NULL && slab->fresh == slab->end)
        nsq_slab_unlist(pool, slab);
    return block;
}

/* `size` must be the size that was requested. */
static inline void nsq_pool_put(void *block, size_t size) {
    if (NSQFAST_DEBUG || size > NSQ_BLOCK_MAX) {
        nsq_large_put(block, size);
        return;
    }
    nsq_slab *slab = nsq_slab_of(block);
    *(void **)block = slab->freed;
    slab->freed = block;
    if (--slab->live == 0)
        nsq_slab_empty(slab);
    else if (!slab->is_listed)
        nsq_slab_list(slab->pool, slab);
}

#endif
