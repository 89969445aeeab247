"""The bodies of one /mpub, as lines or each with its size before it, on their way into a topic.

    check ─► check ─► all valid: is_checked ─► put ─► put ─► is_done
    a part of it each          │               as a whole, or a very large one slice by slice
                               └ with a log, a very large one: log_some ─► log_some ─► all logged ─► is_over

A call of check or log_some lasts at most a part of a turn, and a slice is short; the rest follows in later turns.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.pyport cimport PY_SSIZE_T_MAX
from libc.stdint cimport uint32_t
from libc.string cimport memchr, memcpy

from nsqfast._ext.broker.large_mpub cimport PIECE_COUNT_MAX, PIECE_SIZE_MAX
from nsqfast._ext.broker.topic cimport SLICE_MAX
from nsqfast._ext.core.budget cimport begin_part, is_spent
from nsqfast._ext.core.limits cimport WHOLE_MAX
from nsqfast._ext.core.message cimport get_be32, put_be32
from nsqfast._ext.protocol.body cimport Body

from nsqfast.errors import ProtocolError
from nsqfast.wire.refusals import NotTakenError

cdef enum:
    # A line is one unit of a part, and one more for each 4 KiB of it.
    UNIT_BITS = 12


cdef class Bodies:
    """ProtocolError BAD_BODY, BAD_MESSAGE or MSG_TOO_BIG (spec nsqd-http §3) before anything is queued."""

    def __init__(self, Topic topic not None, data, bint is_binary):
        cdef Body body
        self.topic = topic
        self.owner = data
        if isinstance(data, Body):
            body = data
            self.data = body.data
            self.size = body.size
        else:
            self.size = len(<bytes?> data)
            self.data = PyBytes_AS_STRING(data)
        self.is_binary = is_binary
        if is_binary:
            self.begin()

    cdef int begin(self) except -1:
        """Read count(4), which stands in front of {size(4) body}..."""
        if self.size < 4:
            raise ProtocolError("BAD_BODY")
        self.count = get_be32(self.data)
        if not 0 < self.count <= <uint64_t> ((self.topic.durability.settings.max_body_size - 4) // 5):
            raise ProtocolError("BAD_BODY")
        self.offset = 4
        return 0

    def check(self):
        """Check a part of it; return whether that was the last."""
        cdef Budget budget = begin_part()
        return self.check_some(&budget)

    cdef bint check_some(self, Budget *budget) except -1:
        if not self.is_checked:
            self.is_checked = self.check_binary(budget) if self.is_binary else self.check_lines(budget)
            if self.is_checked:
                self.offset = 4 if self.is_binary else 0
                self.seen_count = 0
        return self.is_checked

    cdef bint check_binary(self, Budget *budget) except -1:
        cdef const char *data = self.data
        cdef Py_ssize_t size = self.size, message_size
        cdef int64_t message_size_max = self.topic.durability.settings.max_msg_size
        while self.seen_count < self.count:
            if size - self.offset < 4:
                raise ProtocolError("BAD_MESSAGE")
            message_size = get_be32(data + self.offset)
            if not 0 < message_size <= message_size_max or size - self.offset - 4 < message_size:
                raise ProtocolError("BAD_MESSAGE")
            self.offset += 4 + message_size
            self.seen_count += 1
            if is_spent(budget, 1):
                return self.seen_count == self.count
        return True

    cdef bint check_lines(self, Budget *budget) except -1:
        """Empty lines are not messages."""
        cdef const char *data = self.data
        cdef Py_ssize_t size = self.size, line_size
        cdef int64_t message_size_max = self.topic.durability.settings.max_msg_size
        while self.offset < size:
            line_size = line_length(data + self.offset, size - self.offset)
            if line_size > message_size_max:
                raise ProtocolError("MSG_TOO_BIG")
            self.count += line_size > 0
            self.offset += line_size + 1
            if is_spent(budget, 1 + (line_size >> UNIT_BITS)):
                return self.offset >= size
        return True

    def put(self):
        """Put all of them, or the next slice of very many. Return a ticket (Durability.when_durable); NotTakenError."""
        return self.put_next()

    cdef uint64_t put_next(self) except? 0:
        cdef uint64_t count = self.count - self.seen_count
        cdef Py_ssize_t size
        cdef bytes lines
        cdef bint is_slice = self.count > WHOLE_MAX
        if is_slice:
            if self.seen_count == 0:
                self.topic.refuse_if_full(count, self.size_of_bodies())
            count = min(count, <uint64_t> SLICE_MAX)
        self.seen_count += count
        if not self.is_binary:
            lines = self.take_lines(&count, PY_SSIZE_T_MAX)
            return self.topic.publish_many(lines, len(lines), count, is_slice)
        size = skip_bodies(self.data + self.offset, count)
        self.offset += size
        return self.topic.publish_many(self.data + self.offset - size, size, count, is_slice)

    cdef uint64_t size_of_bodies(self) noexcept:
        """Together; of lines it is what stands between them, too."""
        return self.size - 4 - 4 * self.count if self.is_binary else self.size

    # A large one with a commit log

    def log_some(self):
        """Bring a part of them into the log; return whether all are there, and on their way. NotTakenError: none is."""
        if self.large is None:
            self.topic.refuse_if_full(self.count, self.size_of_bodies())
            self.large = self.topic.begin_large(self.count)
        return log_pieces(self.topic, self.large, self.data, &self.offset, &self.seen_count,
                          None if self.is_binary else self)

    cdef bytes take_lines(self, uint64_t *count, Py_ssize_t size_max):
        """Return {size (4), body} of the next ones that are not empty, of so many, or as many as have such a size."""
        cdef const char *data = self.data
        cdef Py_ssize_t start = self.offset, line_size, total = 0
        cdef uint64_t seen = 0
        cdef bytes piece
        cdef char *out
        while seen < count[0]:
            line_size = line_length(data + self.offset, self.size - self.offset)
            if seen and total + line_size > size_max:
                break
            total += 4 + line_size if line_size else 0
            seen += line_size > 0
            self.offset += line_size + 1
        piece = PyBytes_FromStringAndSize(NULL, total)
        out = PyBytes_AS_STRING(piece)
        while start < self.offset:
            line_size = line_length(data + start, self.size - start)
            if line_size:
                put_be32(out, <uint32_t> line_size)
                memcpy(out + 4, data + start, line_size)
                out += 4 + line_size
            start += line_size + 1
        count[0] = seen
        return piece

    def when_over(self, callback):
        """Call callback() as soon as all of them are in the queues, or will never be."""
        if self.large.is_over:
            callback()
        else:
            self.large.on_over = callback

    def leave(self):
        """Nobody waits for them any more: of what is not on its way nothing is kept."""
        if self.large is not None:
            self.large.leave()

    @property
    def ticket(self):
        """What an OK has to wait for; NotTakenError: they are not in the queues."""
        if self.large.error is not None:
            raise NotTakenError(self.large.error)
        return self.large.ticket

    @property
    def is_logged(self):
        """Whether the topic has a commit log."""
        return self.topic.has_log

    cpdef bint has_parts(self) noexcept:
        """Whether they are put in several turns: there are many, or the log has to be written first."""
        return self.count > WHOLE_MAX or (
            self.count > 0 and self.topic.has_log and self.topic.durability.store.must_wait())

    @property
    def is_done(self):
        """Whether all of them were put."""
        return self.seen_count == self.count


cdef Py_ssize_t line_length(const char *data, Py_ssize_t size) noexcept:
    cdef const char *newline = <const char *> memchr(data, c"\n", size)
    return size if newline is NULL else newline - data


cdef bint log_pieces(Topic topic, LargeMpub mpub, const char *data, Py_ssize_t *size, uint64_t *done,
                     Bodies lines=None) except -1:
    cdef Budget budget = begin_part()
    cdef Py_ssize_t following = 0
    cdef uint64_t count = 0
    cdef bytes piece
    while done[0] < mpub.count:
        if is_spent(&budget, <int64_t> count + (following >> UNIT_BITS)) or not topic.may_add_piece(mpub):
            return False
        count = mpub.count - done[0]
        if lines is not None:
            count = min(count, <uint64_t> PIECE_COUNT_MAX)
            piece = lines.take_lines(&count, PIECE_SIZE_MAX)
            following = len(piece)
        else:
            following = piece_size(data + size[0], &count)
            piece = data[size[0]:size[0] + following]
            size[0] += following
        topic.add_piece(mpub, piece, count)
        done[0] += count
    topic.release_large(mpub)
    return True


cdef Py_ssize_t piece_size(const char *data, uint64_t *count) noexcept:
    cdef Py_ssize_t size = 0, following
    cdef uint64_t seen = 0
    while seen < min(count[0], <uint64_t> PIECE_COUNT_MAX):
        following = 4 + <Py_ssize_t> get_be32(data + size)
        if seen and size + following > PIECE_SIZE_MAX:
            break
        size += following
        seen += 1
    count[0] = seen
    return size


cdef Py_ssize_t skip_bodies(const char *data, uint64_t count) noexcept:
    """Return the size of so many {size(4) body}, which were checked."""
    cdef Py_ssize_t offset = 0
    cdef uint64_t _
    for _ in range(count):
        offset += 4 + <Py_ssize_t> get_be32(data + offset)
    return offset
