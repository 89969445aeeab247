/* Commits a batch: by a thread of its own, which sleeps until it gets one and writes to an eventfd when it has run, or,
 * without the thread, by whoever calls nsq_committer_step(). Neither touches Python. */
#ifndef NSQFAST_COMMIT_H
#define NSQFAST_COMMIT_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <time.h>

#include "commitlog/files.h"
#include "commitlog/format.h"

/* A buffer of this size is kept for the next batch; the thread gives back what is behind it, as that takes some time. */
#define NSQ_BUFFER_KEPT_SIZE (4 << 20)

typedef struct {
    nsq_files *files;
    int is_dsync; /* the files were opened with O_DSYNC: a write that returned is on disk */
    uint32_t epoch_seed;
    int head_fd;
    const char *head; /* written first; NULL: it needs no change */
    int64_t head_at;
    int fd;
    char *data; /* room for the header, then the records; NULL: the head alone is written, or what follows is synced */
    size_t size; /* of header, records and padding */
    nsq_batch header;
    int sync_fds[NSQ_QUARTER_COUNT]; /* quarters to be synced, in this order, before the head says so */
    int sync_count; /* 0: a batch is committed */
    /* The result: errnos, or 0. */
    int head_error;
    int error;
    int64_t time_ns; /* that the write took, with its sync */
} nsq_commit_job;

static inline int64_t nsq_commit_now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* Returns an errno, or 0. */
static inline int nsq_write_once(nsq_files *files, int fd, const char *data, size_t size, int64_t at) {
    ssize_t written;
    do
        written = files->pwrite(files, fd, data, size, at);
    while (written < 0 && errno == EINTR);
    if (written < 0)
        return errno;
    return (size_t)written < size ? EIO : 0;
}

/* Returns an errno, or 0 when all of it is on disk. Nothing is tried twice after an error: the kernel may have marked
 * pages clean that it could not write, and a second fdatasync would then succeed. */
static inline int nsq_write_durably(const nsq_commit_job *job, int fd, const char *data, size_t size, int64_t at) {
    int error = nsq_write_once(job->files, fd, data, size, at);
    if (error)
        return error;
    return !job->is_dsync && job->files->fdatasync(job->files, fd) < 0 ? errno : 0;
}

static inline void nsq_commit_batch(nsq_commit_job *job) {
    memset(job->data + job->header.length, 0, job->size - job->header.length);
    nsq_batch_seal(job->data, &job->header, job->epoch_seed);
    int64_t begun_ns = nsq_commit_now_ns();
    job->error = nsq_write_durably(job, job->fd, job->data, job->size, (int64_t)nsq_place_offset(job->header.place));
    job->time_ns = nsq_commit_now_ns() - begun_ns;
    if (!job->error && job->size > NSQ_BUFFER_KEPT_SIZE)
        madvise(job->data + NSQ_BUFFER_KEPT_SIZE, job->size - NSQ_BUFFER_KEPT_SIZE, MADV_DONTNEED);
}

/* Writes a batch into the kernel's cache, by the calling thread. Returns an errno, or 0. */
static inline int nsq_write_batch(nsq_files *files, uint32_t epoch_seed, int fd, char *data, size_t size,
                                  nsq_batch *header) {
    memset(data + header->length, 0, size - header->length);
    nsq_batch_seal(data, header, epoch_seed);
    return nsq_write_once(files, fd, data, size, (int64_t)nsq_place_offset(header->place));
}

/* A quarter whose sync fails is not synced again: see nsq_write_durably(). */
static inline void nsq_commit_sync(nsq_commit_job *job) {
    int64_t begun_ns = nsq_commit_now_ns();
    for (int i = 0; i < job->sync_count && !job->error; i++)
        job->error = job->files->fdatasync(job->files, job->sync_fds[i]) < 0 ? errno : 0;
    job->time_ns = nsq_commit_now_ns() - begun_ns;
}

static inline void nsq_commit_run(nsq_commit_job *job) {
    job->head_error = job->error = 0;
    job->time_ns = 0;
    nsq_commit_sync(job);
    if (job->error)
        return;
    if (job->head != NULL)
        job->head_error = nsq_write_durably(job, job->head_fd, job->head, NSQ_HEAD_SIZE, job->head_at);
    if (job->data != NULL && !job->head_error)
        nsq_commit_batch(job);
}

