/* Preloaded into a broker: writes to some files fail, or are short, or their fdatasync fails.
 *
 * NSQ_BAD_WRITES names a file of lines "<end of a path> <write|short|sync> <errno>". It is read at each call, so that a
 * test may change it while the broker runs. A short write has one sector of the bytes, which O_DIRECT takes.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

#define SECTOR_SIZE 512

typedef ssize_t (*pwrite_function)(int, const void *, size_t, off_t);

static int ends_with(const char *text, const char *end) {
    size_t size = strlen(text), end_size = strlen(end);
    return size >= end_size && strcmp(text + size - end_size, end) == 0;
}

/* The errno of what the list says of this call, or 0. */
static int find(int fd, const char *wanted) {
    char link[64], path[4096], end[4096], what[16];
    const char *list = getenv("NSQ_BAD_WRITES");
    int error, found = 0;
    FILE *file = list ? fopen(list, "re") : NULL;
    if (file == NULL)
        return 0;
    snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof(path) - 1);
    path[length < 0 ? 0 : length] = 0;
    while (fscanf(file, "%4095s %15s %d", end, what, &error) == 3)
        if (strcmp(what, wanted) == 0 && ends_with(path, end))
            found = error;
    fclose(file);
    return found;
}

static ssize_t write_badly(const char *name, int fd, const void *data, size_t size, off_t position) {
    int error = find(fd, "write");
    if (error) {
        errno = error;
        return -1;
    }
    if (size > SECTOR_SIZE && find(fd, "short"))
        size = SECTOR_SIZE;
    return ((pwrite_function)dlsym(RTLD_NEXT, name))(fd, data, size, position);
}

ssize_t pwrite(int fd, const void *data, size_t size, off_t position) {
    return write_badly("pwrite", fd, data, size, position);
}

ssize_t pwrite64(int fd, const void *data, size_t size, off_t position) {
    return write_badly("pwrite64", fd, data, size, position);
}

int fdatasync(int fd) {
    int error = find(fd, "sync");
    if (error) {
        errno = error;
        return -1;
    }
    return ((int (*)(int))dlsym(RTLD_NEXT, "fdatasync"))(fd);
}
