/* The calls by which the commit log reaches a disk, as a table, so that tests can put a simulated disk in their place.
 * Each returns what the system call does, and sets errno. */
#ifndef NSQFAST_FILES_H
#define NSQFAST_FILES_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* O_DIRECT */
#endif

#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

typedef struct nsq_files nsq_files;
struct nsq_files {
    int (*open)(nsq_files *files, const char *path, int flags, int mode);
    int (*close)(nsq_files *files, int fd);
    ssize_t (*pread)(nsq_files *files, int fd, void *data, size_t size, int64_t at);
    ssize_t (*pwrite)(nsq_files *files, int fd, const void *data, size_t size, int64_t at);
    int (*fdatasync)(nsq_files *files, int fd);
    int (*fsync)(nsq_files *files, int fd); /* of folders */
    int (*mkdir)(nsq_files *files, const char *path);
    int (*rename)(nsq_files *files, const char *from, const char *to);
    int (*unlink)(nsq_files *files, const char *path);
    int (*rmdir)(nsq_files *files, const char *path);
    int64_t (*size)(nsq_files *files, int fd);
};

static int nsq_real_open(nsq_files *files, const char *path, int flags, int mode) {
    return open(path, flags | O_CLOEXEC, mode);
}

static int nsq_real_close(nsq_files *files, int fd) { return close(fd); }

static ssize_t nsq_real_pread(nsq_files *files, int fd, void *data, size_t size, int64_t at) {
    return pread(fd, data, size, (off_t)at);
}

static ssize_t nsq_real_pwrite(nsq_files *files, int fd, const void *data, size_t size, int64_t at) {
    return pwrite(fd, data, size, (off_t)at);
}

static int nsq_real_fdatasync(nsq_files *files, int fd) { return fdatasync(fd); }

static int nsq_real_fsync(nsq_files *files, int fd) { return fsync(fd); }

/* On btrfs a write in place needs no room then, and no commit of the file system's own tree; other file systems do not
 * know the flag. Files made in the folder have it, too. */
static void nsq_write_in_place(const char *path) {
    int flags, fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return;
    if (ioctl(fd, FS_IOC_GETFLAGS, &flags) == 0) {
        flags |= FS_NOCOW_FL;
        ioctl(fd, FS_IOC_SETFLAGS, &flags);
    }
    close(fd);
}

static int nsq_real_mkdir(nsq_files *files, const char *path) {
    if (mkdir(path, 0700) < 0)
        return -1;
    nsq_write_in_place(path);
    return 0;
}

static int nsq_real_rename(nsq_files *files, const char *from, const char *to) { return rename(from, to); }

static int nsq_real_unlink(nsq_files *files, const char *path) { return unlink(path); }

static int nsq_real_rmdir(nsq_files *files, const char *path) { return rmdir(path); }

static int64_t nsq_real_size(nsq_files *files, int fd) {
    struct stat found;
    return fstat(fd, &found) < 0 ? -1 : (int64_t)found.st_size;
}

static inline nsq_files *nsq_real_files(void) {
    static nsq_files real = {
        nsq_real_open,  nsq_real_close, nsq_real_pread,  nsq_real_pwrite, nsq_real_fdatasync, nsq_real_fsync,
        nsq_real_mkdir, nsq_real_rename, nsq_real_unlink, nsq_real_rmdir,  nsq_real_size,
    };
    return &real;
}

#endif
