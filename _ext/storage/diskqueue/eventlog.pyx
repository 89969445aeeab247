"""What happens to the queues of a broker, as records of its commit log.

A record says what changed, in the order of the changes, and a start repeats it (`replay`). What the files of a queue
have is known as of the last checkpoint, so whatever is newer stands in the log, whether it went to a file or not.
"""

from libc.errno cimport EAGAIN, EIO, ENOSPC
from libc.string cimport memcpy, memset

from nsqfast._ext.commitlog.format cimport QUARTER_COUNT, RECORD_HEADER_SIZE, align_up
from nsqfast._ext.core.histogram cimport Histogram


# Above this share of the ring no publish is taken while checkpoints fail.
cdef double FULL_SHARE = 0.75


cdef class EventLog:
    def __init__(self, CommitRing ring not None, bint was_open, object on_record):
        self.ring, self.was_open = ring, was_open
        self.is_interval = ring.is_interval
        self.on_record = on_record
        self.unwritten = []
        self.begun_mpubs, self.released_mpubs = {}, {}

    def begin(self, uint32_t life, uint32_t last_number):
        """Go on behind what was repeated. From now on a start finds the log open, whatever of the rest is lost."""
        self.life, self.last_number = life, last_number
        self.append(BEGUN, 0, 0, life, 0)
        self.ring.wait(self.ring.filling, -1)

    cdef char *append(self, uint8_t kind, uint8_t flags, uint16_t extra, uint32_t subject, size_t size) except? NULL:
        """Return where the payload goes; NULL: nothing is kept of it."""
        if self.is_closing:
            return NULL
        if self.ring.count == 0:
            self.on_record()
        # Asked before, since a `try` would cost as much as the record of a FIN.
        if self.ring.failed or self.ring.used + align_up(RECORD_HEADER_SIZE + size, 8) > self.ring.folder.quarter_size:
            # No publish comes here (see admit): what is missed makes some messages come again after a restart.
            self.missed_count += 1
            return NULL
        return self.ring.append(kind, flags, extra, subject, size)

    cdef int keep(self, object error) except -1:
        """A stop could not write all: the next start repeats what the log says."""
        self.kept_error = self.kept_error or error
        return 0

    cdef QueueLog add_queue(self, str name):
        """Give the queue a number."""
        cdef bytes text = name.encode()
        cdef QueueLog queue
        cdef char *out
        self.last_number += 1
        queue = QueueLog(self, self.last_number)
        if self.ring.count and NAMED_SIZE + len(text) > self.ring.room():
            # A start may have more to say of its files than a batch holds. Without its name a queue would be lost.
            self.ring.wait(self.ring.filling, -1)
        out = self.append(NAMED, 0, 0, self.last_number, NAMED_SIZE + len(text))
        if out is not NULL:
            memset(out, 0, NAMED_SIZE)
            memcpy(out + NAMED_SIZE, <const char *> text, len(text))
        queue.named_in = self.ring.filling
        return queue

    cdef int admit(self, uint64_t count, uint64_t size) except -1:
        """OSError unless so many messages with so many bytes of bodies have room in this turn's batch."""
        if self.refusal is not None:
            raise OSError(EIO if self.ring.failed else ENOSPC, self.refusal)
        if size + count * RECORD_OVERHEAD > self.ring.room():
            raise OSError(EAGAIN, "the commit log is behind, its disk is too slow")
        return 0

    cdef bint is_crowded(self) noexcept:
        """Whether publishers should wait until the disk has taken some: much gathers already."""
        return self.refusal is None and self.ring.used > self.ring.folder.quarter_size // 4

    cdef uint64_t begin_mpub(self):
        """Return its number, which no other one has until a clean stop."""
        self.mpub_count += 1
        number = <uint64_t> self.life << 32 | self.mpub_count
        self.begun_mpubs[number] = self.ring.filling
        return number

    cdef uint64_t needed_by_mpubs(self):
        """From which batch on a checkpoint that begins now leaves the log as it is."""
        return min(self.begun_mpubs.values(), default=self.ring.filling)

    cdef int check_mpub(self, uint64_t mpub) except -1:
        """OSError if it cannot go on: no publish is taken, or the log is full and will be until this MPUB is gone."""
        self.admit(1, 0)
        if self.ring.is_full() and self.ring.needed_from >= <uint64_t> self.begun_mpubs[mpub]:
            raise OSError(EAGAIN, "the commit log is behind, its disk is too slow")
        return 0

    cdef int forget_mpubs(self) except -1:
        """A checkpoint begins: it will see all of those that are over by now."""
        self.released_mpubs = {mpub: released for mpub, released in self.released_mpubs.items()
                               if mpub in self.begun_mpubs}
        return 0

    cdef uint64_t mark(self) noexcept:
        self.marked_count, self.newly_released = self.message_count, 0
        return self.ring.used

    cdef int cut(self, uint64_t mark) except -1:
        self.message_count = self.marked_count
        if self.newly_released:
            del self.released_mpubs[self.newly_released]
            self.newly_released = 0
        return self.ring.cut(mark)

    cdef uint64_t ticket(self) noexcept:
        return self.ring.filling

    cdef int want_writing(self, object position) except -1:
        if not self.unwritten:
            self.on_record()
        self.unwritten.append(position)
        return 0

    cdef uint64_t done(self) noexcept:
        return self.ring.written if self.is_interval else self.ring.committed

    cdef int note_room(self, str trouble) except -1:
        """Decide whether publishes are taken from now on. trouble: why there is no checkpoint, or ""."""
        if self.ring.failed:
            self.refusal = "the commit log cannot be written until a restart"
        elif not trouble or self.ring.fill() < FULL_SHARE:
            self.refusal = None
        else:
            self.refusal = f"the commit log is full, and there is no checkpoint: {trouble}"
        return 0

    def figures(self):
        """Return how it is, and what it has done since the start, by the keys of /stats."""
        cdef CommitRing ring = self.ring
        cdef Histogram times = Histogram()
        times.steps = ring.figures.times
        return {
            "mode": "interval" if self.is_interval else "always",
            "failed": ring.failed != 0,
            "refusal": self.refusal or "",
            "size_bytes": ring.folder.good_size(),
            "needed_bytes": ring.needed(),
            "bad_quarters": QUARTER_COUNT - ring.folder.count_good(),
            "commit_count": ring.figures.commits,
            "commit_bytes": ring.figures.bytes,
            "record_count": ring.figures.records,
            "message_count": self.message_count,
            "commit_times": times,
            "error_count": ring.figures.failed_count,
            "missed_count": self.missed_count,
            "checkpoint_count": self.checkpoints.count,
            "checkpoint_s": self.checkpoints.sum_ns / 1e9,
            "last_checkpoint": self.checkpoints.ended_ns // 1000000000,
            "last_checkpoint_ms": self.checkpoints.last_ns // 1000000,
            "carried_bytes": self.checkpoints.carried_bytes,
        }


