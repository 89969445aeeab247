/* Files mapped for writing. The kernel may fail to provide a page: the disk is full and the file system copies on
 * write, a sector cannot be read, or someone truncated the file. Its signal (SIGBUS) would end the process. Instead
 * the handler replaces the whole mapping by memory with as much of the file as is still readable, the failed store is
 * repeated, and `is_lost` tells that nothing stored from now on reaches the disk.
 *
 * The thread that uses the mappings changes the list; the signal goes to the thread whose access failed. */
#ifndef NSQFAST_MAPPING_H
#define NSQFAST_MAPPING_H

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

typedef struct nsq_mapping {
    char *address;
    size_t size;
    int fd;     /* -1: closed */
    char *path; /* NULL: memory alone */
    void *owner;
    volatile sig_atomic_t is_lost;
    struct nsq_mapping *next, *previous;
} nsq_mapping;

/* The newest mapping is the first, the oldest the last. */
static nsq_mapping *nsq_mappings, *nsq_oldest_mapping;
static size_t nsq_mapping_count;
static struct sigaction nsq_bus_before;
static int nsq_is_guarding;

/* Copies page by page, so that an unreadable page stays zeros and affects no other. */
static void nsq_copy_file(int fd, char *to, size_t size) {
    for (size_t at = 0; at < size; at += 4096) {
        size_t want = size - at < 4096 ? size - at : 4096, got = 0;
        while (got < want) {
            ssize_t done = pread(fd, to + at + got, want - got, (off_t)(at + got));
            if (done <= 0)
                break;
            got += (size_t)done;
        }
    }
}

static void nsq_on_bus(int number, siginfo_t *info, void *context) {
    char *at = (char *)info->si_addr;
    int error = errno;
    (void)number;
    (void)context;
    for (nsq_mapping *m = nsq_mappings; m; m = m->next) {
        if (at < m->address || at >= m->address + m->size)
            continue;
        char *copy = (char *)mmap(NULL, m->size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (copy == MAP_FAILED)
            break;
        int fd = m->fd >= 0 || m->path == NULL ? m->fd : open(m->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
        nsq_copy_file(fd, copy, m->size);
        if (fd >= 0 && fd != m->fd)
            close(fd);
        if (mremap(copy, m->size, m->size, MREMAP_MAYMOVE | MREMAP_FIXED, m->address) == MAP_FAILED)
            break;
        m->is_lost = 1;
        errno = error;
        return;
    }
    /* Not ours: the previous handler gets it when the access is repeated. */
    sigaction(SIGBUS, &nsq_bus_before, NULL);
    nsq_is_guarding = 0;
    errno = error;
}

static inline void nsq_enlist(nsq_mapping *m) {
    m->previous = NULL;
    m->next = nsq_mappings;
    if (m->next)
        m->next->previous = m;
    else
        nsq_oldest_mapping = m;
    nsq_mappings = m;
    nsq_mapping_count++;
}

static inline void nsq_strike(nsq_mapping *m) {
    if (m->previous)
        m->previous->next = m->next;
    else
        nsq_mappings = m->next;
    if (m->next)
        m->next->previous = m->previous;
    else
        nsq_oldest_mapping = m->previous;
    nsq_mapping_count--;
}

/* Maps the file, or memory alone if fd is -1; NULL with errno set if there is no room. Once the file is at that path
 * the caller may close the descriptor and set `fd` to -1. */
static inline nsq_mapping *nsq_map(int fd, size_t size, const char *path) {
    nsq_mapping *m = (nsq_mapping *)calloc(1, sizeof *m);
    if (m == NULL)
        return NULL;
    m->path = fd < 0 ? NULL : strdup(path);
    if (fd >= 0 && m->path == NULL) {
        free(m);
        return NULL;
    }
    m->address = (char *)mmap(NULL, size, PROT_READ | PROT_WRITE, fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED, fd, 0);
    if (m->address == MAP_FAILED) {
        free(m->path);
        free(m);
        return NULL;
    }
    m->size = size;
    m->fd = fd;
    if (fd >= 0 && !nsq_is_guarding) {
        struct sigaction action = {0};
        action.sa_sigaction = nsq_on_bus;
        action.sa_flags = SA_SIGINFO | SA_NODEFER | SA_ONSTACK;
        sigaction(SIGBUS, &action, &nsq_bus_before);
        nsq_is_guarding = 1;
    }
    nsq_enlist(m);
    return m;
}

static inline void nsq_unmap(nsq_mapping *m) {
    nsq_strike(m);
    munmap(m->address, m->size);
    free(m->path);
    free(m);
}

#endif
