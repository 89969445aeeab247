/* One thread that flushes files: it sleeps until it is handed a batch of descriptors, flushes and closes each, and rings an
 * eventfd. Of those that are given as ~fd it only closes: a removed file's last descriptor, which takes the kernel
 * milliseconds where the file was large. It never touches Python. */
#ifndef NSQFAST_SYNCER_H
#define NSQFAST_SYNCER_H

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

/* Since the thread was started. */
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
    int *fds; /* the batch that is running; the thread's until busy is 0 again */
    size_t size;
    int busy;
    int stopping;
    int error; /* the first errno of the last batch */
    struct nsq_syncs done;
} nsq_syncer;

static inline uint64_t nsq_syncer_now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void *nsq_syncer_run(void *argument) {
    nsq_syncer *s = (nsq_syncer *)argument;
    uint64_t one = 1;
    pthread_mutex_lock(&s->lock);
    for (;;) {
        while (!s->busy && !s->stopping)
            pthread_cond_wait(&s->changed, &s->lock);
        if (!s->busy)
            break;
        pthread_mutex_unlock(&s->lock);
        int error = 0;
        int *fds = s->fds;
        size_t size = s->size;
        struct nsq_syncs done = s->done; /* nobody else writes to it */
        for (size_t i = 0; i < size; i++) {
            int failed;
            if (fds[i] < 0)
                continue;
            uint64_t begun_ns = nsq_syncer_now_ns();
            do {
                failed = fdatasync(fds[i]);
            } while (failed && errno == EINTR);
            if (failed && !error)
                error = errno;
            done.count++;
            done.failed_count += failed != 0;
            done.time_ns += nsq_syncer_now_ns() - begun_ns;
            close(fds[i]);
        }
        pthread_mutex_lock(&s->lock);
        s->fds = NULL;
        s->error = error;
        s->done = done;
        s->busy = 0;
        pthread_cond_broadcast(&s->changed);
        /* Full only after 2^64 - 2 unread rings. */
        if (write(s->event_fd, &one, sizeof one) < 0) {
        }
        /* Nobody waits for these. */
        pthread_mutex_unlock(&s->lock);
        for (size_t i = 0; i < size; i++)
            if (fds[i] < 0)
                close(~fds[i]);
        free(fds);
        pthread_mutex_lock(&s->lock);
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

/* NULL with errno set where the kernel has no thread or eventfd left. */
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
    pthread_cond_init(&s->changed, NULL);
    /* Signals are the main thread's. */
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(&s->thread, NULL, nsq_syncer_run, s);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error) {
        close(s->event_fd);
        free(s);
        errno = error;
        return NULL;
    }
    return s;
}

/* Hands over the batch (malloc's memory); only while not busy. */
static inline void nsq_syncer_submit(nsq_syncer *s, int *fds, size_t size) {
    pthread_mutex_lock(&s->lock);
    s->fds = fds;
    s->size = size;
    s->busy = 1;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
}

/* 1 while the batch runs; else 0 and its result in *error. */
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

static inline void nsq_syncer_wait(nsq_syncer *s) {
    pthread_mutex_lock(&s->lock);
    while (s->busy)
        pthread_cond_wait(&s->changed, &s->lock);
    pthread_mutex_unlock(&s->lock);
}

/* A batch that was handed over is still finished. */
static inline void nsq_syncer_stop(nsq_syncer *s) {
    pthread_mutex_lock(&s->lock);
    s->stopping = 1;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
    pthread_join(s->thread, NULL);
    pthread_mutex_destroy(&s->lock);
    pthread_cond_destroy(&s->changed);
    close(s->event_fd);
    free(s);
}

#endif
