"""What an operator looks for among the messages of a queue, and what was found behind those in memory."""

from libc.stdint cimport int64_t, uint32_t, uint64_t

from nsqfast._ext.core.body_search cimport Terms


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
    const Terms *terms       # the body must meet them; NULL: any body does
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
    uint32_t tries


cdef inline bint is_wanted(const Quest *quest, uint64_t id, int64_t timestamp_ns) noexcept nogil:
    """Whether the message has one of the ids that are looked for, if any, and came late enough."""
    cdef size_t i
    if quest.since_ns and timestamp_ns < quest.since_ns:
        return False
    for i in range(quest.id_count):
        if quest.ids[i] == id:
            return True
    return quest.id_count == 0


ctypedef struct QueuePlace:
    # A place between the messages of a queue.
    int64_t number           # in memory: of the first behind it (Ring.number)
    uint64_t index           # elsewhere: of what is behind it, as the engine counts; 0 = of the first still to be read
    int64_t file
    int64_t position
    uint64_t shift


cdef class Reads:
    # Records that were taken from a queue, to be read once more while it goes on.

    # Add the record of that ordinal; False: it is finished. Called by the queue's thread.
    cdef bint add(self, uint64_t ordinal) except -1

    # Return what is stored of the one with that number, in memory to be freed, or NULL: it is gone, or cannot be read.
    # Called in any thread.
    cdef char *read(self, size_t number, size_t *size) noexcept nogil


cdef class Scan:
    cdef Record *found
    cdef size_t found_count
    cdef readonly int ended          # an Ended
    cdef readonly int error          # errno, if UNREADABLE

    # Search until the quest is complete, or the end is reached. Called once, in any thread, while the queue goes on.
    cdef void run(self, Quest *quest) noexcept nogil

    # Whether it examined all that there was.
    cdef bint has_all(self) noexcept nogil

    # Move the place behind that record, or (NULL) to where the scan ended.
    cdef void go_behind(self, const Record *last, QueuePlace *place) noexcept

    # Move those found that still wait to the front; return how many these are. What disappeared because it was read
    # meanwhile does not end the scan.
    cdef size_t sort_out(self) except? 0

    # Let the first of those found go behind all other messages. OSError: they stay where they are.
    cdef int requeue(self, size_t count) except -1

    # Finish the first of those found, as far as they still wait.
    cdef int finish(self, size_t count) except -1
