/* A thread that flushes files: it sleeps until it gets a batch of them, flushes and drops each, and writes to an
 * eventfd. Several threads flush a large batch in parallel: the kernel then serves all waiting files with one flush of
 * the device, which sequentially each file would cost. The order within a batch is not defined. Another thread closes
 * descriptors of removed files, since freeing their blocks takes the kernel milliseconds; on a slow disk batches take
 * seconds, and follow each other without a pause. Neither touches Python.
 *
 * Files have reference counts, so that a flush request needs no further descriptor and cannot fail for lack of one. */
#ifndef NSQFAST_SYNCER_H
#define NSQFAST_SYNCER_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* syncfs */
#endif

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

typedef struct {
    int fd;
    int uses;
} nsq_file;

/* Takes the descriptor over; without memory it closes it and returns NULL. */
static inline nsq_file *nsq_file_open(int fd) {
    nsq_file *file = (nsq_file *)malloc(sizeof *file);
    if (file == NULL) {
        close(fd);
        return NULL;
    }
    file->fd = fd;
    file->uses = 1;
    return file;
}

static inline void nsq_file_keep(nsq_file *file) { __atomic_add_fetch(&file->uses, 1, __ATOMIC_RELAXED); }

static inline void nsq_file_drop(nsq_file *file) {
    if (__atomic_sub_fetch(&file->uses, 1, __ATOMIC_ACQ_REL) == 0) {
        close(file->fd);
        free(file);
    }
}

/* The lowest bit of an entry of a batch requests a flush of its whole file system. */
enum { NSQ_FLUSH_ALL = 1 };
static inline nsq_file *nsq_entry_file(uintptr_t entry) { return (nsq_file *)(entry & ~(uintptr_t)1); }
static inline int nsq_flush(uintptr_t entry) {
    int fd = nsq_entry_file(entry)->fd;
    return entry & NSQ_FLUSH_ALL ? syncfs(fd) : fdatasync(fd);
}

/* The most descriptors that wait to be closed: few, since a broker may have hardly any left. */
enum { NSQ_CLOSE_MAX = 8 };

/* Additional threads: one for each NSQ_SIDE_SIZE files, and how many at most. */
enum { NSQ_SIDE_SIZE = 8, NSQ_SIDE_COUNT_MAX = 15 };

/* Totals since the thread was started. */
struct nsq_syncs {
    uint64_t count;
    uint64_t failed_count;
    uint64_t time_ns;
};

typedef struct {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int event_fd;
    uintptr_t *entries; /* the running batch; it belongs to the thread until busy is 0 again */
    size_t size;
    int busy;
    int stopping;
    int error; /* the first errno of the last batch */
    struct nsq_syncs done;
    pthread_t closer; /* once has_closer */
    int has_closer;
    int closing[NSQ_CLOSE_MAX];
    int closing_count;
} nsq_syncer;

static inline uint64_t nsq_syncer_now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

struct nsq_batch {
    uintptr_t *entries;
    size_t size;
    size_t next;          /* the first entry that no thread has taken */
    pthread_mutex_t lock; /* of the following fields */
    int error;
    struct nsq_syncs done;
};

/* Flushes entries until none is left; runs in any number of threads. */
static void *nsq_batch_flush(void *argument) {
    struct nsq_batch *batch = (struct nsq_batch *)argument;
    struct nsq_syncs done = {0};
    int first_error = 0;
    size_t i;
    while ((i = __atomic_fetch_add(&batch->next, 1, __ATOMIC_RELAXED)) < batch->size) {
        uintptr_t entry = batch->entries[i];
        int failed;
        uint64_t begun_ns = nsq_syncer_now_ns();
        do {
            failed = nsq_flush(entry);
        } while (failed && errno == EINTR);
        if (failed && !first_error)
            first_error = errno;
        done.count++;
        done.failed_count += failed != 0;
        done.time_ns += nsq_syncer_now_ns() - begun_ns;
        nsq_file_drop(nsq_entry_file(entry));
    }
    pthread_mutex_lock(&batch->lock);
    if (!batch->error)
        batch->error = first_error;
    batch->done.count += done.count;
    batch->done.failed_count += done.failed_count;
    batch->done.time_ns += done.time_ns;
    pthread_mutex_unlock(&batch->lock);
    return NULL;
}

/* Flushes the whole batch; additional threads end with it, and if the kernel has none left it takes longer. */
static void nsq_batch_run(struct nsq_batch *batch) {
    pthread_t threads[NSQ_SIDE_COUNT_MAX];
    size_t count = 0, wanted = batch->size / NSQ_SIDE_SIZE;
    pthread_mutex_init(&batch->lock, NULL);
    while (count < wanted && count < NSQ_SIDE_COUNT_MAX
           && pthread_create(&threads[count], NULL, nsq_batch_flush, batch) == 0)
        count++;
    nsq_batch_flush(batch);
    while (count > 0)
        pthread_join(threads[--count], NULL);
    pthread_mutex_destroy(&batch->lock);
}

