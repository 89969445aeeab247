"""Reads the waiting records of a queue on disk without moving the queue's reader."""

from libc.stdint cimport int64_t, uint16_t, uint64_t

from nsqfast._ext.disk.reader cimport DiskReader


cdef extern from "<string.h>" nogil:
    const void *memmem(const void *data, size_t size, const void *needle, size_t needle_size)


cdef enum Ended:
    # Why a search went no further.
    AT_LIMIT = 0         # as many were found, or looked at, as were wanted
    AT_END = 1
    DAMAGED = 2
    GONE = 3             # a file is not there any more
    UNREADABLE = 4
    TOO_MANY_BYTES = 5
    TOO_MANY_RECORDS = 6
    TOO_LATE = 7
    NO_MEMORY = 8
    TOO_LARGE = 9        # what was found does not fit into one answer


ctypedef struct Quest:
    # What is looked for, and how far; the numbers are what is left of them.
    const char *needle       # what a body has to contain; NULL: any body will do
    size_t needle_size
    size_t piece_max         # bytes of a body that are kept
    int64_t offset           # messages to be passed over
    int64_t wanted           # messages to be found
    int64_t scans            # messages to be looked at
    int64_t bytes            # of bodies to be searched
    int64_t until_ns         # on the monotonic clock


ctypedef struct Record:
    uint64_t id
    int64_t timestamp_ns
    int64_t size             # of the body
    char *piece              # its first bytes
    size_t piece_size
    int64_t scans_left       # of the quest, when it was found
    uint16_t attempts


cdef class DiskScan:
    cdef Record *found
    cdef size_t found_count
    cdef readonly int ended          # an Ended
    cdef readonly int error          # errno, where it is UNREADABLE

    # What there was when it was made
    cdef bytes prefix
    cdef const char *prefix_text
    cdef int64_t write_file
    cdef int64_t write_position
    cdef int64_t record_count        # behind the reader; at most RECORDS_MAX
    cdef bint is_cut                 # there are more than that
    cdef uint64_t *passed            # bitmap: finished, or deferred; they do not wait here

    # Where it is
    cdef int fd
    cdef int64_t file
    cdef int64_t position
    cdef int64_t end                 # of what counts of the file
    cdef int64_t number              # of the record at that position, counted from the reader's
    cdef char *window
    cdef int64_t window_start
    cdef int64_t window_size
    cdef bint is_sparse              # records are large: only what is needed of each is read

    cdef int aim(self, DiskReader reader) except -1
    cdef int note_passed(self, DiskReader reader) except -1
    cdef void run(self, Quest *quest) noexcept nogil
    cdef bint look(self, Quest *quest, int64_t size) noexcept nogil
    cdef int64_t next_size(self) noexcept nogil
    cdef bint is_record(self, int64_t size) noexcept nogil
    cdef bint contains(self, Quest *quest, int64_t start, int64_t size) noexcept nogil
    cdef bint keep(self, Quest *quest, int64_t size) noexcept nogil
    cdef bint next_file(self) noexcept nogil
    cdef bint open(self) noexcept nogil
    cdef bint fill(self, int64_t position, int64_t size) noexcept nogil
