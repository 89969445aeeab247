/* Preloaded into a broker: reads of some files fail, as those of a bad sector do, or their fdatasync takes its time.
 *
 * NSQ_BAD_SECTORS names a file of lines "<end of a path> <first byte> <byte behind the last> <errno>". It is read at each
 * call, so that a test may change it while the broker runs. Like the kernel, a read that begins before the bytes ends there.
 * With errno 0 the fdatasync of the file goes on for as long as the line is there.
 *
 * With NSQ_COLD_READS nothing of a data file is in the page cache, and a read of one takes 10 ms. That variable names a
 * file which gets a line for each read that the process's first thread, its loop, waits for.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

typedef ssize_t (*pread_function)(int, void *, size_t, off_t);

static int ends_with(const char *text, const char *end) {
    size_t size = strlen(text), end_size = strlen(end);
    return size >= end_size && strcmp(text + size - end_size, end) == 0;
}

/* The list, opened, and the path of the descriptor. */
static FILE *open_list(int fd, char *path, size_t size) {
    char link[64];
    const char *list = getenv("NSQ_BAD_SECTORS");
    ssize_t length;
    snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    length = readlink(link, path, size - 1);
    path[length < 0 ? 0 : length] = 0;
    return list ? fopen(list, "re") : NULL;
}

static int is_slow(int fd) {
    char path[4096], end[4096];
    int error, found = 0;
    FILE *file = open_list(fd, path, sizeof(path));
    while (file && fscanf(file, "%4095s %*lld %*lld %d", end, &error) == 2)
        found |= error == 0 && ends_with(path, end);
    if (file)
        fclose(file);
    return found;
}

int fdatasync(int fd) {
    while (is_slow(fd))
        usleep(10000);
    return ((int (*)(int))dlsym(RTLD_NEXT, "fdatasync"))(fd);
}

/* How many of the bytes may be read; -1 and errno: not even the first. */
static ssize_t allowed(int fd, size_t size, off_t position) {
    char path[4096], end[4096];
    long long first, behind;
    int error, result = 0;
    FILE *file = open_list(fd, path, sizeof(path));
    if (file == NULL)
        return (ssize_t)size;
    while (fscanf(file, "%4095s %lld %lld %d", end, &first, &behind, &error) == 4) {
        if (!ends_with(path, end) || position >= behind || position + (off_t)size <= first)
            continue;
        if (position >= first)
            result = error;
        else
            size = (size_t)(first - position);
    }
    fclose(file);
    if (result) {
        errno = result;
        return -1;
    }
    return (ssize_t)size;
}

/* Whether it is a data file, none of which is in the page cache. */
static int is_cold(int fd) {
    char link[64], path[4096];
    ssize_t length;
    if (getenv("NSQ_COLD_READS") == NULL)
        return 0;
    snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    length = readlink(link, path, sizeof(path) - 1);
    path[length < 0 ? 0 : length] = 0;
    return strstr(path, ".diskqueue.0") != NULL;
}

static void wait_for_disk(int fd, size_t size, off_t position) {
    if (!is_cold(fd))
        return;
    if (syscall(SYS_gettid) == getpid()) {
        FILE *log = fopen(getenv("NSQ_COLD_READS"), "ae");
        fprintf(log, "%zu bytes at %lld\n", size, (long long)position);
        fclose(log);
    }
    usleep(10000);
}

static ssize_t read_sound(const char *name, int fd, void *data, size_t size, off_t position) {
    ssize_t count = allowed(fd, size, position);
    wait_for_disk(fd, size, position);
    return count < 0 ? -1 : ((pread_function)dlsym(RTLD_NEXT, name))(fd, data, (size_t)count, position);
}

ssize_t pread(int fd, void *data, size_t size, off_t position) {
    return read_sound("pread", fd, data, size, position);
}

ssize_t pread64(int fd, void *data, size_t size, off_t position) {
    return read_sound("pread64", fd, data, size, position);
}

/* For one buffer, as what is cached is read. */
ssize_t preadv2(int fd, const struct iovec *parts, int count, off_t position, int flags) {
    if (is_cold(fd) && flags & RWF_NOWAIT) {
        errno = EAGAIN;
        return -1;
    }
    return read_sound("pread", fd, parts[0].iov_base, parts[0].iov_len, position);
}

ssize_t preadv64v2(int fd, const struct iovec *parts, int count, off_t position, int flags) {
    return preadv2(fd, parts, count, position, flags);
}
