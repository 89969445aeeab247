"""A batch becomes one block of bytes, without an object per message.

Both formats stop behind the first row with which more than `size_max` bytes are written, and the next call continues
there: a full file includes the message that filled it.

JSON: a UTF-8 body is a string under `body`, any other is under `body_base64`; both can be restored exactly.
"""

cimport cython
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint64_t
from libc.string cimport memcpy

from nsqfast._ext.core.limits cimport MESSAGE_ID_SIZE
from nsqfast._ext.protocol.buffer cimport WriteBuffer

cdef extern from "Python.h":
    object new_bytes "PyBytes_FromStringAndSize"(const char *data, Py_ssize_t size)

cdef enum:
    ESCAPED_SIZE_MAX = 6    # \u0000
    NUMBER_SIZE_MAX = 24
    COUNTED_SIZE = 4096     # larger texts are measured before they are escaped
    ROOM_SIZE = ESCAPED_SIZE_MAX * COUNTED_SIZE

cdef uint64_t ONES = 0x0101010101010101
cdef uint64_t HIGHS = 0x8080808080808080
cdef const char *HEX = "0123456789abcdef"
cdef const char *BASE64 = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"


cdef class Rows:
    """The common part of both formats."""

    def __init__(self, bytes bodies not None, bytes offsets not None):
        cdef Py_ssize_t row
        self.bodies = bodies
        self.offsets = offsets
        self.offset = <const int64_t *> <const char *> offsets
        self.count = len(offsets) // 8 - 1
        if self.count < 0 or self.offset[0] < 0 or self.offset[self.count] > len(bodies):
            raise ValueError("offsets that are not within the bodies")
        for row in range(self.count):
            if self.offset[row] > self.offset[row + 1]:
                raise ValueError("offsets that go back")

    cdef Py_ssize_t end_of(self, int64_t size_max) noexcept:
        """Return the row before which to stop, so that as lines the rows from `next` on are just larger than
        `size_max`."""
        cdef Py_ssize_t low = self.next, high = self.count, middle
        cdef int64_t start = self.offset[low] + low
        while low < high:
            middle = (low + high) // 2
            if self.offset[middle + 1] + middle + 1 - start > size_max:
                high = middle
            else:
                low = middle + 1
        return min(low + 1, self.count)


@cython.final
cdef class Lines(Rows):
    """Each body, followed by a newline."""

    def take(self, int64_t size_max):
        """Return the next rows as one block."""
        cdef Py_ssize_t row, first = self.next, last = self.end_of(size_max)
        cdef int64_t size
        cdef bytes block = new_bytes(NULL, self.offset[last] - self.offset[first] + last - first)
        cdef char *place = block
        cdef const char *body = self.bodies
        cdef const int64_t *offset = self.offset
        with nogil:
            for row in range(first, last):
                size = offset[row + 1] - offset[row]
                memcpy(place, body + offset[row], size)
                place[size] = c"\n"
                place += size + 1
        self.next = last
        return block


