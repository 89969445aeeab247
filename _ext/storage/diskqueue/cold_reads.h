/* A thread that reads what the page cache does not have, so that the loop need not wait for a disk. It takes one request
 * after the other, and writes to an eventfd after each. It does not touch Python. */
#ifndef NSQFAST_COLD_READS_H
#define NSQFAST_COLD_READS_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* preadv2 */
#endif

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/uio.h>
#include <unistd.h>

typedef struct nsq_cold_read {
    struct nsq_cold_read *next;
    void *owner; /* who asked; NULL = nobody wants it any more. Only the loop reads or writes it. */
    int fd;      /* a descriptor of its own */
    char *data;
    int64_t position, size, got;
    int error; /* errno of what ended it; 0 = it has all, or the file ended */
} nsq_cold_read;

typedef struct {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int event_fd; /* a descriptor of its own */
    int stopping;
    nsq_cold_read *first, **last; /* that wait */
    nsq_cold_read *done;
} nsq_cold_reader;

static inline void nsq_cold_read_free(nsq_cold_read *read) {
    if (read->fd >= 0)
        close(read->fd);
    free(read->data);
    free(read);
}

/* What the page cache has of these bytes; -1: nothing, or it is not known without a wait. */
static inline ssize_t nsq_read_cached(int fd, char *data, size_t size, off_t position) {
    struct iovec part = {data, size};
    return preadv2(fd, &part, 1, position, RWF_NOWAIT);
}

static void *nsq_cold_reader_run(void *argument) {
    nsq_cold_reader *reader = (nsq_cold_reader *)argument;
    uint64_t one = 1;
    pthread_mutex_lock(&reader->lock);
    while (!reader->stopping) {
        nsq_cold_read *read = reader->first;
        if (read == NULL) {
            pthread_cond_wait(&reader->changed, &reader->lock);
            continue;
        }
        reader->first = read->next;
        if (reader->first == NULL)
            reader->last = &reader->first;
        pthread_mutex_unlock(&reader->lock);
        while (read->got < read->size) {
            ssize_t got = pread(read->fd, read->data + read->got, read->size - read->got, read->position + read->got);
            if (got < 0 && errno == EINTR)
                continue;
            read->error = got < 0 ? errno : 0;
            if (got <= 0)
                break;
            read->got += got;
        }
        close(read->fd);
        read->fd = -1;
        pthread_mutex_lock(&reader->lock);
        read->next = reader->done;
        reader->done = read;
        while (write(reader->event_fd, &one, sizeof(one)) < 0 && errno == EINTR)
            ;
    }
    pthread_mutex_unlock(&reader->lock);
    return NULL;
}

/* Takes the descriptor over; NULL: there is no descriptor, no memory or no thread left. */
static inline nsq_cold_reader *nsq_cold_reader_start(int event_fd) {
    nsq_cold_reader *reader = (nsq_cold_reader *)calloc(1, sizeof *reader);
    sigset_t all, before;
    int failed = reader == NULL || event_fd < 0;
    if (failed) {
        if (event_fd >= 0)
            close(event_fd);
        free(reader);
        return NULL;
    }
    pthread_mutex_init(&reader->lock, NULL);
    pthread_cond_init(&reader->changed, NULL);
    reader->event_fd = event_fd;
    reader->last = &reader->first;
    sigfillset(&all); /* signals are for the loop's thread */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    failed = pthread_create(&reader->thread, NULL, nsq_cold_reader_run, reader);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (failed) {
        close(event_fd);
        free(reader);
        return NULL;
    }
    return reader;
}

static inline void nsq_cold_reader_add(nsq_cold_reader *reader, nsq_cold_read *read) {
    pthread_mutex_lock(&reader->lock);
    *reader->last = read;
    reader->last = &read->next;
    pthread_cond_signal(&reader->changed);
    pthread_mutex_unlock(&reader->lock);
}

/* All that are done since the last call, the latest first. */
static inline nsq_cold_read *nsq_cold_reader_take(nsq_cold_reader *reader) {
    nsq_cold_read *done;
    pthread_mutex_lock(&reader->lock);
    done = reader->done;
    reader->done = NULL;
    pthread_mutex_unlock(&reader->lock);
    return done;
}

/* Waits for the running read; returns it and all others, as far as they are not taken. */
static inline nsq_cold_read *nsq_cold_reader_stop(nsq_cold_reader *reader) {
    nsq_cold_read *left;
    pthread_mutex_lock(&reader->lock);
    reader->stopping = 1;
    pthread_cond_signal(&reader->changed);
    pthread_mutex_unlock(&reader->lock);
    pthread_join(reader->thread, NULL);
    *reader->last = reader->done;
    left = reader->first;
    close(reader->event_fd);
    free(reader);
    return left;
}

#endif
