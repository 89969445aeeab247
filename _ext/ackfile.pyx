"""Which records of one queue were finished: a bitmap in a shared mapping, so that plain stores survive a kill -9.

    <Q>.diskqueue.acks.dat      (Go ignores it)
    header, one sector of 512 bytes │ ring of bits, bit i of record i mod capacity, for the records [cursor, written)

A place (cursor, written) has two slots: the one not in use is filled, then a single byte switches over, so a kill
between two stores leaves a whole one. Growing writes a new file and renames it over the old one. Bits outside [cursor,
written) mean nothing; they are cleared before `written` passes them.

What a kill cannot do, a power failure can: pages of one mapping reach the disk in any order. So the boot is noted, and
after a reboot without a clean stop only the cursor counts (one sector is written whole); records behind it come again.
"""

from libc.errno cimport errno
from libc.stdint cimport int64_t, uint64_t
from libc.string cimport memcpy, memset, strncmp
from posix.unistd cimport close, fsync

import logging
import os

cdef extern from "sys/mman.h" nogil:
    enum:
        MAP_SHARED
        MAP_PRIVATE
        MAP_ANONYMOUS
        PROT_READ
        PROT_WRITE
    void *mmap(void *address, size_t size, int protection, int flags, int fd, int64_t offset)
    int munmap(void *address, size_t size)

cdef extern from *:
    """
    /* The compiler must not move a store across; the processor does not matter to the page cache. */
    #define nsq_barrier() __asm__ __volatile__("" ::: "memory")
    """
    void barrier "nsq_barrier"() nogil
    int popcount "__builtin_popcountll"(uint64_t word) nogil

cdef enum:
    HEADER_SIZE = 512
    # 2 KiB of bits: small, since every queue that ever overflowed has one.
    CAPACITY_MIN = 16384

cdef uint64_t PLACE_MAX = <uint64_t>1 << 62
cdef const char *MAGIC = b"nsqacks1"

log = logging.getLogger("nsqd")


cdef bytes read_boot_id():
    try:
        with open("/proc/sys/kernel/random/boot_id", "rb") as file:
            return file.read(36)
    except OSError:
        return b"?"


cdef bytes boot_id = read_boot_id()


cdef bint sane(Place place) noexcept:
    """Numbers that can be counted on from."""
    return (1 <= place.index < PLACE_MAX and 0 <= place.file < <int64_t>PLACE_MAX
            and 0 <= place.position < <int64_t>PLACE_MAX)


