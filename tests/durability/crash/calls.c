/* Preloaded into a broker: writes down every call that changes files of one folder, or of a folder right in it, in
 * order, with its times.
 *
 * NSQ_CALLS_FOLDER names the folder (absolute), NSQ_CALLS_LOG the file to append to. A record is `struct record`, then
 * the two names and the data. Files are known by their inode number; `created` tells when a number means a new file.
 * All calls but the fsyncs run under one lock, so their order in the log is the order in which they happened. An fsync
 * has two records, its begin and its end: it speaks of what was there when it began. So has a write to a file that was
 * opened with O_DSYNC: it is known from its begin on, and on disk at its end.
 *
 * Stores into shared mappings are no calls: whenever something else is written down, each mapping that has changed
 * since is written down first, whole.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum { FILES_MAX = 65536, MAPPINGS_MAX = 4096, LOG_FD_MIN = 900 };

enum kind {
    OPENED = 'O',    /* a = flags, b = created */
    WRITTEN = 'W',   /* a = offset, data */
    CUT = 'T',       /* a = size */
    ALLOCATED = 'A', /* a = offset, b = length */
    SYNC_BEGAN = '<',
    SYNC_ENDED = '>', /* inode 0: of all files */
    RENAMED = 'N',
    UNLINKED = 'U',
    LINKED = 'L',
    STORED = 'M', /* data = the whole mapping */
    SYNC_WRITE_BEGAN = 'w', /* a = offset, data */
    SYNC_WRITE_ENDED = 'd', /* of the same thread and file */
    FOLDER_MADE = 'D',
    FOLDER_REMOVED = 'R',
};

struct record {
    uint32_t size; /* of all of it */
    uint32_t kind;
    int32_t thread;
    uint32_t name_size;
    uint32_t other_size;
    uint32_t data_size;
    uint64_t begun_ns;
    uint64_t ended_ns;
    uint64_t inode;
    int64_t a;
    int64_t b;
    int64_t mtime_ns;
};

