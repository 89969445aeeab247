"""The ack file in memory: mapped while it changes, else a copy.

Linux allows a process 65,530 mappings (vm.max_map_count), and each takes a page of memory. So a loaded file is a copy
until its first store, and when half of what Linux allows is mapped, those mapped first become copies again. A copy has
no bits of its own if none is set.
"""

from libc.errno cimport ENOENT, errno
from libc.stdint cimport uint64_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcpy
from posix.fcntl cimport O_CLOEXEC, O_RDWR
from posix.fcntl cimport open as open_path
from posix.stat cimport fstat, stat, struct_stat
from posix.unistd cimport close, pread

import logging
import os

from nsqfast._ext.storage.diskqueue.syncer cimport drop_file

cdef extern from "Python.h":
    void Py_FatalError(const char *message) noexcept

cdef extern from "storage/diskqueue/mapping.h" nogil:
    Mapping *map_file "nsq_map"(int fd, size_t size, const char *path)
    void unmap_file "nsq_unmap"(Mapping *mapping)
    void enlist_mapping "nsq_enlist"(Mapping *mapping)
    void strike_mapping "nsq_strike"(Mapping *mapping)
    Mapping *oldest_mapping "nsq_oldest_mapping"
    size_t mapping_count "nsq_mapping_count"

cdef enum:
    # Files with more words stay mapped.
    COPY_WORDS_MAX = 8192
    COPY_SIZE_MAX = 66048
    # So many become copies at once.
    REST_COUNT = 64
    # Linux's own default.
    MAP_COUNT = 65530

log = logging.getLogger("nsqd")

cdef uint64_t[COPY_WORDS_MAX] no_bits

cdef size_t mapped_max = 0