/* Runs the submitted batch; called and left with the lock held, which is released meanwhile. */
static void nsq_syncer_run_batch(nsq_syncer *s) {
    uint64_t one = 1;
    struct nsq_batch batch = {.entries = s->entries, .size = s->size};
    pthread_mutex_unlock(&s->lock);
    nsq_batch_run(&batch);
    free(batch.entries);
    pthread_mutex_lock(&s->lock);
    s->entries = NULL;
    s->error = batch.error;
    s->done.count += batch.done.count;
    s->done.failed_count += batch.done.failed_count;
    s->done.time_ns += batch.done.time_ns;
    s->busy = 0;
    pthread_cond_broadcast(&s->changed);
    /* It is full only after 2^64 - 2 unread writes. */
    if (write(s->event_fd, &one, sizeof one) < 0) {
    }
}

static void *nsq_syncer_run(void *argument) {
    nsq_syncer *s = (nsq_syncer *)argument;
    pthread_mutex_lock(&s->lock);
    while (s->busy || !s->stopping) {
        if (s->busy)
            nsq_syncer_run_batch(s);
        else
            pthread_cond_wait(&s->changed, &s->lock);
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

static void *nsq_closer_run(void *argument) {
    nsq_syncer *s = (nsq_syncer *)argument;
    pthread_mutex_lock(&s->lock);
    while (s->closing_count || !s->stopping) {
        if (s->closing_count) {
            int fd = s->closing[--s->closing_count];
            pthread_mutex_unlock(&s->lock);
            close(fd);
            pthread_mutex_lock(&s->lock);
        } else
            pthread_cond_wait(&s->changed, &s->lock);
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

/* Returns an errno, or 0. The main thread handles signals. */
static int nsq_thread_start(pthread_t *thread, void *(*run)(void *), nsq_syncer *s) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(thread, NULL, run, s);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error;
}

/* Returns NULL with errno set if the kernel has no thread or eventfd left. */
static inline nsq_syncer *nsq_syncer_start(void) {
    nsq_syncer *s = (nsq_syncer *)calloc(1, sizeof *s);
    if (s == NULL)
        return NULL;
    s->event_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (s->event_fd < 0) {
        free(s);
        return NULL;
    }
    pthread_mutex_init(&s->lock, NULL);
    pthread_condattr_t by_clock;
    pthread_condattr_init(&by_clock);
    pthread_condattr_setclock(&by_clock, CLOCK_MONOTONIC);
    pthread_cond_init(&s->changed, &by_clock);
    pthread_condattr_destroy(&by_clock);
    int error = nsq_thread_start(&s->thread, nsq_syncer_run, s);
    if (error) {
        close(s->event_fd);
        free(s);
        errno = error;
        return NULL;
    }
    return s;
}

/* Submits the batch (allocated with malloc); only while not busy. */
static inline void nsq_syncer_submit(nsq_syncer *s, uintptr_t *entries, size_t size) {
    pthread_mutex_lock(&s->lock);
    s->entries = entries;
    s->size = size;
    s->busy = 1;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
}

/* Returns 1 while the batch runs; else 0, with its result in *error. */
static inline int nsq_syncer_busy(nsq_syncer *s, int *error) {
    pthread_mutex_lock(&s->lock);
    int busy = s->busy;
    *error = s->error;
    pthread_mutex_unlock(&s->lock);
    return busy;
}

static inline struct nsq_syncs nsq_syncer_done(nsq_syncer *s) {
    pthread_mutex_lock(&s->lock);
    struct nsq_syncs done = s->done;
    pthread_mutex_unlock(&s->lock);
    return done;
}

/* Waits until no batch runs, or for so long; < 0: as long as it takes. */
static inline void nsq_syncer_wait(nsq_syncer *s, int timeout_ms) {
    struct timespec until;
    int failed = 0;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += timeout_ms / 1000;
    until.tv_nsec += timeout_ms % 1000 * 1000000L;
    if (until.tv_nsec >= 1000000000L) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000L;
    }
    pthread_mutex_lock(&s->lock);
    while (s->busy && !failed)
        failed = timeout_ms < 0 ? pthread_cond_wait(&s->changed, &s->lock)
                                : pthread_cond_timedwait(&s->changed, &s->lock, &until);
    pthread_mutex_unlock(&s->lock);
}

/* Lets a thread close the descriptor; returns 0 if too many wait for that, or the kernel has no thread left. */
static inline int nsq_syncer_close_later(nsq_syncer *s, int fd) {
    if (!s->has_closer)
        s->has_closer = nsq_thread_start(&s->closer, nsq_closer_run, s) == 0;
    pthread_mutex_lock(&s->lock);
    int has_room = s->has_closer && s->closing_count < NSQ_CLOSE_MAX;
    if (has_room) {
        s->closing[s->closing_count++] = fd;
        pthread_cond_broadcast(&s->changed);
    }
    pthread_mutex_unlock(&s->lock);
    return has_room;
}

static inline int nsq_syncer_has_room(nsq_syncer *s) {
    pthread_mutex_lock(&s->lock);
    int has_room = s->closing_count < NSQ_CLOSE_MAX;
    pthread_mutex_unlock(&s->lock);
    return has_room;
}

/* Completes a submitted batch and what is to be closed first. */
static inline void nsq_syncer_stop(nsq_syncer *s) {
    pthread_mutex_lock(&s->lock);
    s->stopping = 1;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
    pthread_join(s->thread, NULL);
    if (s->has_closer)
        pthread_join(s->closer, NULL);
    pthread_mutex_destroy(&s->lock);
    pthread_cond_destroy(&s->changed);
    close(s->event_fd);
    free(s);
}

#endif