cdef class QueueLog:
    """The records of one queue."""

    def __init__(self, EventLog log not None, uint32_t number):
        self.log = log
        self.number = number

    cdef bint publish(self, Message *message, uint32_t tries, int64_t due_ns, bint is_spread) except -1:
        """Return whether the log has it."""
        cdef char *out = self.log.append(PUBLISHED, is_spread | failure_flags(tries), <uint16_t> tries, self.number,
                                         PUBLISHED_SIZE + message.size)
        if out is not NULL:
            put_published(out, message, due_ns)
            memcpy(out + PUBLISHED_SIZE, message.body, message.size)
        return out is not NULL

    cdef int add_piece(self, uint64_t mpub, uint64_t piece, int64_t published_ns, uint64_t first_id,
                       const char *bodies, size_t size) except -1:
        cdef char *out
        self.log.admit(1, PIECE_HEAD_SIZE + size)
        out = self.log.append(PIECE, 0, 0, self.number, PIECE_HEAD_SIZE + size)
        if out is not NULL:
            put_number(out, mpub)
            put_number(out + 8, piece)
            put_number(out + 16, <uint64_t> published_ns)
            put_number(out + 24, first_id)
            memcpy(out + PIECE_HEAD_SIZE, bodies, size)
        return 0

    cdef int release(self, uint64_t mpub, uint64_t piece, bint is_spread) except -1:
        cdef char *out
        if not self.log.ring.failed and self.log.ring.room() < RECORD_OVERHEAD:
            raise OSError(EAGAIN, "the commit log is behind, its disk is too slow")
        if mpub and mpub not in self.log.released_mpubs:
            self.log.released_mpubs[mpub] = self.number, self.log.done()
            self.log.newly_released = mpub
        out = self.log.append(RELEASED, SPREAD if is_spread else 0, 0, self.number, RELEASED_SIZE)
        if out is not NULL:
            put_number(out, mpub)
            put_number(out + 8, piece)
        return 0

    cdef int finish(self, uint64_t id, uint64_t index) except -1:
        cdef char *out = self.log.append(FINISHED, 0, 0, self.number, 16)
        if out is not NULL:
            put_number(out, id)
            put_number(out + 8, index)
        return 0

    cdef bint take_over(self, Message *message, uint64_t index, uint32_t tries, int64_t due_ns) except -1:
        """The log keeps a message from now on that has a record in a file; False: the file still does."""
        cdef size_t mark = self.log.ring.used
        self.finish(message.id, index)
        if self.publish(message, tries, due_ns, False):
            return True
        self.log.ring.cut(mark)
        return False

    cdef int give_back(self, uint64_t id, uint32_t tries, int64_t due_ns) except -1:
        cdef char *out = self.log.append(RETURNED, failure_flags(tries), <uint16_t> tries, self.number, 16)
        if out is not NULL:
            put_number(out, id)
            put_number(out + 8, <uint64_t> due_ns)
        return 0

    cdef int empty(self) except -1:
        self.log.append(EMPTIED, 0, 0, self.number, 0)
        return 0

    cdef int delete(self, str name) except -1:
        """With its name: a start removes what is left of its files even if nothing else tells of it."""
        cdef bytes text = name.encode()
        cdef char *out = self.log.append(DELETED, 0, 0, self.number, len(text))
        if out is not NULL:
            memcpy(out, <const char *> text, len(text))
        return 0

    cdef int place(self, Place cursor, Place written) except -1:
        cdef char *out = self.log.append(PLACED, 0, 0, self.number, 48)
        if out is not NULL:
            put_place(out, cursor)
            put_place(out + 24, written)
        return 0
