"""Records which records of a queue were finished: a bitmap in a shared mapping, so that stores survive a kill -9.

    <Q>.diskqueue.acks.dat      (Go ignores it)
    header, one sector of 512 bytes │ ring of bits, bit i of record i mod capacity, for the records [cursor, written)

Each place (cursor, written) has two slots: the unused one is filled, then a single byte switches to it, so a kill
between two stores leaves a valid one. Growing writes a new file and renames it over the old one. Bits outside [cursor,
written) mean nothing; they are cleared before `written` passes them.

A power failure can do more than a kill: pages of one mapping reach the disk in any order. So after a reboot without a
clean stop only the cursor counts (a sector is written as a whole), and records behind it come again.

Every place has a checksum of its own. The bits share one: each set bit adds (by exclusive or) a number that depends on
its index, so a store costs the same however large the file is.
"""

from libc.stdint cimport int64_t, uint64_t
from libc.string cimport memcpy, memset, strncmp

import logging
import os
from contextlib import suppress

from nsqfast._ext.storage.diskqueue.ackmapping cimport HEADER_SIZE, Header, KeptMeta, KeptPlace

cdef extern from "core/check.h" nogil:
    uint64_t mix "nsq_mix"(uint64_t x)
    uint64_t check_numbers "nsq_check"(const uint64_t *numbers, uint64_t count)
    uint64_t check_place "nsq_check_place"(const Place *place)

cdef extern from *:
    """
    /* The compiler must not move a store across; the processor does not matter to the page cache. */
    #define nsq_barrier() __asm__ __volatile__("" ::: "memory")
    """
    void barrier "nsq_barrier"() nogil
    int popcount "__builtin_popcountll"(uint64_t word) nogil
    int lowest_bit "__builtin_ctzll"(uint64_t word) nogil

cdef enum:
    # 2 KiB of bits: small, since every queue that ever overflowed has a file.
    CAPACITY_MIN = 16384

cdef uint64_t PLACE_MAX = <uint64_t>1 << 62
cdef const char *MAGIC = b"nsqacks2"

log = logging.getLogger("nsqd")

cdef bytes boot_id = None


cdef bytes this_boot():
    """Return the boot id, which is read at the first use."""
    global boot_id
    if boot_id is None:
        try:
            with open("/proc/sys/kernel/random/boot_id", "rb") as file:
                boot_id = file.read(36)
        except OSError:
            boot_id = b"?"
    return boot_id


cdef bint is_sane(Place place) noexcept:
    """Whether these numbers can be continued without overflow."""
    return (1 <= place.index < PLACE_MAX and 0 <= place.file < <int64_t>PLACE_MAX
            and 0 <= place.position < <int64_t>PLACE_MAX)