@cython.final
cdef class JsonLines(Rows):
    """A record is `head`, the id, the timestamp, the attempts, its source's entry in `tails`, and the body."""

    def __init__(self, taken, bytes head not None, list tails not None):
        cdef const uint16_t *source
        cdef Py_ssize_t row
        super().__init__(taken.bodies, taken.offsets)
        self.identities = taken.identities
        self.timestamps = taken.timestamps
        self.attempts = taken.attempts
        self.sources = taken.sources
        self.head = head
        self.tails = tails
        if not (len(self.identities) == MESSAGE_ID_SIZE * self.count and len(self.timestamps) == 8 * self.count
                and len(self.attempts) == len(self.sources) == 2 * self.count):
            raise ValueError("columns of different lengths")
        source = <const uint16_t *> <const char *> self.sources
        for row in range(self.count):
            if source[row] >= len(tails):
                raise ValueError("a source without a tail")

    def take(self, int64_t size_max):
        """Return the next rows as one block."""
        cdef WriteBuffer out = WriteBuffer()
        cdef const uint16_t *source = <const uint16_t *> <const char *> self.sources
        cdef bytes tail = b""
        cdef int known = -1
        cdef Py_ssize_t row = self.next
        # Usually little is escaped, and a block that has to grow is copied.
        out.reserve((self.offset[self.count] - self.offset[row]) * 9 // 8 + (self.count - row) * 160 + ROOM_SIZE)
        out.size = 0
        while row < self.count and out.size <= size_max:
            if source[row] != known:
                known = source[row]
                tail = self.tails[known]
            self.begin_record(out, row, tail)
            write_body(out, <const uint8_t *> <const char *> self.bodies + self.offset[row],
                       self.offset[row + 1] - self.offset[row])
            row += 1
        self.next = row
        return out.take()

    cdef int begin_record(self, WriteBuffer out, Py_ssize_t row, bytes tail) except -1:
        cdef int64_t timestamp_ns = (<const int64_t *> <const char *> self.timestamps)[row]
        cdef uint16_t attempts = (<const uint16_t *> <const char *> self.attempts)[row]
        cdef const uint8_t *identity = <const uint8_t *> <const char *> self.identities + row * MESSAGE_ID_SIZE
        out.append(<const char *> self.head, len(self.head))
        # nsqd's ids are 16 hex digits; another peer's bytes must not break the record.
        if write_text(out, identity, MESSAGE_ID_SIZE) < 0:
            write_hex(out, identity, MESSAGE_ID_SIZE)
        out.append(b'","timestamp_ns":', 17)
        write_number(out, timestamp_ns)
        out.append(b',"attempts":', 12)
        write_number(out, attempts)
        out.append(<const char *> tail, len(tail))
        return 0


cdef int write_number(WriteBuffer out, int64_t number) except -1:
    cdef char *place = out.reserve(NUMBER_SIZE_MAX)
    cdef char digits[24]
    cdef int size = 0
    cdef uint64_t rest = <uint64_t> number if number >= 0 else 0 - <uint64_t> number
    while True:
        digits[size] = c"0" + <char> (rest % 10)
        rest //= 10
        size += 1
        if rest == 0:
            break
    out.size -= NUMBER_SIZE_MAX - size - (number < 0)
    if number < 0:
        place[0] = c"-"
        place += 1
    while size:
        size -= 1
        place[0] = digits[size]
        place += 1
    return 0


cdef int write_body(WriteBuffer out, const uint8_t *body, Py_ssize_t size) except -1:
    cdef Py_ssize_t begun = out.size
    out.append(b'"body":"', 8)
    if write_text(out, body, size) < 0:
        out.size = begun
        out.append(b'"body_base64":"', 15)
        write_base64(out, body, size)
    out.append(b'"}\n', 3)
    return 0


cdef int write_hex(WriteBuffer out, const uint8_t *data, Py_ssize_t size) except -1:
    cdef char *place = out.reserve(2 * size)
    cdef Py_ssize_t i
    for i in range(size):
        place[2 * i] = HEX[data[i] >> 4]
        place[2 * i + 1] = HEX[data[i] & 15]
    return 0


cdef Py_ssize_t write_text(WriteBuffer out, const uint8_t *text, Py_ssize_t size) except -2:
    """Write it as a JSON string without the quotes; -1 and nothing written if it is not UTF-8."""
    cdef Py_ssize_t room = size * ESCAPED_SIZE_MAX
    cdef uint8_t *place
    cdef Py_ssize_t written
    # Large texts are measured first, so that a body of 1 MiB does not reserve six.
    if size > COUNTED_SIZE:
        room = escaped_size(text, size)
        if room < 0:
            return -1
    place = <uint8_t *> out.reserve(room + 8)
    written = escape(place, text, size)
    out.size -= room + 8 - max(written, 0)
    return written


cdef inline bint is_plain(uint64_t word) noexcept nogil:
    """Whether none of the eight bytes is a control character, a quote, a backslash, or beyond ASCII."""
    cdef uint64_t quote = word ^ (ONES * 0x22), slash = word ^ (ONES * 0x5C)
    return ((word | (word - ONES * 0x20) | (quote - ONES) | (slash - ONES)) & HIGHS) == 0


cdef Py_ssize_t escaped_size(const uint8_t *text, Py_ssize_t size) noexcept nogil:
    """Return the size that `escape` writes; -1 if it is not UTF-8."""
    cdef Py_ssize_t i = 0, total = 0
    cdef int length
    cdef uint64_t word
    while i < size:
        if i + 8 <= size:
            memcpy(&word, text + i, 8)
            if is_plain(word):
                i += 8
                total += 8
                continue
        if text[i] >= 0x80:
            length = sequence_size(text + i, size - i)
            if length == 0:
                return -1
            i += length
            total += length
        else:
            total += 1 if text[i] >= 0x20 and text[i] != 0x22 and text[i] != 0x5C else (2 if short_form(text[i]) else 6)
            i += 1
    return total


cdef Py_ssize_t escape(uint8_t *place, const uint8_t *text, Py_ssize_t size) noexcept nogil:
    """Return how many bytes were written, or -1. Up to eight bytes behind them may be overwritten."""
    cdef uint8_t *begin = place
    cdef Py_ssize_t i = 0
    cdef int length
    cdef uint8_t byte
    cdef uint64_t word
    while i < size:
        if i + 8 <= size:
            memcpy(&word, text + i, 8)
            if is_plain(word):
                memcpy(place, &word, 8)
                i += 8
                place += 8
                continue
        byte = text[i]
        if byte >= 0x80:
            length = sequence_size(text + i, size - i)
            if length == 0:
                return -1
            memcpy(place, text + i, length)
            i += length
            place += length
            continue
        i += 1
        if byte >= 0x20 and byte != 0x22 and byte != 0x5C:
            place[0] = byte
            place += 1
        else:
            place += escape_byte(place, byte)
    return place - begin


cdef inline uint8_t short_form(uint8_t byte) noexcept nogil:
    """Return the letter behind the backslash; 0 = none, it takes six characters."""
    if byte == 0x22 or byte == 0x5C:
        return byte
    if byte == 0x0A:
        return c"n"
    if byte == 0x0D:
        return c"r"
    if byte == 0x09:
        return c"t"
    return 0


cdef inline int escape_byte(uint8_t *place, uint8_t byte) noexcept nogil:
    place[0] = 0x5C
    place[1] = short_form(byte)
    if place[1]:
        return 2
    memcpy(place + 1, b"u00", 3)
    place[4] = HEX[byte >> 4]
    place[5] = HEX[byte & 15]
    return ESCAPED_SIZE_MAX


cdef int sequence_size(const uint8_t *text, Py_ssize_t size) noexcept nogil:
    """Return the size of the non-ASCII character that begins here; 0 if there is none (RFC 3629)."""
    cdef uint8_t first = text[0], second
    if size < 2 or first < 0xC2 or first > 0xF4:
        return 0
    second = text[1]
    if first < 0xE0:
        return 2 if is_continuation(second) else 0
    if size < 3 or not is_continuation(text[2]):
        return 0
    if first < 0xF0:
        if first == 0xE0 and second < 0xA0 or first == 0xED and second > 0x9F:
            return 0
        return 3 if is_continuation(second) else 0
    if size < 4 or not is_continuation(text[3]):
        return 0
    if first == 0xF0 and second < 0x90 or first == 0xF4 and second > 0x8F:
        return 0
    return 4 if is_continuation(second) else 0


cdef inline bint is_continuation(uint8_t byte) noexcept nogil:
    return byte & 0xC0 == 0x80


cdef int write_base64(WriteBuffer out, const uint8_t *data, Py_ssize_t size) except -1:
    cdef char *place = out.reserve((size + 2) // 3 * 4)
    cdef Py_ssize_t i
    cdef unsigned int group
    cdef int left
    for i in range(0, size, 3):
        left = <int> min(size - i, 3)
        group = data[i] << 16
        if left > 1:
            group |= data[i + 1] << 8
        if left > 2:
            group |= data[i + 2]
        place[0] = BASE64[group >> 18]
        place[1] = BASE64[group >> 12 & 63]
        place[2] = BASE64[group >> 6 & 63] if left > 1 else c"="
        place[3] = BASE64[group & 63] if left > 2 else c"="
        place += 4
    return 0
