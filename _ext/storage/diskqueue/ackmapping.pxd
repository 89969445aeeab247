"""The ack file in memory: mapped while it changes, else a copy."""

from libc.stdint cimport int64_t, uint64_t

from nsqfast._ext.storage.diskqueue.syncer cimport OpenFile, Syncer


cdef extern from "storage/diskqueue/mapping.h" nogil:
    ctypedef struct Mapping "nsq_mapping":
        char *address
        int fd
        void *owner
        bint is_lost


cdef struct Place:
    uint64_t index      # of a record, counted from 1 since the file was created
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
    KeptPlace cursor[2]         # all before it are finished; [cursor_slot] counts
    KeptPlace written[2]        # where the next record goes; [written_slot] counts
    KeptPlace sealed            # hollow records behind it are sealed; index 0 = not known
    KeptMeta meta               # the content of the metadata file that we wrote last
    KeptMeta meta_next          # the content of the one that was about to replace it
    uint64_t moving_from        # a record that is being written again...
    uint64_t moving_to          # ...under this index; 0 = none. If that one exists, the old one is finished
    uint64_t marked             # the bit that was set last, from 1 on: a kill may come before the checksum covers it
    uint64_t bits_check         # of all bits that are set
    uint64_t boot_check         # of the following fields
    char boot_id[40]            # after a reboot without a clean stop the bits are not valid
    uint64_t clean
    unsigned char cursor_slot
    unsigned char written_slot
    uint64_t clearing  # 1: bits of one word are being cleared, and a kill may come before the checksum is updated
    uint64_t clearing_check     # the checksum afterwards


cdef enum:
    HEADER_SIZE = 512


cdef class AckMapping:
    cdef Header *header
    cdef uint64_t *words            # of bits; read-only unless mapped
    cdef Mapping *mapping           # NULL: both are a copy
    cdef uint64_t mask
    cdef size_t size
    cdef uint64_t inode             # of the file, which is not open; 0: the disk had no room, this is in memory only
    cdef readonly str path
    cdef int error_errno            # why it could not be kept

    cdef bint read_copy(self, int fd, size_t size) noexcept
    cdef void shorten_copy(self) noexcept
    cdef int attach(self, int fd, size_t size) except -1
    cdef void close_file(self) noexcept
    cdef void unmap(self) noexcept
    cdef void map_for_change(self) noexcept
    cdef bint has_bits(self) noexcept
    cdef bint unmap_to_copy(self) noexcept
    cdef void take(self, Mapping *mapping, size_t size) noexcept
    cdef void swap_with(self, AckMapping other) noexcept

    cpdef bint is_kept(self) noexcept
    cdef bint is_file_changed(self) noexcept
    cdef OpenFile *open(self, Syncer syncer) except? NULL


# For tests: map at most so many; 0: as many as Linux allows.
cdef void limit_mappings(size_t count) noexcept
cdef size_t count_mappings() noexcept