typedef struct {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int has_thread;
    int event_fd; /* -1 without a thread */
    int busy; /* the job belongs to the thread until this is 0 again */
    int stopping;
    nsq_commit_job job;
} nsq_committer;

static inline void nsq_committer_run_job(nsq_committer *c) {
    uint64_t one = 1;
    pthread_mutex_unlock(&c->lock);
    nsq_commit_run(&c->job);
    pthread_mutex_lock(&c->lock);
    c->busy = 0;
    pthread_cond_broadcast(&c->changed);
    /* It is full only after 2^64 - 2 unread writes. */
    if (write(c->event_fd, &one, sizeof one) < 0) {
    }
}

static inline void *nsq_committer_run(void *argument) {
    nsq_committer *c = (nsq_committer *)argument;
    pthread_mutex_lock(&c->lock);
    while (c->busy || !c->stopping) {
        if (c->busy)
            nsq_committer_run_job(c);
        else
            pthread_cond_wait(&c->changed, &c->lock);
    }
    pthread_mutex_unlock(&c->lock);
    return NULL;
}

/* Returns an errno, or 0. The main thread handles signals. */
static inline int nsq_committer_start_thread(nsq_committer *c) {
    sigset_t all, before;
    c->event_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (c->event_fd < 0)
        return errno;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(&c->thread, NULL, nsq_committer_run, c);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    c->has_thread = !error;
    return error;
}

/* Ends it after the job that it has, if any; without a thread that job is lost. */
static inline void nsq_committer_stop(nsq_committer *c) {
    pthread_mutex_lock(&c->lock);
    c->stopping = 1;
    pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->lock);
    if (c->has_thread)
        pthread_join(c->thread, NULL);
    pthread_mutex_destroy(&c->lock);
    pthread_cond_destroy(&c->changed);
    if (c->event_fd >= 0)
        close(c->event_fd);
    free(c);
}

/* Returns NULL with errno set if the kernel has no memory, thread or eventfd left. */
static inline nsq_committer *nsq_committer_start(int is_stepped) {
    nsq_committer *c = (nsq_committer *)calloc(1, sizeof *c);
    if (c == NULL)
        return NULL;
    c->event_fd = -1;
    pthread_mutex_init(&c->lock, NULL);
    pthread_condattr_t by_clock;
    pthread_condattr_init(&by_clock);
    pthread_condattr_setclock(&by_clock, CLOCK_MONOTONIC);
    pthread_cond_init(&c->changed, &by_clock);
    pthread_condattr_destroy(&by_clock);
    int error = is_stepped ? 0 : nsq_committer_start_thread(c);
    if (error) {
        nsq_committer_stop(c);
        errno = error;
        return NULL;
    }
    return c;
}

/* Submits the job, which is filled in before; only while not busy. */
static inline void nsq_committer_submit(nsq_committer *c) {
    pthread_mutex_lock(&c->lock);
    c->busy = 1;
    pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->lock);
}

static inline int nsq_committer_busy(nsq_committer *c) {
    pthread_mutex_lock(&c->lock);
    int busy = c->busy;
    pthread_mutex_unlock(&c->lock);
    return busy;
}

/* Without a thread: runs the job; returns 0 if there is none. */
static inline int nsq_committer_step(nsq_committer *c) {
    if (c->has_thread || !c->busy)
        return 0;
    nsq_commit_run(&c->job);
    c->busy = 0;
    return 1;
}

static inline int nsq_committer_fd(nsq_committer *c) { return c == NULL ? -1 : c->event_fd; }

/* To be filled in while not busy, and read again after that. */
static inline nsq_commit_job *nsq_committer_job(nsq_committer *c) { return &c->job; }

/* Waits until no job runs, or until this time of CLOCK_MONOTONIC; < 0: as long as it takes. */
static inline void nsq_committer_wait(nsq_committer *c, int64_t until_ns) {
    struct timespec until = {.tv_sec = until_ns / 1000000000, .tv_nsec = until_ns % 1000000000};
    int failed = 0;
    pthread_mutex_lock(&c->lock);
    while (c->busy && !failed)
        failed = until_ns < 0 ? pthread_cond_wait(&c->changed, &c->lock)
                              : pthread_cond_timedwait(&c->changed, &c->lock, &until);
    pthread_mutex_unlock(&c->lock);
}

#endif
