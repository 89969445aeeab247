"""Records which records of a queue were finished: a bitmap in a shared mapping, so that stores survive a kill -9."""

from libc.stdint cimport int64_t, uint64_t

from nsqfast._ext.storage.diskqueue.ackmapping cimport AckMapping, Place


cdef class AckFile(AckMapping):
    cdef Place cursor_place
    cdef Place written_place
    cdef bint is_synced             # its header was synced, or will be with the next batch
    cdef bint is_boot_due           # with the first store
    cdef readonly bint trusted      # read from disk, and its bits are valid

    # Where the queue is
    cdef Place cursor(self) noexcept
    cdef Place written(self) noexcept
    cpdef void set_cursor(self, uint64_t index, int64_t file, int64_t position) noexcept
    cpdef void set_written(self, uint64_t index, int64_t file, int64_t position) noexcept

    cdef void set_sealed(self, int64_t file, int64_t position) noexcept

    # Which records are finished
    cdef bint test(self, uint64_t index) noexcept
    cpdef void mark(self, uint64_t index) noexcept
    cpdef void clear(self, uint64_t first, uint64_t end) noexcept
    cdef void clear_all(self) noexcept
    cpdef uint64_t count(self, uint64_t first, uint64_t end) noexcept
    cdef uint64_t first_unmarked(self, uint64_t first, uint64_t end) noexcept
    cdef bint are_bits_whole(self) noexcept
    cdef uint64_t check_bits(self) noexcept
    cpdef int reserve(self, uint64_t end) except -1      # make room for every index below end

    cdef void begin_move(self, uint64_t index, uint64_t replacement) noexcept
    cdef void end_move(self) noexcept
    cdef void resume_move(self) noexcept

    # Which metadata file belongs to it
    cdef void announce_meta(self, list numbers) noexcept
    cdef void confirm(self, list numbers) noexcept
    cdef bint owns_meta(self, list numbers) noexcept

    # The file itself
    cdef bint is_clean(self) noexcept
    cpdef bint keep(self) noexcept                       # try again to keep it if that failed
    cpdef bint finish(self) noexcept                     # clean stop; nothing may follow
    cdef int remove(self) except -1
    cdef bint read(self, size_t size) noexcept
    cdef bint is_sound(self) noexcept
    cdef void validate_bits(self) noexcept
    cpdef void note_boot(self) noexcept
    cdef int replace(self, uint64_t capacity, bint must) except -1
    cdef void copy(self, AckFile old) noexcept
    cdef void copy_bits(self, AckFile old, uint64_t first, uint64_t end) noexcept
    cdef void swap(self, AckFile other) noexcept