struct mapping {
    char *address;
    char *copy;
    size_t size;
    uint64_t inode;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char folder[PATH_MAX];
static size_t folder_size;
static int log_fd = -1;
static dev_t device;
static uint64_t files[FILES_MAX]; /* inode numbers of the folder's files; a hash table, 0 = free, 1 = was used */
static struct mapping mappings[MAPPINGS_MAX];
static size_t mapping_count;
static volatile sig_atomic_t is_dying;
static long calls_left; /* until death; 0 = no end */

static uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* ---- which files are meant */

static void add_file(uint64_t inode) {
    size_t at = inode % FILES_MAX;
    while (files[at] > 1 && files[at] != inode)
        at = (at + 1) % FILES_MAX;
    files[at] = inode;
}

static int has_file(uint64_t inode) {
    size_t at = inode % FILES_MAX;
    while (files[at] && files[at] != inode)
        at = (at + 1) % FILES_MAX;
    return files[at] != 0;
}

static void forget_file(uint64_t inode) {
    size_t at = inode % FILES_MAX;
    while (files[at] && files[at] != inode)
        at = (at + 1) % FILES_MAX;
    if (files[at])
        files[at] = 1;
}

static int is_on(void) {
    return folder_size != 0;
}

/* The status of a descriptor of a file of the folder, or of the folder; 0 where it is something else. */
static int status_of(int fd, struct stat *status) {
    int before = errno, is_ours;
    is_ours = is_on() && fd >= 0 && fstat(fd, status) == 0 && (S_ISREG(status->st_mode) || S_ISDIR(status->st_mode)) &&
              status->st_dev == device && has_file(status->st_ino);
    errno = before;
    return is_ours;
}

/* The name within the folder ("" for the folder itself), or NULL; a name with a slash is in a folder of it. */
static const char *name_in(int directory, const char *path, char room[PATH_MAX * 2]) {
    int before = errno;
    char link[64];
    ssize_t size = 0;
    if (!is_on() || path == NULL)
        return NULL;
    if (path[0] == '/') {
        snprintf(room, PATH_MAX * 2, "%s", path);
    } else {
        snprintf(link, sizeof link, directory == AT_FDCWD ? "/proc/self/cwd" : "/proc/self/fd/%d", directory);
        size = readlink(link, room, PATH_MAX);
        errno = before;
        if (size < 0)
            return NULL;
        snprintf(room + size, PATH_MAX, "/%s", path);
    }
    if (strncmp(room, folder, folder_size) != 0)
        return NULL;
    if (room[folder_size] == 0)
        return room + folder_size;
    if (room[folder_size] != '/')
        return NULL;
    char *slash = strchr(room + folder_size + 1, '/');
    return slash != NULL && strchr(slash + 1, '/') != NULL ? NULL : room + folder_size + 1;
}

/* ---- writing down */

static void append(enum kind kind, uint64_t begun_ns, uint64_t inode, int64_t a, int64_t b, int64_t mtime_ns,
                   const char *name, const char *other, const void *data, size_t size) {
    struct record record = {.kind = kind, .thread = (int32_t)syscall(SYS_gettid), .begun_ns = begun_ns,
                            .ended_ns = now_ns(), .inode = inode, .a = a, .b = b, .mtime_ns = mtime_ns};
    struct iovec parts[4];
    record.name_size = name ? (uint32_t)strlen(name) : 0;
    record.other_size = other ? (uint32_t)strlen(other) : 0;
    record.data_size = (uint32_t)size;
    record.size = (uint32_t)(sizeof record + record.name_size + record.other_size + size);
    parts[0] = (struct iovec){&record, sizeof record};
    parts[1] = (struct iovec){(void *)name, record.name_size};
    parts[2] = (struct iovec){(void *)other, record.other_size};
    parts[3] = (struct iovec){(void *)data, size};
    if (log_fd >= 0 && syscall(SYS_writev, log_fd, parts, 4) != (long)record.size)
        abort();
}

static void check_mappings(void) {
    size_t i;
    for (i = 0; i < mapping_count; i++) {
        struct mapping *m = &mappings[i];
        if (memcmp(m->copy, m->address, m->size) != 0) {
            memcpy(m->copy, m->address, m->size);
            append(STORED, now_ns(), m->inode, 0, 0, 0, NULL, NULL, m->copy, m->size);
        }
    }
}

static void die(void) {
    kill(getpid(), SIGKILL);
}

static uint64_t enter(void) {
    pthread_mutex_lock(&lock);
    check_mappings();
    return now_ns();
}

/* Before a call that is going to change something. */
static uint64_t enter_change(void) {
    uint64_t begun_ns = enter();
    if (calls_left && --calls_left == 0)
        die();
    return begun_ns;
}

static void leave(void) {
    if (is_dying)
        die();
    pthread_mutex_unlock(&lock);
}

/* A kill -9 that leaves no call out of the log: SIGPWR, which waits for the end of the one that is running. */
static void on_power(int signal_number) {
    (void)signal_number;
    is_dying = 1;
    if (pthread_mutex_trylock(&lock) == 0)
        die();
}

/* One more call is done; errno stays what it was. */
static void note(enum kind kind, uint64_t begun_ns, const struct stat *status, int64_t a, int64_t b, const char *name,
                 const char *other, const void *data, size_t size) {
    int before = errno;
    int64_t mtime_ns = status ? (int64_t)status->st_mtim.tv_sec * 1000000000 + status->st_mtim.tv_nsec : 0;
    append(kind, begun_ns, status ? status->st_ino : 0, a, b, mtime_ns, name, other, data, size);
    check_mappings();
    errno = before;
}

/* ---- the beginning */

void nsq_calls_watch(const char *path, const char *log_path) {
    struct stat status;
    if (realpath(path, folder) == NULL || stat(folder, &status))
        abort();
    folder_size = strlen(folder);
    device = status.st_dev;
    memset(files, 0, sizeof files);
    add_file(status.st_ino);
    if (log_path) {
        int fd = (int)syscall(SYS_openat, AT_FDCWD, log_path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
        log_fd = fcntl(fd, F_DUPFD_CLOEXEC, LOG_FD_MIN);
        syscall(SYS_close, fd);
        if (log_fd < 0)
            abort();
    }
}

void nsq_calls_die_at(long count) {
    calls_left = count;
}

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("NSQ_CALLS_FOLDER");
    if (path) {
        nsq_calls_watch(path, getenv("NSQ_CALLS_LOG"));
        signal(SIGPWR, on_power);
    }
}

/* ---- opening */

static int open_at(int directory, const char *path, int flags, mode_t mode) {
    char room[PATH_MAX * 2];
    struct stat before, after;
    const char *name = name_in(directory, path, room);
    int fd, is_new, error;
    if (name == NULL) {
        fd = (int)syscall(SYS_openat, directory, path, flags, mode);
        error = errno;
        /* A number that was a file of the folder may be another file's by now. */
        if (is_on() && fd >= 0 && (flags & O_CREAT) && fstat(fd, &after) == 0 && has_file(after.st_ino)) {
            char place[64], target[PATH_MAX * 2];
            ssize_t size;
            snprintf(place, sizeof place, "/proc/self/fd/%d", fd);
            size = readlink(place, target, sizeof target - 1);
            if (size > 0 && (target[size] = 0, name_in(AT_FDCWD, target, room) == NULL))
                forget_file(after.st_ino);
        }
        errno = error;
        return fd;
    }
    is_new = (flags & O_CREAT) && fstatat(directory, path, &before, 0) != 0;
    uint64_t begun_ns = is_new || (flags & O_TRUNC) ? enter_change() : enter();
    fd = (int)syscall(SYS_openat, directory, path, flags, mode);
    error = errno;
    if (fd >= 0 && fstat(fd, &after) == 0) {
        add_file(after.st_ino);
        errno = error;
        if (is_new || (flags & O_TRUNC) || (flags & O_ACCMODE) != O_RDONLY)
            note(OPENED, begun_ns, &after, flags, is_new, name, NULL, NULL, 0);
    }
    leave();
    errno = error;
    return fd;
}

#define OPEN_MODE(flags)                                                                                             \
    mode_t mode = 0;                                                                                                 \
    if ((flags) & (O_CREAT | O_TMPFILE)) {                                                                           \
        va_list rest;                                                                                                \
        va_start(rest, flags);                                                                                       \
        mode = va_arg(rest, mode_t);                                                                                 \
        va_end(rest);                                                                                                \
    }

int open(const char *path, int flags, ...) {
    OPEN_MODE(flags)
    return open_at(AT_FDCWD, path, flags, mode);
}

int open64(const char *path, int flags, ...) {
    OPEN_MODE(flags)
    return open_at(AT_FDCWD, path, flags | O_LARGEFILE, mode);
}

int openat(int directory, const char *path, int flags, ...) {
    OPEN_MODE(flags)
    return open_at(directory, path, flags, mode);
}

int openat64(int directory, const char *path, int flags, ...) {
    OPEN_MODE(flags)
    return open_at(directory, path, flags | O_LARGEFILE, mode);
}

int creat(const char *path, mode_t mode) {
    return open_at(AT_FDCWD, path, O_WRONLY | O_CREAT | O_TRUNC, mode);
}

int __open_2(const char *path, int flags) {
    return open_at(AT_FDCWD, path, flags, 0);
}

int __open64_2(const char *path, int flags) {
    return open_at(AT_FDCWD, path, flags | O_LARGEFILE, 0);
}

/* ---- data */

static void note_write(uint64_t begun_ns, int fd, const void *data, ssize_t done, int64_t offset) {
    struct stat status;
    if (done > 0 && fstat(fd, &status) == 0)
        note(WRITTEN, begun_ns, &status, offset, 0, NULL, NULL, data, (size_t)done);
}

static int is_sync_write(int fd) {
    int flags = fcntl(fd, F_GETFL);
    return flags >= 0 && (flags & O_DSYNC);
}

ssize_t write(int fd, const void *data, size_t size) {
    struct stat status;
    if (!status_of(fd, &status))
        return syscall(SYS_write, fd, data, size);
    if (is_sync_write(fd))
        abort(); /* not understood without an offset */
    uint64_t begun_ns = enter_change();
    ssize_t done = syscall(SYS_write, fd, data, size);
    int error = errno;
    note_write(begun_ns, fd, data, done, done > 0 ? lseek(fd, 0, SEEK_CUR) - done : 0);
    leave();
    errno = error;
    return done;
}

/* Others go on meanwhile. One that fails, or is short, is not understood. */
static ssize_t pwrite_synced(int fd, const void *data, size_t size, off64_t offset, struct stat *status) {
    uint64_t begun_ns = enter_change();
    note(SYNC_WRITE_BEGAN, begun_ns, status, offset, 0, NULL, NULL, data, size);
    leave();
    ssize_t done = syscall(SYS_pwrite64, fd, data, size, offset);
    if (done != (ssize_t)size)
        abort();
    pthread_mutex_lock(&lock);
    check_mappings();
    fstat(fd, status);
    note(SYNC_WRITE_ENDED, begun_ns, status, offset, 0, NULL, NULL, NULL, 0);
    leave();
    return done;
}

ssize_t pwrite64(int fd, const void *data, size_t size, off64_t offset) {
    struct stat status;
    if (!status_of(fd, &status))
        return syscall(SYS_pwrite64, fd, data, size, offset);
    if (is_sync_write(fd))
        return pwrite_synced(fd, data, size, offset, &status);
    uint64_t begun_ns = enter_change();
    ssize_t done = syscall(SYS_pwrite64, fd, data, size, offset);
    int error = errno;
    note_write(begun_ns, fd, data, done, offset);
    leave();
    errno = error;
    return done;
}

ssize_t pwrite(int fd, const void *data, size_t size, off_t offset) {
    return pwrite64(fd, data, size, offset);
}

/* As one call with one buffer, which is what a reader of the log understands. */
static char *gather(const struct iovec *parts, int count, size_t *size) {
    char *all;
    size_t at = 0;
    int i;
    for (i = 0, *size = 0; i < count; i++)
        *size += parts[i].iov_len;
    all = malloc(*size + 1);
    if (all == NULL)
        abort();
    for (i = 0; i < count; i++) {
        memcpy(all + at, parts[i].iov_base, parts[i].iov_len);
        at += parts[i].iov_len;
    }
    return all;
}

ssize_t writev(int fd, const struct iovec *parts, int count) {
    struct stat status;
    size_t size;
    if (!status_of(fd, &status))
        return syscall(SYS_writev, fd, parts, count);
    char *all = gather(parts, count, &size);
    ssize_t done = write(fd, all, size);
    free(all);
    return done;
}

ssize_t pwritev64(int fd, const struct iovec *parts, int count, off64_t offset) {
    struct stat status;
    size_t size;
    if (!status_of(fd, &status))
        return syscall(SYS_pwritev, fd, parts, count, offset, 0);
    char *all = gather(parts, count, &size);
    ssize_t done = pwrite64(fd, all, size, offset);
    free(all);
    return done;
}

ssize_t pwritev(int fd, const struct iovec *parts, int count, off_t offset) {
    return pwritev64(fd, parts, count, offset);
}

int ftruncate64(int fd, off64_t size) {
    struct stat status;
    if (!status_of(fd, &status))
        return (int)syscall(SYS_ftruncate, fd, size);
    uint64_t begun_ns = enter_change();
    int failed = (int)syscall(SYS_ftruncate, fd, size);
    if (!failed && fstat(fd, &status) == 0)
        note(CUT, begun_ns, &status, size, 0, NULL, NULL, NULL, 0);
    leave();
    return failed;
}

int ftruncate(int fd, off_t size) {
    return ftruncate64(fd, size);
}

int truncate64(const char *path, off64_t size) {
    char room[PATH_MAX * 2];
    struct stat status;
    if (name_in(AT_FDCWD, path, room) == NULL)
        return (int)syscall(SYS_truncate, path, size);
    uint64_t begun_ns = enter_change();
    int failed = (int)syscall(SYS_truncate, path, size);
    if (!failed && stat(path, &status) == 0) {
        add_file(status.st_ino);
        note(CUT, begun_ns, &status, size, 0, NULL, NULL, NULL, 0);
    }
    leave();
    return failed;
}

int truncate(const char *path, off_t size) {
    return truncate64(path, size);
}

int fallocate64(int fd, int mode, off64_t offset, off64_t size) {
    struct stat status;
    if (!status_of(fd, &status))
        return (int)syscall(SYS_fallocate, fd, mode, offset, size);
    if (mode & ~FALLOC_FL_KEEP_SIZE)
        abort(); /* punching holes is not understood */
    uint64_t begun_ns = enter_change();
    int failed = (int)syscall(SYS_fallocate, fd, mode, offset, size);
    if (!failed && !mode && fstat(fd, &status) == 0)
        note(ALLOCATED, begun_ns, &status, offset, size, NULL, NULL, NULL, 0);
    leave();
    return failed;
}

int fallocate(int fd, int mode, off_t offset, off_t size) {
    return fallocate64(fd, mode, offset, size);
}

int posix_fallocate64(int fd, off64_t offset, off64_t size) {
    int before = errno, failed = fallocate64(fd, 0, offset, size) ? errno : 0;
    errno = before;
    return failed;
}

int posix_fallocate(int fd, off_t offset, off_t size) {
    return posix_fallocate64(fd, offset, size);
}

/* ---- durability */

static uint64_t begin_sync(const struct stat *status) {
    uint64_t begun_ns = enter_change();
    note(SYNC_BEGAN, begun_ns, status, 0, 0, NULL, NULL, NULL, 0);
    leave();
    return begun_ns;
}

static void end_sync(uint64_t begun_ns, const struct stat *status, int failed) {
    int error = errno;
    pthread_mutex_lock(&lock);
    check_mappings();
    if (!failed)
        note(SYNC_ENDED, begun_ns, status, 0, 0, NULL, NULL, NULL, 0);
    leave();
    errno = error;
}

int fsync(int fd) {
    struct stat status;
    if (!status_of(fd, &status))
        return (int)syscall(SYS_fsync, fd);
    uint64_t begun_ns = begin_sync(&status);
    int failed = (int)syscall(SYS_fsync, fd);
    end_sync(begun_ns, &status, failed);
    return failed;
}

int fdatasync(int fd) {
    struct stat status;
    if (!status_of(fd, &status))
        return (int)syscall(SYS_fdatasync, fd);
    uint64_t begun_ns = begin_sync(&status);
    int failed = (int)syscall(SYS_fdatasync, fd);
    end_sync(begun_ns, &status, failed);
    return failed;
}

int syncfs(int fd) {
    uint64_t begun_ns = begin_sync(NULL);
    int failed = (int)syscall(SYS_syncfs, fd);
    end_sync(begun_ns, NULL, failed);
    return failed;
}

int msync(void *address, size_t size, int flags) {
    struct stat status = {0};
    size_t i;
    for (i = 0; i < mapping_count; i++)
        if ((char *)address >= mappings[i].address && (char *)address < mappings[i].address + mappings[i].size)
            status.st_ino = mappings[i].inode;
    if (status.st_ino == 0 || !(flags & MS_SYNC))
        return (int)syscall(SYS_msync, address, size, flags);
    uint64_t begun_ns = begin_sync(&status);
    int failed = (int)syscall(SYS_msync, address, size, flags);
    end_sync(begun_ns, &status, failed);
    return failed;
}

/* ---- names */

int renameat2(int directory, const char *path, int other_directory, const char *other_path, unsigned flags) {
    char room[PATH_MAX * 2], other_room[PATH_MAX * 2];
    const char *name = name_in(directory, path, room);
    const char *other = name_in(other_directory, other_path, other_room);
    if (name == NULL && other == NULL)
        return (int)syscall(SYS_renameat2, directory, path, other_directory, other_path, flags);
    uint64_t begun_ns = enter_change();
    int failed = (int)syscall(SYS_renameat2, directory, path, other_directory, other_path, flags);
    if (!failed)
        note(RENAMED, begun_ns, NULL, 0, 0, name, other, NULL, 0);
    leave();
    return failed;
}

int renameat(int directory, const char *path, int other_directory, const char *other_path) {
    return renameat2(directory, path, other_directory, other_path, 0);
}

int rename(const char *path, const char *other_path) {
    return renameat2(AT_FDCWD, path, AT_FDCWD, other_path, 0);
}

int unlinkat(int directory, const char *path, int flags) {
    char room[PATH_MAX * 2];
    const char *name = name_in(directory, path, room);
    if (name == NULL)
        return (int)syscall(SYS_unlinkat, directory, path, flags);
    uint64_t begun_ns = enter_change();
    int failed = (int)syscall(SYS_unlinkat, directory, path, flags);
    if (!failed)
        note(flags & AT_REMOVEDIR ? FOLDER_REMOVED : UNLINKED, begun_ns, NULL, 0, 0, name, NULL, NULL, 0);
    leave();
    return failed;
}

int mkdirat(int directory, const char *path, mode_t mode) {
    char room[PATH_MAX * 2];
    struct stat status;
    const char *name = name_in(directory, path, room);
    if (name == NULL)
        return (int)syscall(SYS_mkdirat, directory, path, mode);
    uint64_t begun_ns = enter_change();
    int failed = (int)syscall(SYS_mkdirat, directory, path, mode);
    if (!failed && fstatat(directory, path, &status, 0) == 0) {
        add_file(status.st_ino);
        note(FOLDER_MADE, begun_ns, &status, 0, 0, name, NULL, NULL, 0);
    }
    leave();
    return failed;
}

int mkdir(const char *path, mode_t mode) {
    return mkdirat(AT_FDCWD, path, mode);
}

int rmdir(const char *path) {
    return unlinkat(AT_FDCWD, path, AT_REMOVEDIR);
}

int unlink(const char *path) {
    return unlinkat(AT_FDCWD, path, 0);
}

int linkat(int directory, const char *path, int other_directory, const char *other_path, int flags) {
    char room[PATH_MAX * 2], other_room[PATH_MAX * 2];
    const char *name = name_in(directory, path, room);
    const char *other = name_in(other_directory, other_path, other_room);
    if (other == NULL)
        return (int)syscall(SYS_linkat, directory, path, other_directory, other_path, flags);
    uint64_t begun_ns = enter_change();
    int failed = (int)syscall(SYS_linkat, directory, path, other_directory, other_path, flags);
    if (!failed)
        note(LINKED, begun_ns, NULL, 0, 0, name, other, NULL, 0);
    leave();
    return failed;
}

int link(const char *path, const char *other_path) {
    return linkat(AT_FDCWD, path, AT_FDCWD, other_path, 0);
}

/* ---- shared mappings */

void *mmap64(void *address, size_t size, int protection, int flags, int fd, off64_t offset) {
    struct stat status;
    void *mapped = (void *)syscall(SYS_mmap, address, size, protection, flags, fd, offset);
    if (mapped == MAP_FAILED || !is_on() || fd < 0 || (flags & MAP_TYPE) == MAP_PRIVATE || !(protection & PROT_WRITE) ||
        !status_of(fd, &status))
        return mapped;
    if (offset != 0 || mapping_count == MAPPINGS_MAX)
        abort(); /* not understood */
    pthread_mutex_lock(&lock);
    struct mapping *m = &mappings[mapping_count++];
    *m = (struct mapping){mapped, malloc(size), size, status.st_ino};
    memcpy(m->copy, mapped, size);
    leave();
    return mapped;
}

void *mmap(void *address, size_t size, int protection, int flags, int fd, off_t offset) {
    return mmap64(address, size, protection, flags, fd, offset);
}

int munmap(void *address, size_t size) {
    size_t i;
    int failed;
    if (!is_on())
        return (int)syscall(SYS_munmap, address, size);
    pthread_mutex_lock(&lock);
    for (i = 0; i < mapping_count && mappings[i].address != address; i++) {
    }
    if (i < mapping_count) {
        check_mappings();
        free(mappings[i].copy);
        mappings[i] = mappings[--mapping_count];
    }
    failed = (int)syscall(SYS_munmap, address, size);
    leave();
    return failed;
}
