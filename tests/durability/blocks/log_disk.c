/* A file that is a disk: every write and every flush that reaches it is logged before it is answered.
 *
 *     log_disk IMAGE LOG FOLDER
 *
 * mounts on FOLDER a file system with the single file "disk", whose bytes are those of IMAGE. A loop device on it turns
 * a block write into write(2), REQ_OP_FLUSH into fsync(2) (a FUA write into both) and a discard or a write of zeros
 * into fallocate(2). One thread answers, one request after the other, so that the order of the log is the order in
 * which the requests were completed: a flush makes durable what stands before it.
 *
 * LOG is a row of entries, in the byte order of the machine: CLOCK_MONOTONIC in ns, offset, size, kind, then the bytes
 * if it is a write.
 */

#define FUSE_USE_VERSION 31
#define _GNU_SOURCE

#include <errno.h>
#include <fcntl.h>
#include <fuse.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum { KIND_WRITE = 1, KIND_FLUSH = 2, KIND_ZERO = 3 };

struct entry {
    uint64_t time_ns;
    uint64_t offset;
    uint32_t size;
    uint32_t kind;
};

static const char DISK[] = "/disk";
static const uint32_t WRITE_SIZE_MAX = 1 << 20;

static int log_fd;
static char *image;
static off_t image_size;

/* What cannot be logged is not done, and the block layer hears of it. */
static int append(uint32_t kind, const char *data, uint32_t size, off_t offset)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    struct entry entry = {now.tv_sec * 1000000000ULL + now.tv_nsec, offset, size, kind};
    struct iovec parts[] = {{&entry, sizeof entry}, {(void *)data, data ? size : 0}};
    ssize_t whole = parts[0].iov_len + parts[1].iov_len;
    return writev(log_fd, parts, 2) == whole ? 0 : -EIO;
}

static int is_inside(off_t offset, off_t size)
{
    return offset >= 0 && size >= 0 && offset <= image_size && size <= image_size - offset;
}

static void *on_init(struct fuse_conn_info *connection, struct fuse_config *config)
{
    /* The page cache of the kernel must keep nothing from us. */
    config->direct_io = 1;
    connection->want &= ~FUSE_CAP_WRITEBACK_CACHE;
    connection->max_write = WRITE_SIZE_MAX;
    puts("ready");
    fflush(stdout);
    return NULL;
}

static int on_getattr(const char *path, struct stat *found, struct fuse_file_info *file)
{
    (void)file;
    memset(found, 0, sizeof *found);
    found->st_nlink = 1;
    if (!strcmp(path, "/")) {
        found->st_mode = S_IFDIR | 0700;
        return 0;
    }
    if (strcmp(path, DISK))
        return -ENOENT;
    found->st_mode = S_IFREG | 0600;
    found->st_size = image_size;
    return 0;
}

static int on_open(const char *path, struct fuse_file_info *file)
{
    (void)file;
    return strcmp(path, DISK) ? -ENOENT : 0;
}

static int on_read(const char *path, char *to, size_t size, off_t offset, struct fuse_file_info *file)
{
    (void)path, (void)file;
    if (!is_inside(offset, size))
        return -EIO;
    memcpy(to, image + offset, size);
    return size;
}

static int on_write(const char *path, const char *from, size_t size, off_t offset, struct fuse_file_info *file)
{
    (void)path, (void)file;
    if (!is_inside(offset, size) || append(KIND_WRITE, from, size, offset))
        return -EIO;
    memcpy(image + offset, from, size);
    return size;
}

static int on_fsync(const char *path, int only_data, struct fuse_file_info *file)
{
    (void)path, (void)only_data, (void)file;
    return append(KIND_FLUSH, NULL, 0, 0);
}

static int on_fallocate(const char *path, int mode, off_t offset, off_t size, struct fuse_file_info *file)
{
    (void)path, (void)file;
    if (!(mode & (FALLOC_FL_PUNCH_HOLE | FALLOC_FL_ZERO_RANGE)))
        return -EOPNOTSUPP;
    if (!is_inside(offset, size) || size > UINT32_MAX || append(KIND_ZERO, NULL, size, offset))
        return -EIO;
    memset(image + offset, 0, size);
    return 0;
}

static const struct fuse_operations OPERATIONS = {
    .init = on_init,
    .getattr = on_getattr,
    .open = on_open,
    .read = on_read,
    .write = on_write,
    .fsync = on_fsync,
    .fallocate = on_fallocate,
};

static int open_image(const char *path)
{
    struct stat found;
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &found))
        return -1;
    image_size = found.st_size;
    image = mmap(NULL, image_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    return image == MAP_FAILED ? -1 : 0;
}

int main(int count, char **words)
{
    if (count != 4) {
        fprintf(stderr, "usage: log_disk IMAGE LOG FOLDER\n");
        return 2;
    }
    /* Ends with the test that started it, however that one ends; Ctrl-C is the test's to handle. */
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    signal(SIGINT, SIG_IGN);
    log_fd = open(words[2], O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0600);
    if (log_fd < 0 || open_image(words[1])) {
        perror("log_disk");
        return 1;
    }
    char *arguments[] = {words[0], "-f", "-s", "-o", "fsname=nsqfast-log-disk", words[3], NULL};
    return fuse_main(6, arguments, &OPERATIONS, NULL);
}
