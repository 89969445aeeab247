/* A data file as other threads read it, without the interpreter. */
#ifndef NSQ_SEGMENT_FILE_H
#define NSQ_SEGMENT_FILE_H

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <unistd.h>

/* prefix: as segment_path() wants it. Returns a descriptor, or -1 with errno. */
static inline int nsq_segment_open(const char *prefix, int64_t number) {
    char path[4096];
    snprintf(path, sizeof(path), "%s%06lld.dat", prefix, (long long)number);
    return open(path, O_RDONLY | O_CLOEXEC);
}

/* Reads up to `most` bytes, until at least `least` are there. Fewer: the file ends, or (errno) cannot be read. */
static inline int64_t nsq_read_at_least(int fd, char *out, int64_t least, int64_t most, int64_t at) {
    int64_t got = 0;
    while (got < least) {
        ssize_t done = pread(fd, out + got, (size_t)(most - got), (off_t)(at + got));
        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0) {
            errno = done ? errno : 0;
            break;
        }
        got += done;
    }
    return got;
}

#endif