cdef class AckFile:
    """AckFile(path): a fresh one. AckFile.load(path): the one on disk, or None where there is none that makes sense."""

    def __cinit__(self, str path, bint fresh=True):
        self.path = path
        self.header = NULL
        self.fd = -1
        self.trusted = False
        if fresh:
            self.replace(CAPACITY_MIN, False)

    def __dealloc__(self):
        self.unmap()

    @staticmethod
    def load(str path):
        cdef AckFile acks = AckFile(path, False)
        try:
            acks.fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        except OSError:
            return None
        size = os.fstat(acks.fd).st_size
        if size < HEADER_SIZE:
            return None
        acks.attach(acks.fd, size)
        if not acks.sound(size):
            return None
        acks.trusted = acks.header.clean or strncmp(acks.header.boot_id, boot_id, sizeof(acks.header.boot_id)) == 0
        acks.claim()
        return acks

    cdef bint sound(self, size_t size) noexcept:
        cdef Header *h = self.header
        if strncmp(h.magic, MAGIC, 8) != 0 or h.capacity < 64 or h.capacity & (h.capacity - 1):
            return False
        if size != HEADER_SIZE + h.capacity // 8 or h.cursor_slot > 1 or h.written_slot > 1:
            return False
        cdef Place cursor = self.cursor(), written = self.written()
        if not sane(cursor) or not sane(written):
            return False
        if cursor.index == written.index and cursor.file > written.file:
            # Killed while the queue was emptied.
            return cursor.file == written.file + 1 and cursor.position == 0
        return (cursor.index <= written.index and written.index - cursor.index <= h.capacity
                and (cursor.file < written.file
                     or cursor.file == written.file and cursor.position <= written.position))

    cdef void claim(self) noexcept:
        memset(self.header.boot_id, 0, sizeof(self.header.boot_id))
        memcpy(self.header.boot_id, <const char *>boot_id, len(boot_id))
        self.header.clean = 0

    cdef Place cursor(self) noexcept:
        return self.header.cursor[self.header.cursor_slot]

    cdef Place written(self) noexcept:
        return self.header.written[self.header.written_slot]

    cdef void set_cursor(self, uint64_t index, int64_t file, int64_t position) noexcept:
        cdef unsigned char slot = self.header.cursor_slot ^ 1
        self.header.cursor[slot].index = index
        self.header.cursor[slot].file = file
        self.header.cursor[slot].position = position
        barrier()
        self.header.cursor_slot = slot

    cdef void set_written(self, uint64_t index, int64_t file, int64_t position) noexcept:
        cdef unsigned char slot = self.header.written_slot ^ 1
        self.header.written[slot].index = index
        self.header.written[slot].file = file
        self.header.written[slot].position = position
        barrier()
        self.header.written_slot = slot

    cdef bint test(self, uint64_t index) noexcept:
        return self.words[(index & self.mask) >> 6] >> (index & 63) & 1

    cdef void mark(self, uint64_t index) noexcept:
        self.words[(index & self.mask) >> 6] |= <uint64_t>1 << (index & 63)

    cdef void clear(self, uint64_t first, uint64_t end) noexcept:
        cdef uint64_t index = first
        while index < end:
            if index & 63 == 0 and end - index >= 64:
                self.words[(index & self.mask) >> 6] = 0
                index += 64
            else:
                self.words[(index & self.mask) >> 6] &= ~(<uint64_t>1 << (index & 63))
                index += 1
        barrier()

    cdef void begin_move(self, uint64_t index, uint64_t replacement) noexcept:
        """The record is about to be written again; a kill before it is marked must not leave two of it."""
        self.header.moving_to = 0
        barrier()
        self.header.moving_from = index
        barrier()
        self.header.moving_to = replacement
        barrier()

    cdef void end_move(self) noexcept:
        self.header.moving_to = 0
        barrier()

    cdef void resume_move(self) noexcept:
        """After a kill, with `written` behind the last record found: was the move done?"""
        cdef uint64_t moved = self.header.moving_from
        if (self.header.moving_to and self.header.moving_to < self.written().index
                and self.cursor().index <= moved < self.written().index):
            self.mark(moved)
        self.end_move()

    cdef uint64_t count(self, uint64_t first, uint64_t end) noexcept:
        """How many of [first, end) are marked."""
        cdef uint64_t index = first, total = 0
        while index < end:
            if index & 63 == 0 and end - index >= 64:
                total += popcount(self.words[(index & self.mask) >> 6])
                index += 64
            else:
                total += self.test(index)
                index += 1
        return total

    cdef int reserve(self, uint64_t end) except -1:
        """Room for every index below end; OSError where the disk has none."""
        cdef uint64_t capacity = self.header.capacity
        cdef uint64_t first = self.cursor().index
        if end - first <= capacity:
            return 0
        while end - first > capacity:
            capacity *= 2
        self.replace(capacity, True)
        return 0

    cdef int replace(self, uint64_t capacity, bint must) except -1:
        """A new, larger file under the same name with the same content. Where the disk has no room for it and none was
        there before, memory has to do: a broker must be able to start on a full disk."""
        cdef size_t size = HEADER_SIZE + capacity // 8
        cdef AckFile grown = AckFile(self.path, False)
        name = self.path + ".tmp"
        try:
            fd = os.open(name, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            try:
                # A store into a hole of a full disk would be a SIGBUS.
                os.posix_fallocate(fd, 0, size)
                grown.attach(fd, size)
                grown.header.capacity = capacity
                grown.copy(self)
                os.rename(name, self.path)
            except BaseException:
                grown.unmap_only()
                os.close(fd)
                os.unlink(name)
                raise
            grown.fd = fd
        except OSError as error:
            if must and self.fd >= 0:
                raise
            log.error("DISKQUEUE(%s) acknowledgements are kept in memory only - %s", os.path.basename(self.path), error)
            grown.attach(-1, size)
            grown.header.capacity = capacity
            grown.copy(self)
        self.swap(grown)
        return 0

    cdef int attach(self, int fd, size_t size) except -1:
        cdef int flags = MAP_SHARED if fd >= 0 else MAP_PRIVATE | MAP_ANONYMOUS
        cdef void *address = mmap(NULL, size, PROT_READ | PROT_WRITE, flags, fd, 0)
        if address == <void *>-1:
            raise OSError(errno, os.strerror(errno))
        self.header = <Header *>address
        self.words = <uint64_t *>(<char *>address + HEADER_SIZE)
        self.size = size
        self.mask = (size - HEADER_SIZE) * 8 - 1
        return 0

    cdef void copy(self, AckFile old) noexcept:
        cdef uint64_t index, end, capacity = self.header.capacity
        if old.header is NULL:
            memcpy(self.header.magic, MAGIC, 8)
            self.claim()
            self.set_cursor(1, 0, 0)
            self.set_written(1, 0, 0)
            return
        memcpy(self.header, old.header, sizeof(Header))
        self.header.capacity = capacity
        end = old.written().index
        for index in range(old.cursor().index, end):
            if old.test(index):
                self.mark(index)

    cdef void swap(self, AckFile other) noexcept:
        self.header, other.header = other.header, self.header
        self.words, other.words = other.words, self.words
        self.mask, other.mask = other.mask, self.mask
        self.size, other.size = other.size, self.size
        self.fd, other.fd = other.fd, self.fd

    cdef void unmap_only(self) noexcept:
        if self.header is not NULL:
            munmap(self.header, self.size)
            self.header = NULL

    cdef void unmap(self) noexcept:
        self.unmap_only()
        if self.fd >= 0:
            close(self.fd)
            self.fd = -1

    cdef void announce(self, uint64_t inode, int64_t mtime_ns) noexcept:
        """That metadata file is about to be renamed into place; until settle(), the old one and it are both ours."""
        self.header.meta_next.inode = inode
        self.header.meta_next.mtime_ns = mtime_ns
        barrier()

    cdef void settle(self) noexcept:
        self.header.meta = self.header.meta_next

    cdef bint knows(self, uint64_t inode, int64_t mtime_ns) noexcept:
        """Nobody has written the metadata since we did."""
        cdef Header *h = self.header
        return (h.meta.inode == inode and h.meta.mtime_ns == mtime_ns
                or h.meta_next.inode == inode and h.meta_next.mtime_ns == mtime_ns)

    cdef int finish(self) except -1:
        """The clean stop: from now on a reboot takes nothing away."""
        self.header.clean = 1
        if self.fd >= 0:
            fsync(self.fd)
        self.unmap()
        return 0

    cdef int remove(self) except -1:
        self.unmap()
        try:
            os.unlink(self.path)
        except FileNotFoundError:
            pass
        return 0

    # For tests: the same by Python's names.

    def state(self):
        cursor, written = self.cursor(), self.written()
        return ((cursor.index, cursor.file, cursor.position), (written.index, written.file, written.position))

    @property
    def capacity(self):
        return self.header.capacity

    def put_cursor(self, uint64_t index, int64_t file, int64_t position):
        self.set_cursor(index, file, position)

    def put_written(self, uint64_t index, int64_t file, int64_t position):
        self.reserve(index)
        self.clear(self.written().index, index)
        self.set_written(index, file, position)

    def finish_record(self, uint64_t index):
        self.mark(index)

    def finished(self):
        return [i for i in range(self.cursor().index, self.written().index) if self.test(i)]

    def finished_count(self):
        return self.count(self.cursor().index, self.written().index)

    def close(self):
        self.finish()
