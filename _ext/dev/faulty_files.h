/* Files of the commit log whose calls fail when they are told to. */
#ifndef NSQFAST_FAULTY_FILES_H
#define NSQFAST_FAULTY_FILES_H

#include <string.h>

#include "commitlog/files.h"

enum { NSQ_FAULTS_MAX = 64, NSQ_FD_MAX = 4096, NSQ_FAULTY_FILES = 6 };

/* What the next calls do: 0 = as always, an errno, or for a write less the bytes that are written at most. */
typedef struct {
    int results[NSQ_FAULTS_MAX];
    int count;
    int next;
} nsq_faults;

typedef struct {
    nsq_files table;
    nsq_files *real;
    nsq_faults pwrites;
    nsq_faults syncs;
    int refuses_direct; /* 1: to open; 2: to read and write */
    int is_unsynced; /* nothing is synced, which makes tests of damage fast */
    int gate_fd; /* a write waits until it has read a byte from here; -1 = it does not wait */
    int unreadable_file; /* -1 = none */
    int64_t unreadable_at;
    char file_of[NSQ_FD_MAX]; /* 0 to 3: quarters, 4: head, 5: others */
    int pwrite_counts[NSQ_FAULTY_FILES];
    int sync_counts[NSQ_FAULTY_FILES];
} nsq_faulty_files;

static inline int nsq_take_fault(nsq_faults *faults) {
    return faults->next < faults->count ? faults->results[faults->next++] : 0;
}

static inline int nsq_fail(int error) {
    errno = error;
    return -1;
}

static inline char nsq_name_file(const char *path) {
    size_t size = strlen(path);
    if (size > 6 && strcmp(path + size - 5, ".ring") == 0)
        return path[size - 6] - '0';
    return size > 5 && strcmp(path + size - 5, "/head") == 0 ? 4 : 5;
}

static int nsq_faulty_open(nsq_files *files, const char *path, int flags, int mode) {
    nsq_faulty_files *f = (nsq_faulty_files *)files;
    if (f->refuses_direct == 1 && flags & O_DIRECT)
        return nsq_fail(EINVAL);
    if (f->refuses_direct)
        flags &= ~O_DIRECT;
    if (f->is_unsynced)
        flags &= ~(O_DIRECT | O_DSYNC);
    int fd = f->real->open(f->real, path, flags, mode);
    if (fd >= 0 && fd < NSQ_FD_MAX)
        f->file_of[fd] = nsq_name_file(path);
    return fd;
}

static int nsq_faulty_close(nsq_files *files, int fd) { return close(fd); }

static ssize_t nsq_faulty_pread(nsq_files *files, int fd, void *data, size_t size, int64_t at) {
    nsq_faulty_files *f = (nsq_faulty_files *)files;
    if (f->refuses_direct == 2) {
        f->refuses_direct = 1;
        return nsq_fail(EINVAL);
    }
    if (f->file_of[fd] == f->unreadable_file && at <= f->unreadable_at && f->unreadable_at < at + (int64_t)size)
        return nsq_fail(EIO);
    return f->real->pread(f->real, fd, data, size, at);
}

static ssize_t nsq_faulty_pwrite(nsq_files *files, int fd, const void *data, size_t size, int64_t at) {
    nsq_faulty_files *f = (nsq_faulty_files *)files;
    char byte;
    if (f->gate_fd >= 0 && read(f->gate_fd, &byte, 1) < 1)
        return nsq_fail(EBADF);
    f->pwrite_counts[(int)f->file_of[fd]]++;
    int result = nsq_take_fault(&f->pwrites);
    if (result > 0)
        return nsq_fail(result);
    if (result < 0 && (size_t)-result < size) {
        /* To an O_DIRECT file whole sectors alone can be written. */
        size_t part = (size_t)-result / 512 * 512;
        return part > 0 ? f->real->pwrite(f->real, fd, data, part, at) : 0;
    }
    return f->real->pwrite(f->real, fd, data, size, at);
}

static int nsq_faulty_fdatasync(nsq_files *files, int fd) {
    nsq_faulty_files *f = (nsq_faulty_files *)files;
    f->sync_counts[(int)f->file_of[fd]]++;
    int result = nsq_take_fault(&f->syncs);
    if (result > 0)
        return nsq_fail(result);
    return f->is_unsynced ? 0 : f->real->fdatasync(f->real, fd);
}

static int nsq_faulty_fsync(nsq_files *files, int fd) {
    nsq_faulty_files *f = (nsq_faulty_files *)files;
    return f->is_unsynced ? 0 : f->real->fsync(f->real, fd);
}

static inline void nsq_faulty_init(nsq_faulty_files *f, nsq_files *real) {
    memset(f, 0, sizeof *f);
    f->real = real;
    f->table = *real;
    f->table.open = nsq_faulty_open;
    f->table.close = nsq_faulty_close;
    f->table.pread = nsq_faulty_pread;
    f->table.pwrite = nsq_faulty_pwrite;
    f->table.fdatasync = nsq_faulty_fdatasync;
    f->table.fsync = nsq_faulty_fsync;
    f->gate_fd = -1;
    f->unreadable_file = -1;
}

#endif
