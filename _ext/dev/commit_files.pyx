"""Each call of the ring on its way to a simulated disk, or to the real one with a note of it.

Both take the interpreter's lock, so the ring's thread may use them, too.
"""

cimport cython
from libc.errno cimport EIO, errno
from libc.stdint cimport int64_t, uintptr_t
from libc.string cimport memcpy

from nsqfast._ext.commitlog.files cimport Files, FileTable

cdef extern from "commitlog/files.h" nogil:
    FileTable *real_files "nsq_real_files"()


cdef extern from *:
    """
    static inline void nsq_set_errno(int number) { errno = number; }
    """
    void set_errno "nsq_set_errno"(int number) nogil

cdef enum:
    ALIGNMENT = 512          # of memory for direct writes


@cython.no_gc_clear      # a ring that the collector found closes its files
cdef class SimulatedFiles(Files):
    """`disk` has a method for each call: tests/durability/commitlog/disk.py."""

    def __init__(self, disk):
        cdef FileTable *table = &self.body.table
        self.disk = disk
        self.errors = []
        self.body.owner = <void *> self
        table.open = simulated_open
        table.close = simulated_close
        table.pread = simulated_pread
        table.pwrite = simulated_pwrite
        table.fdatasync = simulated_fdatasync
        table.fsync = simulated_fsync
        table.mkdir = simulated_mkdir
        table.rename = simulated_rename
        table.unlink = simulated_unlink
        table.rmdir = simulated_rmdir
        table.size = simulated_size
        self.table = table

    cdef object ask(self, str name, tuple arguments):
        """Return what the disk answers; None with errno set where it raises."""
        try:
            return getattr(self.disk, name)(*arguments)
        except OSError as error:
            set_errno(error.errno)
        except BaseException as error:
            self.errors.append(error)
            set_errno(EIO)
        return None


cdef SimulatedFiles simulated(FileTable *table):
    return <SimulatedFiles> (<Body *> table).owner


cdef int64_t simulate(FileTable *table, str name, tuple arguments) noexcept:
    answer = simulated(table).ask(name, arguments)
    return -1 if answer is None else <int64_t> answer


cdef int simulated_open(FileTable *table, const char *path, int flags, int mode) noexcept with gil:
    return <int> simulate(table, "open", (path.decode(), flags, mode))


cdef int simulated_close(FileTable *table, int fd) noexcept with gil:
    return <int> simulate(table, "close", (fd,))


cdef ssize_t simulated_pread(FileTable *table, int fd, void *data, size_t size, int64_t at) noexcept with gil:
    cdef bytes found = simulated(table).ask("pread", (fd, size, at))
    if found is None:
        return -1
    memcpy(data, <const char *> found, len(found))
    return len(found)


cdef ssize_t simulated_pwrite(FileTable *table, int fd, const void *data, size_t size, int64_t at) noexcept with gil:
    cdef bint is_aligned = <uintptr_t> data % ALIGNMENT == 0
    return simulate(table, "pwrite", (fd, (<const char *> data)[:size], at, is_aligned))


cdef int simulated_fdatasync(FileTable *table, int fd) noexcept with gil:
    return <int> simulate(table, "fdatasync", (fd,))


cdef int simulated_fsync(FileTable *table, int fd) noexcept with gil:
    return <int> simulate(table, "fsync", (fd,))


cdef int simulated_mkdir(FileTable *table, const char *path) noexcept with gil:
    return <int> simulate(table, "mkdir", (path.decode(),))


cdef int simulated_rename(FileTable *table, const char *before, const char *after) noexcept with gil:
    return <int> simulate(table, "rename", (before.decode(), after.decode()))


cdef int simulated_unlink(FileTable *table, const char *path) noexcept with gil:
    return <int> simulate(table, "unlink", (path.decode(),))


cdef int simulated_rmdir(FileTable *table, const char *path) noexcept with gil:
    return <int> simulate(table, "rmdir", (path.decode(),))


cdef int64_t simulated_size(FileTable *table, int fd) noexcept with gil:
    return simulate(table, "size", (fd,))


cdef class RecordingFiles(Files):
    """The real calls. `calls` has those that change something, or say which file a descriptor is."""

    def __init__(self):
        cdef FileTable *table = &self.body.table
        self.calls = []
        self.body.owner = <void *> self
        self.body.table = real_files()[0]
        table.open = recorded_open
        table.close = recorded_close
        table.pwrite = recorded_pwrite
        table.fdatasync = recorded_fdatasync
        table.fsync = recorded_fsync
        table.mkdir = recorded_mkdir
        table.rename = recorded_rename
        table.unlink = recorded_unlink
        table.rmdir = recorded_rmdir
        self.table = table


cdef int64_t note(FileTable *table, str name, tuple arguments, int64_t result) noexcept:
    """Return the result, with errno as the call left it."""
    cdef int number = errno
    (<RecordingFiles> (<Body *> table).owner).calls.append((name, arguments, result))
    set_errno(number)
    return result


cdef int recorded_open(FileTable *table, const char *path, int flags, int mode) noexcept with gil:
    cdef int result = real_files().open(real_files(), path, flags, mode)
    return <int> note(table, "open", (path.decode(), flags, mode), result)


cdef int recorded_close(FileTable *table, int fd) noexcept with gil:
    return <int> note(table, "close", (fd,), real_files().close(real_files(), fd))


cdef ssize_t recorded_pwrite(FileTable *table, int fd, const void *data, size_t size, int64_t at) noexcept with gil:
    cdef ssize_t result = real_files().pwrite(real_files(), fd, data, size, at)
    return note(table, "pwrite", (fd, (<const char *> data)[:size], at), result)


cdef int recorded_fdatasync(FileTable *table, int fd) noexcept with gil:
    return <int> note(table, "fdatasync", (fd,), real_files().fdatasync(real_files(), fd))


cdef int recorded_fsync(FileTable *table, int fd) noexcept with gil:
    return <int> note(table, "fsync", (fd,), real_files().fsync(real_files(), fd))


cdef int recorded_mkdir(FileTable *table, const char *path) noexcept with gil:
    return <int> note(table, "mkdir", (path.decode(),), real_files().mkdir(real_files(), path))


cdef int recorded_rename(FileTable *table, const char *before, const char *after) noexcept with gil:
    cdef int result = real_files().rename(real_files(), before, after)
    return <int> note(table, "rename", (before.decode(), after.decode()), result)


cdef int recorded_unlink(FileTable *table, const char *path) noexcept with gil:
    return <int> note(table, "unlink", (path.decode(),), real_files().unlink(real_files(), path))


cdef int recorded_rmdir(FileTable *table, const char *path) noexcept with gil:
    return <int> note(table, "rmdir", (path.decode(),), real_files().rmdir(real_files(), path))
