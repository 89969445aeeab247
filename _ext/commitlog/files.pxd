"""The calls by which the commit log reaches a disk. The real ones are the default; tests derive others from Files."""

from libc.stdint cimport int64_t


cdef extern from "commitlog/files.h" nogil:
    const int O_DIRECT
    const int O_NOFOLLOW

    ctypedef struct FileTable "nsq_files":
        int (*open)(FileTable *files, const char *path, int flags, int mode) noexcept
        int (*close)(FileTable *files, int fd) noexcept
        ssize_t (*pread)(FileTable *files, int fd, void *data, size_t size, int64_t at) noexcept
        ssize_t (*pwrite)(FileTable *files, int fd, const void *data, size_t size, int64_t at) noexcept
        int (*fdatasync)(FileTable *files, int fd) noexcept
        int (*fsync)(FileTable *files, int fd) noexcept
        int (*mkdir)(FileTable *files, const char *path) noexcept
        int (*rename)(FileTable *files, const char *source, const char *target) noexcept
        int (*unlink)(FileTable *files, const char *path) noexcept
        int (*rmdir)(FileTable *files, const char *path) noexcept
        int64_t (*size)(FileTable *files, int fd) noexcept


cdef class Files:
    cdef FileTable *table       # a body that derives from this replaces it in its __cinit__ or __init__
