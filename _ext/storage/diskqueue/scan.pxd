"""Reads the waiting records of a queue on disk without moving the queue's reader."""

from libc.stdint cimport int64_t, uint16_t, uint64_t

from nsqfast._ext.storage.diskqueue.reader cimport DiskReader


cdef extern from "<string.h>" nogil:
    const void *memmem(const void *data, size_t size, const void *needle, size_t needle_size)


cdef enum:
    # Records passed on the way, including finished and deferred ones: a bit each.
    RECORDS_MAX = 262144


cdef enum Ended:
    # Why a search ended.
    AT_LIMIT = 0         # as many were found, or examined, as wanted
    AT_END = 1
    DAMAGED = 2
    GONE = 3             # a file was removed
    UNREADABLE = 4
    TOO_MANY_BYTES = 5
    TOO_MANY_RECORDS = 6
    TOO_LATE = 7
    NO_MEMORY = 8
    TOO_LARGE = 9        # the results do not fit into one answer


ctypedef struct Quest:
    # What to search, and how far; the numbers count down.
    const char *needle       # must occur in the body; NULL: any body matches
    size_t needle_size
    int64_t since_ns         # the message must have come then or later, by its timestamp; 0: any will do
    const uint64_t *ids      # the message must have one of them
    size_t id_count          # 0: any will do
    size_t piece_max         # bytes of a body to return
    int64_t room             # bytes of bodies to return in all; the last of them may take more
    int64_t offset           # messages to skip
    int64_t wanted           # messages to find
    int64_t scans            # messages to examine
    int64_t bytes            # bytes of bodies to search
    int64_t until_ns         # on the monotonic clock


ctypedef struct Record:
    uint64_t id
    int64_t timestamp_ns
    int64_t size             # of the body
    char *piece              # its first bytes
    size_t piece_size
    int64_t scans_left       # of the quest, when it was found
    uint64_t index
    int64_t file
    int64_t end              # where the next one begins
    uint16_t attempts


cdef inline bint is_wanted(const Quest *quest, uint64_t id, int64_t timestamp_ns) noexcept nogil:
    """Whether the message has one of the ids that are looked for, if any, and came late enough."""
    cdef size_t i
    if quest.since_ns and timestamp_ns < quest.since_ns:
        return False
    for i in range(quest.id_count):
        if quest.ids[i] == id:
            return True
    return quest.id_count == 0


cdef class DiskScan:
    cdef Record *found
    cdef size_t found_count
    cdef readonly int ended          # an Ended
    cdef readonly int error          # errno, if UNREADABLE

    # The state when it was created
    cdef bytes prefix
    cdef const char *prefix_text
    cdef int64_t write_file
    cdef int64_t write_position
    cdef uint64_t first              # index of the record where it starts
    cdef uint64_t shift              # the reader's: another one means that its indexes are others
    cdef int64_t record_count        # from the first on; at most RECORDS_MAX
    cdef bint is_cut                 # there are more than that
    cdef uint64_t *passed            # bitmap: finished, or deferred; these do not wait here

    # The position
    cdef int fd
    cdef int64_t file
    cdef int64_t position
    cdef int64_t end                 # of the valid part of the file
    cdef int64_t number              # of the record at that position, relative to the first
    cdef char *window
    cdef int64_t window_start
    cdef int64_t window_size
    cdef bint is_sparse              # records are large: only the needed part of each is read

    cdef int start(self, DiskReader reader, uint64_t index, int64_t file, int64_t position) except -1
    cdef int end_before(self, uint64_t index) except -1
    cdef int note_passed(self, DiskReader reader) except -1
    cdef void run(self, Quest *quest) noexcept nogil
    cdef bint examine(self, Quest *quest, int64_t size) noexcept nogil
    cdef int64_t next_size(self) noexcept nogil
    cdef bint is_record(self, int64_t size) noexcept nogil
    cdef const char *data_here(self) noexcept nogil
    cdef bint has_all(self) noexcept nogil
    cdef bint contains(self, Quest *quest, int64_t start, int64_t size) noexcept nogil
    cdef bint keep(self, Quest *quest, int64_t size) noexcept nogil
    cdef bint copy(self, char *out, int64_t start, int64_t size) noexcept nogil
    cdef bint next_file(self) noexcept nogil
    cdef bint open(self) noexcept nogil
    cdef bint fill(self, int64_t position, int64_t size) noexcept nogil