cdef uint64_t check_boot(Header *header) noexcept:
    """Checksum of everything behind it except the slots: the boot id, and whether the stop was clean."""
    return mix(header.capacity ^ check_numbers(<uint64_t *>header.boot_id, sizeof(header.boot_id) // 8 + 1))


cdef bint read_place(KeptPlace *slots, unsigned char slot, Place *place) noexcept:
    """Read the current slot, or, if that is damaged, the other one."""
    cdef int i
    for i in range(2):
        if slots[(slot + i) & 1].check == check_place(&slots[(slot + i) & 1].place):
            place[0] = slots[(slot + i) & 1].place
            return is_sane(place[0])
    return False


cdef void write_place(KeptPlace *slots, unsigned char *slot, Place place) noexcept:
    cdef unsigned char other = slot[0] & 1 ^ 1
    slots[other].place = place
    slots[other].check = check_place(&place)
    barrier()
    slot[0] = other


cdef inline void begin_store(AckFile acks) noexcept:
    if acks.mapping is NULL:
        acks.map_for_change()


cdef bint is_same(const Place *one, const Place *other) noexcept:
    return one.index == other.index and one.file == other.file and one.position == other.position


cdef class AckFile(AckMapping):
    """AckFile(path): a new one. AckFile.load(path): the one on disk, or None if there is no valid one."""

    def __cinit__(self, str path, bint fresh=True):
        self.trusted = False
        if fresh:
            self.replace(CAPACITY_MIN, False)

    @staticmethod
    def load(str path):
        """Load the file; the queue notes this boot in it once it has checked everything found."""
        cdef AckFile acks = AckFile(path, False)
        try:
            fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        except OSError as error:
            log.error("DISKQUEUE(%s) acknowledgements cannot be read - %s", os.path.basename(path), error.strerror)
            return None
        try:
            size = os.fstat(fd).st_size
            if size >= HEADER_SIZE and not acks.read_copy(fd, size):
                acks.attach(fd, size)
                acks.close_file()
        finally:
            os.close(fd)
        if size < HEADER_SIZE or not acks.read(size):
            log.error("DISKQUEUE(%s) acknowledgements are damaged, finished messages may come again",
                      os.path.basename(path))
            return None
        acks.validate_bits()
        acks.shorten_copy()
        return acks

    cdef bint read(self, size_t size) noexcept:
        """Read the header and check it."""
        cdef Header *h = self.header
        if strncmp(h.magic, MAGIC, 8) != 0 or h.capacity < 64 or h.capacity & (h.capacity - 1):
            return False
        return (size == HEADER_SIZE + h.capacity // 8
                and read_place(h.cursor, h.cursor_slot, &self.cursor_place)
                and read_place(h.written, h.written_slot, &self.written_place) and self.is_sound())

    cdef bint is_sound(self) noexcept:
        """Whether its places are consistent."""
        cdef Place cursor = self.cursor_place, written = self.written_place
        if cursor.index == written.index and cursor.file > written.file:
            # Killed while the queue was emptied.
            return cursor.file == written.file + 1 and cursor.position == 0
        return (cursor.index <= written.index and written.index - cursor.index <= self.header.capacity
                and (cursor.file < written.file
                     or cursor.file == written.file and cursor.position <= written.position))

    cdef void validate_bits(self) noexcept:
        """Decide whether the bits are valid."""
        cdef Header *h = self.header
        cdef bytes boot = this_boot()
        self.trusted = h.boot_check == check_boot(h) and (
            h.clean or strncmp(h.boot_id, boot, sizeof(h.boot_id)) == 0)
        if self.trusted and not self.are_bits_whole():
            self.trusted = False
            log.error("DISKQUEUE(%s) acknowledgements are damaged, finished messages may come again",
                      os.path.basename(self.path))

    cpdef void note_boot(self) noexcept:
        """Note that the file is valid for this boot, until the clean stop. Unneeded as long as it never changes."""
        cdef bytes boot = this_boot()
        self.is_boot_due = self.mapping is NULL
        if self.is_boot_due:
            return
        memset(self.header.boot_id, 0, sizeof(self.header.boot_id))
        memcpy(self.header.boot_id, <const char *>boot, len(boot))
        self.header.clean = 0
        self.header.boot_check = check_boot(self.header)

    cdef void map_for_change(self) noexcept:
        AckMapping.map_for_change(self)
        if self.is_boot_due:
            self.note_boot()

    cdef bint has_bits(self) noexcept:
        return self.count(self.cursor_place.index, self.written_place.index) != 0

    cdef Place cursor(self) noexcept:
        return self.cursor_place

    cdef Place written(self) noexcept:
        return self.written_place

    cpdef void set_cursor(self, uint64_t index, int64_t file, int64_t position) noexcept:
        cdef Place place = Place(index, file, position)
        if self.mapping is NULL:
            if is_same(&self.cursor_place, &place):
                return
            self.map_for_change()
        self.cursor_place = place
        write_place(self.header.cursor, &self.header.cursor_slot, self.cursor_place)

    cpdef void set_written(self, uint64_t index, int64_t file, int64_t position) noexcept:
        cdef Place place = Place(index, file, position)
        if self.mapping is NULL:
            if is_same(&self.written_place, &place):
                return
            self.map_for_change()
        self.written_place = place
        write_place(self.header.written, &self.header.written_slot, self.written_place)

    cdef void set_sealed(self, int64_t file, int64_t position) noexcept:
        if self.mapping is NULL:
            if self.sealed() == (file, position):
                return
            self.map_for_change()
        self.header.sealed.place = Place(1, file, position)
        self.header.sealed.check = check_place(&self.header.sealed.place)

    def sealed(self):
        """Return (file, position) of set_sealed; None if not known."""
        cdef KeptPlace *sealed = &self.header.sealed
        if sealed.place.index != 1 or sealed.check != check_place(&sealed.place):
            return None
        return sealed.place.file, sealed.place.position

    cdef bint test(self, uint64_t index) noexcept:
        return self.words[(index & self.mask) >> 6] >> (index & 63) & 1

    cpdef void mark(self, uint64_t index) noexcept:
        cdef uint64_t check, place = index & self.mask, bit = <uint64_t>1 << (index & 63)
        cdef uint64_t *word
        if self.test(index):
            return
        begin_store(self)
        word = &self.words[place >> 6]
        check = self.header.bits_check ^ mix(place)
        self.header.marked = place + 1
        barrier()
        word[0] |= bit
        barrier()
        self.header.bits_check = check

    cpdef void clear(self, uint64_t first, uint64_t end) noexcept:
        cdef uint64_t index = first, word, kept, check
        cdef uint64_t *place
        if first < end:
            begin_store(self)   # a copy may lack bits that mean nothing yet
        while index < end:
            place = &self.words[(index & self.mask) >> 6]
            kept = ((<uint64_t>1 << (index & 63)) - 1)
            if (index | 63) >= end:
                kept |= ~((<uint64_t>1 << (end & 63)) - 1)
            word = place[0] & ~kept
            if word:
                check = self.header.bits_check
                while word:
                    check ^= mix((index & ~<uint64_t>63 & self.mask) + lowest_bit(word))
                    word &= word - 1
                self.header.clearing_check = check
                barrier()
                self.header.clearing = 1
                barrier()
                place[0] &= kept
                barrier()
                self.header.bits_check = check
                barrier()
                self.header.clearing = 0
            index = (index | 63) + 1
        barrier()

    cdef void clear_all(self) noexcept:
        begin_store(self)
        memset(self.words, 0, self.size - HEADER_SIZE)
        self.header.bits_check = self.header.clearing = 0

    cdef bint are_bits_whole(self) noexcept:
        """Whether the bits match their checksum; a kill may have come between a change and its checksum."""
        cdef uint64_t check = self.check_bits(), last = self.header.marked - 1
        if self.header.bits_check == check:
            return True
        if not (self.header.clearing and self.header.clearing_check == check
                or last <= self.mask and self.test(last) and self.header.bits_check ^ mix(last) == check):
            return False
        begin_store(self)
        self.header.bits_check = check
        self.header.clearing = 0
        return True

    cdef uint64_t check_bits(self) noexcept:
        cdef uint64_t i, word, check = 0
        for i in range((self.mask + 1) >> 6):
            word = self.words[i]
            while word:
                check ^= mix((i << 6) + lowest_bit(word))
                word &= word - 1
        return check

    cdef void begin_move(self, uint64_t index, uint64_t replacement) noexcept:
        """Announce that the record will be written again; a kill before it is marked must not leave two of it."""
        begin_store(self)
        self.header.moving_to = 0
        barrier()
        self.header.moving_from = index
        barrier()
        self.header.moving_to = replacement
        barrier()

    cdef void end_move(self) noexcept:
        if self.header.moving_to:
            begin_store(self)
            self.header.moving_to = 0
            barrier()

    cdef void resume_move(self) noexcept:
        """After a kill, with `written` behind the last record found: finish the move if it was done."""
        cdef uint64_t moved = self.header.moving_from
        if (self.header.moving_to and self.header.moving_to < self.written().index
                and self.cursor().index <= moved < self.written().index):
            self.mark(moved)
        self.end_move()

    cpdef uint64_t count(self, uint64_t first, uint64_t end) noexcept:
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

    cdef uint64_t first_unmarked(self, uint64_t first, uint64_t end) noexcept:
        """Return the first of [first, end) that is not marked, or end."""
        cdef uint64_t index = first, open_bits
        while index < end:
            open_bits = ~self.words[(index & self.mask) >> 6] >> (index & 63)
            if open_bits:
                return min(index + <uint64_t> lowest_bit(open_bits), end)
            index = (index | 63) + 1
        return end

    cpdef int reserve(self, uint64_t end) except -1:
        """Make room for every index below end; OSError if the disk has none."""
        cdef uint64_t capacity = self.mask + 1
        cdef uint64_t first = self.cursor().index
        if end - first <= capacity:
            return 0
        while end - first > capacity:
            capacity *= 2
        self.replace(capacity, True)
        return 0

    cdef int replace(self, uint64_t capacity, bint must) except -1:
        """Create a file under the same name with the same content, perhaps larger. If the disk has no room and there
        was no file before, memory must do: a broker must be able to start on a full disk."""
        cdef size_t size = HEADER_SIZE + capacity // 8
        cdef AckFile grown = AckFile(self.path, False)
        if self.header is not NULL:
            begin_store(self)
        name = self.path + ".tmp"
        try:
            fd = os.open(name, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            try:
                # On most file systems a store into a hole would fail on a full disk.
                os.posix_fallocate(fd, 0, size)
                grown.attach(fd, size)
                grown.copy(self)
                os.rename(name, self.path)
                grown.close_file()
            except BaseException:
                grown.unmap()
                os.unlink(name)
                raise
            finally:
                os.close(fd)
        except OSError as error:
            self.error_errno = error.errno
            if must and self.is_kept():
                raise
            if self.is_kept() or self.header is NULL:
                log.error("DISKQUEUE(%s) acknowledgements are kept in memory only - %s", os.path.basename(self.path),
                          error)
            grown.attach(-1, size)
            grown.copy(self)
        self.swap(grown)
        return 0

    cdef void copy(self, AckFile old) noexcept:
        """Copy its content into this one, which is all zeros."""
        cdef Place cursor = Place(1, 0, 0), written = Place(1, 0, 0)
        memcpy(self.header.magic, MAGIC, 8)
        self.header.capacity = self.mask + 1
        if old.header is not NULL:
            cursor, written = old.cursor_place, old.written_place
            self.header.meta, self.header.meta_next = old.header.meta, old.header.meta_next
            self.header.sealed = old.header.sealed
            self.header.moving_from, self.header.moving_to = old.header.moving_from, old.header.moving_to
            self.copy_bits(old, cursor.index, written.index)
        self.set_cursor(cursor.index, cursor.file, cursor.position)
        self.set_written(written.index, written.file, written.position)
        if old.header is NULL:
            self.note_boot()
        else:
            # Keep the boot id: a file without this boot in it must not be valid at the next start.
            memcpy(self.header.boot_id, old.header.boot_id, sizeof(self.header.boot_id))
            self.header.clean = old.header.clean
            self.header.boot_check = check_boot(self.header)
            if old.header.boot_check != check_boot(old.header):
                self.header.boot_check ^= 1

    cdef void copy_bits(self, AckFile old, uint64_t first, uint64_t end) noexcept:
        cdef uint64_t index = first, word, check = 0
        while index < end:
            word = old.words[(index & old.mask) >> 6] >> (index & 63) << (index & 63)
            if (index | 63) >= end:
                word &= (<uint64_t>1 << (end & 63)) - 1
            self.words[(index & self.mask) >> 6] |= word
            while word:
                check ^= mix((index & ~<uint64_t>63 & self.mask) + lowest_bit(word))
                word &= word - 1
            index = (index | 63) + 1
        self.header.bits_check = check

    cdef void swap(self, AckFile other) noexcept:
        self.swap_with(other)
        self.is_synced = False
        self.cursor_place, other.cursor_place = other.cursor_place, self.cursor_place
        self.written_place, other.written_place = other.written_place, self.written_place

    cdef void announce_meta(self, list numbers) noexcept:
        """This metadata is about to be renamed into place; until confirm(), both the old one and it are ours."""
        cdef int i
        begin_store(self)
        self.header.meta_next.check = 0
        barrier()
        for i in range(5):
            self.header.meta_next.numbers[i] = numbers[i]
        barrier()
        self.header.meta_next.check = check_numbers(<uint64_t *>self.header.meta_next.numbers, 5)
        barrier()

    cdef void confirm(self, list numbers) noexcept:
        """This metadata is in place, and stays ours whatever is announced next."""
        if not is_meta(&self.header.meta, numbers):
            begin_store(self)
            self.header.meta = self.header.meta_next

    cdef bint owns_meta(self, list numbers) noexcept:
        """Whether we wrote the current metadata."""
        return is_meta(&self.header.meta, numbers) or is_meta(&self.header.meta_next, numbers)

    cdef bint is_clean(self) noexcept:
        """Whether finish() left it, and no boot was noted in it since."""
        return self.header.clean != 0

    cpdef bint keep(self) noexcept:
        """Try again to keep it if that failed; return whether it is kept now."""
        if not self.is_kept() or self.is_file_changed():
            begin_store(self)
            if self.inode:
                log.error("DISKQUEUE(%s) acknowledgements are kept in memory only - the file could not be changed",
                          os.path.basename(self.path))
                self.mapping.is_lost = True
            with suppress(OSError):
                self.replace(self.mask + 1, False)
            if self.is_kept():
                log.warning("DISKQUEUE(%s) acknowledgements are kept on disk again", os.path.basename(self.path))
        return self.is_kept()

    cpdef bint finish(self) noexcept:
        """The clean stop: a reboot does not invalidate it any more. Return whether the caller has to sync the file."""
        if self.mapping is NULL and self.is_boot_due and self.trusted and self.header.clean:
            return False    # unchanged since the previous stop
        begin_store(self)
        self.header.clean = 1
        self.header.boot_check = check_boot(self.header)
        return True

    cdef int remove(self) except -1:
        self.unmap()
        with suppress(FileNotFoundError):
            os.unlink(self.path)

    def state(self):
        cursor, written = self.cursor(), self.written()
        return ((cursor.index, cursor.file, cursor.position), (written.index, written.file, written.position))

    @property
    def capacity(self):
        return self.mask + 1

    def close(self):
        self.finish()
        self.unmap()


cdef bint is_meta(KeptMeta *meta, list numbers) noexcept:
    cdef int i
    if meta.check != check_numbers(<uint64_t *>meta.numbers, 5):
        return False
    for i in range(5):
        if meta.numbers[i] != <int64_t>numbers[i]:
            return False
    return True
