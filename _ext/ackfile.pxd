"""Which records of one queue were finished: a bitmap in a shared mapping, so that plain stores survive a kill -9."""

from libc.stdint cimport int64_t, uint64_t

from nsqfast._ext.syncer cimport OpenFile


cdef extern from "mapping.h" nogil:
    ctypedef struct Mapping "nsq_mapping":
        char *address
        int fd
        bint is_lost


cdef struct Place:
    uint64_t index      # of a record, counted from 1 since the file was made
    int64_t file
    int64_t position


cdef struct KeptPlace:
    Place place
    uint64_t check


cdef struct KeptMeta:
    int64_t numbers[5]
    uint64_t check


cdef struct Header:
    char magic[8]
    uint64_t capacity           # of the ring, in bits, a power of two
    KeptPlace cursor[2]         # everything before it is finished; [cursor_slot] counts
    KeptPlace written[2]        # where the next record goes; [written_slot] counts
    KeptPlace sealed            # from there on hollow records are sealed; index 0 = that is not known
    KeptMeta meta               # what is in the metadata file that we wrote last
    KeptMeta meta_next          # and in the one that was about to replace it
    uint64_t moving_from        # a record that is being written again...
    uint64_t moving_to          # ...under this index; 0 = none. If that one is there, the old one is finished
    uint64_t marked             # the bit that was set last, from 1 on: a kill may come before the check knows of it
    uint64_t bits_check         # over all bits that are set
    uint64_t boot_check         # over what follows
    char boot_id[40]            # after a reboot without a clean stop the bits are not to be believed
    uint64_t clean
    unsigned char cursor_slot
    unsigned char written_slot


cdef class AckFile:
    cdef Header *header
    cdef uint64_t *words
    cdef Mapping *mapping
    cdef uint64_t mask
    cdef size_t size
    cdef Place cursor_place
    cdef Place written_place
    cdef uint64_t inode             # of the file, which is not open; 0: the disk had no room, this is in memory only
    cdef bint is_synced             # its header was, or will be with the next batch
    cdef readonly str path
    cdef int error_errno            # why it could not be kept
    cdef readonly bint trusted      # read from disk, and the bits are to be believed

    # Where the queue stands
    cdef Place cursor(self) noexcept
    cdef Place written(self) noexcept
    cdef void set_cursor(self, uint64_t index, int64_t file, int64_t position) noexcept
    cdef void set_written(self, uint64_t index, int64_t file, int64_t position) noexcept

    cdef void set_sealed(self, int64_t file, int64_t position) noexcept

    # Which records are finished
    cdef bint test(self, uint64_t index) noexcept
    cdef void mark(self, uint64_t index) noexcept
    cdef void clear(self, uint64_t first, uint64_t end) noexcept
    cdef void clear_all(self) noexcept
    cdef uint64_t count(self, uint64_t first, uint64_t end) noexcept
    cdef bint are_bits_whole(self) noexcept
    cdef uint64_t check_bits(self) noexcept
    cdef int reserve(self, uint64_t end) except -1      # room for every index below end

    cdef void begin_move(self, uint64_t index, uint64_t replacement) noexcept
    cdef void end_move(self) noexcept
    cdef void resume_move(self) noexcept

    # Whose metadata file it is
    cdef void announce(self, list numbers) noexcept
    cdef void confirm(self) noexcept
    cdef bint knows(self, list numbers) noexcept

    # The file itself
    cdef bint is_clean(self) noexcept
    cdef bint is_kept(self) noexcept
    cdef bint is_cut(self) noexcept
    cdef bint keep(self) noexcept                       # again, where it could not be kept for a while
    cdef void finish(self) noexcept                     # clean stop; nothing may follow
    cdef int remove(self) except -1
    cdef OpenFile *open(self) except? NULL
    cdef bint read(self, size_t size) noexcept
    cdef bint is_sound(self) noexcept
    cdef void believe(self) noexcept
    cdef void claim(self) noexcept
    cdef int replace(self, uint64_t capacity, bint must) except -1
    cdef int attach(self, int fd, size_t size) except -1
    cdef void let_go(self) noexcept
    cdef void copy(self, AckFile old) noexcept
    cdef void swap(self, AckFile other) noexcept
    cdef void unmap(self) noexcept
