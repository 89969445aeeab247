"""What happens to the queues of a broker, as records of its commit log: their kinds, and who appends them."""

from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t

from nsqfast._ext.commitlog.ring cimport CommitRing
from nsqfast._ext.core.message cimport Message
from nsqfast._ext.storage.diskqueue.ackmapping cimport Place


cdef enum RecordKind:
    # The subject of each but CLOSED is a queue's number. Numbers are little-endian. Of tries extra has the attempts,
    # and the flags above SPREAD the failures.
    NAMED = 1           # {life, batch, records of it (8 each)} behind which records count for it, then the queue's name
    PUBLISHED = 2       # tries; {published (8), id (8), due (8; 0 = at once)}, then the body
    FINISHED = 3        # {id (8), index (8; 0 = it has no record in a file)}
    RETURNED = 4        # tries; {id (8), due (8; 0 = at once)}: it waits again, behind all others
    EMPTIED = 5
    DELETED = 6         # the queue's name
    PLACED = 7          # {cursor, written}, each {index (8), file (8), position (8)}: what its files have
    HOLES = 8           # {index of the first bit (8)}, then words of bits: finished behind the cursor
    HELD = 9            # {index (8), file (8), position (8), due (8)}: a deferred one in a file
    CLOSED = 10         # a clean stop: nothing before this counts
    BEGUN = 11          # subject = how many starts there were, this one included
    PIECE = 12          # of a large MPUB: {numbers of it and the piece, published, first id}, then {size (4), body} ...
    RELEASED = 13       # {number of the MPUB (8), of the piece (8)}: its messages came into the queue

cdef enum:
    # Flag of PUBLISHED and RELEASED: it went to all channels of the topic whose number is the subject.
    SPREAD = 1
    PUBLISHED_SIZE = 24
    PIECE_HEAD_SIZE = 32
    RELEASED_SIZE = 16
    NAMED_SIZE = 24
    # What a message takes of a batch beside its body.
    RECORD_OVERHEAD = 48


ctypedef struct CheckpointFigures:
    uint64_t count                   # of those that were completed
    int64_t sum_ns                   # that they took
    int64_t last_ns                  # that the last one took, ...
    int64_t ended_ns                 # ... and when it ended, in Unix time
    uint64_t carried_bytes           # of the file that it wrote


cdef class EventLog:
    cdef readonly CommitRing ring
    cdef readonly bint is_interval
    cdef object on_record            # called without arguments before the first record of a batch
    cdef uint32_t life               # how many starts there were
    cdef uint32_t last_number        # that a queue got
    cdef readonly str refusal        # why no publish is taken; None = they are
    cdef bint is_closing             # a stop writes the files themselves
    cdef object kept_error           # why it could not: the next start needs the log
    cdef bint was_open               # the last run did not close it
    cdef bint has_new_metadata       # this start wrote some for queues that the log did not have
    cdef bint has_old_files          # some files are there only until the next checkpoint
    cdef list unwritten              # positions of queues with bytes that their files have yet to get
    cdef uint64_t message_count      # that were published into the log
    cdef uint64_t marked_count       # of them when mark() was called
    cdef uint64_t missed_count       # records that it did not take, because it is full or failed
    cdef CheckpointFigures checkpoints
    cdef dict begun_mpubs            # number of a large MPUB -> the batch from which on it is needed
    cdef dict released_mpubs         # number -> (their subject, a batch behind the pieces), of those since a checkpoint
    cdef uint64_t newly_released     # since mark()
    cdef uint32_t mpub_count

    cdef char *append(self, uint8_t kind, uint8_t flags, uint16_t extra, uint32_t subject, size_t size) except? NULL
    cdef int keep(self, object error) except -1
    cdef QueueLog add_queue(self, str name)
    cdef int admit(self, uint64_t count, uint64_t size) except -1
    cdef bint is_crowded(self) noexcept
    cdef uint64_t begin_mpub(self)
    cdef uint64_t needed_by_mpubs(self)
    cdef int check_mpub(self, uint64_t mpub) except -1
    cdef int forget_mpubs(self) except -1
    cdef uint64_t mark(self) noexcept
    cdef int cut(self, uint64_t mark) except -1
    cdef uint64_t ticket(self) noexcept
    cdef int want_writing(self, object position) except -1
    cdef uint64_t done(self) noexcept
    cdef int note_room(self, str trouble) except -1


cdef class QueueLog:
    cdef EventLog log
    cdef readonly uint32_t number
    cdef uint64_t named_in           # the batch that has its name; 0 = an earlier start named it, or nobody did

    cdef bint publish(self, Message *message, uint32_t tries, int64_t due_ns, bint is_spread) except -1
    cdef int add_piece(self, uint64_t mpub, uint64_t piece, int64_t published_ns, uint64_t first_id,
                       const char *bodies, size_t size) except -1
    cdef int release(self, uint64_t mpub, uint64_t piece, bint is_spread) except -1
    cdef int finish(self, uint64_t id, uint64_t index) except -1
    cdef bint take_over(self, Message *message, uint64_t index, uint32_t tries, int64_t due_ns) except -1
    cdef int give_back(self, uint64_t id, uint32_t tries, int64_t due_ns) except -1
    cdef int empty(self) except -1
    cdef int delete(self, str name) except -1
    cdef int place(self, Place cursor, Place written) except -1


cdef inline uint8_t failure_flags(uint32_t tries) noexcept:
    return <uint8_t> (tries >> 16 << 1)


cdef inline uint32_t get_tries(uint8_t flags, uint16_t extra) noexcept:
    return extra | <uint32_t> (flags >> 1) << 16


cdef inline void put_number(char *out, uint64_t number) noexcept:
    (<uint64_t *> out)[0] = number


cdef inline uint64_t get_number(const char *data) noexcept:
    return (<const uint64_t *> data)[0]


cdef inline void put_place(char *out, Place place) noexcept:
    put_number(out, place.index)
    put_number(out + 8, <uint64_t> place.file)
    put_number(out + 16, <uint64_t> place.position)


cdef inline Place get_place(const char *data) noexcept:
    return Place(get_number(data), <int64_t> get_number(data + 8), <int64_t> get_number(data + 16))


cdef inline void put_published(char *out, Message *message, int64_t due_ns) noexcept:
    put_number(out, <uint64_t> message.timestamp_ns)
    put_number(out + 8, message.id)
    put_number(out + 16, <uint64_t> due_ns)