cdef size_t find_mapped_max() noexcept:
    """Leave the other half to the interpreter, threads, and mappings of libraries."""
    try:
        with open("/proc/sys/vm/max_map_count", "rb") as file:
            return max(int(file.read()) // 2, 2 * REST_COUNT)
    except (OSError, ValueError):
        return MAP_COUNT // 2


cdef void limit_mappings(size_t count) noexcept:
    global mapped_max
    mapped_max = count


cdef size_t count_mappings() noexcept:
    return mapping_count


cdef void unmap_oldest_files() noexcept:
    """Turn some of those mapped first into copies; those that cannot be now are tried again last."""
    global mapped_max
    cdef Mapping *mapping
    if not mapped_max:
        mapped_max = find_mapped_max()
    if mapping_count <= mapped_max:
        return
    for _ in range(min(<size_t>REST_COUNT, mapping_count - 1)):
        mapping = oldest_mapping
        if not (<AckMapping>mapping.owner).unmap_to_copy():
            strike_mapping(mapping)
            enlist_mapping(mapping)


cdef class AckMapping:
    def __cinit__(self, str path, *_):
        self.path = path
        self.header = NULL
        self.mapping = NULL
        self.inode = 0

    def __dealloc__(self):
        self.unmap()

    # From the file, and back to it

    cdef bint read_copy(self, int fd, size_t size) noexcept:
        """Read the content without mapping it; False: it is too long, or not fully readable."""
        cdef struct_stat status
        cdef char *copy
        if size > COPY_SIZE_MAX or fstat(fd, &status):
            return False
        copy = <char *>malloc(size)
        if copy is NULL or pread(fd, copy, size, 0) != <ssize_t>size:
            free(copy)
            return False
        self.header = <Header *>copy
        self.words = <uint64_t *>(copy + HEADER_SIZE)
        self.size = size
        self.mask = (size - HEADER_SIZE) * 8 - 1
        self.inode = status.st_ino
        return True

    cdef void shorten_copy(self) noexcept:
        """Drop the bits if none of them means anything."""
        cdef void *copy
        if self.mapping is NULL and self.words is not no_bits and not self.has_bits():
            self.words = no_bits
            copy = realloc(self.header, HEADER_SIZE)
            if copy is not NULL:
                self.header = <Header *>copy

    cdef int attach(self, int fd, size_t size) except -1:
        """Map the file; use memory alone if fd is -1."""
        cdef struct_stat status
        cdef bytes path = os.fsencode(self.path)
        cdef Mapping *mapping = map_file(fd, size, path)
        if mapping is NULL:
            raise OSError(errno, os.strerror(errno))
        self.inode = status.st_ino if fd >= 0 and fstat(fd, &status) == 0 else 0
        self.take(mapping, size)
        return 0

    cdef void take(self, Mapping *mapping, size_t size) noexcept:
        mapping.owner = <void *>self
        self.mapping = mapping
        self.header = <Header *>mapping.address
        self.words = <uint64_t *>(mapping.address + HEADER_SIZE)
        self.size = size
        self.mask = (size - HEADER_SIZE) * 8 - 1
        unmap_oldest_files()

    cdef void close_file(self) noexcept:
        """Close the descriptor: the mapping needs none once the file has its name."""
        self.mapping.fd = -1

    cdef void unmap(self) noexcept:
        if self.mapping is not NULL:
            unmap_file(self.mapping)
            self.mapping = NULL
        else:
            free(self.header)
        self.header = NULL

    cdef void map_for_change(self) noexcept:
        """Map the file in place of its copy, which is about to change. If that fails, it changes in memory alone."""
        cdef struct_stat found
        cdef Mapping *mapping = NULL
        cdef Header *copy = self.header
        cdef bytes path = os.fsencode(self.path)
        cdef int fd = open_path(path, O_RDWR | O_CLOEXEC)
        if fd >= 0 and (fstat(fd, &found) or found.st_ino != self.inode or <size_t>found.st_size != self.size):
            self.error_errno = ENOENT   # another file has the name
        else:
            if fd >= 0:
                mapping = map_file(fd, self.size, path)
            self.error_errno = errno
        if mapping is NULL:
            log.error("DISKQUEUE(%s) acknowledgements are kept in memory only - %s", os.path.basename(self.path),
                      os.strerror(self.error_errno))
            self.inode = 0
            mapping = map_file(-1, self.size, path)
            if mapping is NULL:
                Py_FatalError("no memory left for acknowledgements")
            memcpy(mapping.address, copy, HEADER_SIZE)
            memcpy(mapping.address + HEADER_SIZE, self.words, self.size - HEADER_SIZE)
        if fd >= 0:
            close(fd)
        free(copy)
        self.take(mapping, self.size)
        self.close_file()

    cdef bint has_bits(self) noexcept:
        """Whether some bits mean something."""
        return True

    cdef bint unmap_to_copy(self) noexcept:
        """Turn it into a copy until the next store; False: it stays mapped."""
        cdef char *copy
        if self.size > COPY_SIZE_MAX or self.mapping.fd >= 0 or not self.is_kept():
            return False
        copy = <char *>malloc(self.size)
        if copy is NULL:
            return False
        memcpy(copy, self.header, self.size)
        if self.mapping.is_lost:    # it was lost during this
            free(copy)
            return False
        self.unmap()
        self.header = <Header *>copy
        self.words = <uint64_t *>(copy + HEADER_SIZE)
        self.shorten_copy()
        return True

    cdef void swap_with(self, AckMapping other) noexcept:
        self.header, other.header = other.header, self.header
        self.words, other.words = other.words, self.words
        self.mask, other.mask = other.mask, self.mask
        self.size, other.size = other.size, self.size
        self.inode, other.inode = other.inode, self.inode
        self.mapping, other.mapping = other.mapping, self.mapping
        if self.mapping is not NULL:
            self.mapping.owner = <void *>self
        if other.mapping is not NULL:
            other.mapping.owner = <void *>other

    # What happened to the file

    cpdef bint is_kept(self) noexcept:
        """Whether what is stored here survives the process."""
        return self.inode != 0 and (self.mapping is NULL or not self.mapping.is_lost)

    cdef bint is_file_changed(self) noexcept:
        """Whether someone else removed the file or changed its size."""
        cdef struct_stat found
        cdef bytes path = os.fsencode(self.path)
        if self.inode == 0:
            return False
        if stat(path, &found):
            return errno == ENOENT
        return found.st_ino != self.inode or <size_t>found.st_size != self.size

    cdef OpenFile *open(self, Syncer syncer) except? NULL:
        """Open it for a sync; the caller drops it. NULL: the file is missing, or another one."""
        cdef struct_stat found
        cdef OpenFile *file
        if not self.is_kept():
            return NULL
        try:
            file = syncer.open_file(os.open(self.path, os.O_RDWR | os.O_CLOEXEC))
        except FileNotFoundError:
            return NULL
        if fstat(file.fd, &found) or found.st_ino != self.inode:
            drop_file(file)
            return NULL
        return file
