/* Memory of one buffer, which grows. Large ones are mappings of their own, and so go back to the kernel one by one:
 * malloc would give back hundreds of them in the call that frees the last, and all clients wait meanwhile. */
#ifndef NSQ_BLOCK_H
#define NSQ_BLOCK_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#ifdef __linux__
#define NSQ_MAPPED_SIZE (1 << 20)
#else /* mremap is Linux's */
#define NSQ_MAPPED_SIZE PTRDIFF_MAX
#define MREMAP_MAYMOVE 0
#define mremap(block, before, size, flags) MAP_FAILED
#endif

static void nsq_block_free(void *block, ptrdiff_t size) {
    if (size >= NSQ_MAPPED_SIZE)
        munmap(block, (size_t)size);
    else
        free(block);
}

/* NULL: there is no memory, and the block is as before. */
static void *nsq_block_resize(void *block, ptrdiff_t before, ptrdiff_t size) {
    void *made;
    if (before < NSQ_MAPPED_SIZE && size < NSQ_MAPPED_SIZE)
        return realloc(block, (size_t)size);
    if (before >= NSQ_MAPPED_SIZE && size >= NSQ_MAPPED_SIZE)
        made = mremap(block, (size_t)before, (size_t)size, MREMAP_MAYMOVE);
    else if (size >= NSQ_MAPPED_SIZE)
        made = mmap(NULL, (size_t)size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    else
        made = malloc((size_t)size);
    if (made == MAP_FAILED || made == NULL)
        return NULL;
    if (before > 0 && (before < NSQ_MAPPED_SIZE || size < NSQ_MAPPED_SIZE)) {
        memcpy(made, block, (size_t)(before < size ? before : size));
        nsq_block_free(block, before);
    }
    return made;
}

#endif
