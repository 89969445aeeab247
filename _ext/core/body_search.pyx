"""One pass over a body finds its fields, without an object for any of them: a byte takes about a nanosecond.

    {"user": {"id": 17}, "tags": ["a", "b"]}     user.id = 17, tags = a, tags = b

A path is the keys on the way to a value, with dots between them; an array is passed through, so that each of its
elements counts. A string is compared as what it says, anything else as it is written. What is no JSON to its last byte
has no fields.
"""

from libc.stdint cimport int64_t, uint32_t
from libc.string cimport memcmp

from nsqfast._ext.core.limits cimport (
    PEEK_NEEDLE_SIZE_MAX, SEARCH_DEPTH_MAX, SEARCH_JSON_SIZE_MAX, SEARCH_TERMS_MAX,
)

cdef extern from "<string.h>" nogil:
    const void *memmem(const void *data, size_t size, const void *needle, size_t needle_size)

cdef enum:
    # The size of a path that is longer than any that is looked for.
    TOO_LONG = PEEK_NEEDLE_SIZE_MAX + 1

# For Python.
TERMS_MAX = SEARCH_TERMS_MAX


ctypedef struct Reader:
    const unsigned char *at
    const unsigned char *end
    const Terms *terms
    uint32_t unmet                      # fields, a bit each
    size_t depth
    bint is_first                       # nothing was read yet of what was opened last
    bint is_object[SEARCH_DEPTH_MAX]
    size_t path_sizes[SEARCH_DEPTH_MAX]        # of the paths to these objects and arrays
    size_t path_size
    char path[TOO_LONG]
    char value[PEEK_NEEDLE_SIZE_MAX]


cdef class BodySearch:
    """Each of `terms` is a path and a value, and the path may be empty; `needle` is one more value."""

    def __init__(self, bytes needle not None=b"", tuple terms not None=()):
        cdef bytes path, value
        cdef Term *term
        self.kept = (*(((b"", needle),) if needle else ()), *terms)
        assert len(self.kept) <= SEARCH_TERMS_MAX
        for path, value in self.kept:
            assert len(path) <= PEEK_NEEDLE_SIZE_MAX and len(value) <= PEEK_NEEDLE_SIZE_MAX
            if path:
                self.terms.fields |= <uint32_t> 1 << self.terms.count
            term = &self.terms.terms[self.terms.count]
            term.path, term.path_size = path, len(path)
            term.value, term.value_size = value, len(value)
            self.terms.count += 1

    def is_met(self, bytes body not None):
        """Whether that body has all."""
        return is_met(&self.terms, body, len(body))

    cdef const Terms *all(self) noexcept:
        return &self.terms if self.terms.count else NULL


cdef bint is_met(const Terms *terms, const char *body, size_t size) noexcept nogil:
    cdef const Term *term
    cdef size_t i
    for i in range(terms.count):
        term = &terms.terms[i]
        if term.path_size == 0 and memmem(body, size, term.value, term.value_size) is NULL:
            return False
    return terms.fields == 0 or (size <= SEARCH_JSON_SIZE_MAX and has_fields(terms, body, size))


cdef bint has_fields(const Terms *terms, const char *body, size_t size) noexcept nogil:
    cdef Reader reader
    reader.at = <const unsigned char *> body
    reader.end = reader.at + size
    reader.terms, reader.unmet = terms, terms.fields
    reader.depth = reader.path_size = 0
    if not read_value(&reader):
        return False
    while reader.depth:
        if not read_member(&reader):
            return False
    return next_byte(&reader) < 0 and reader.unmet == 0


cdef int next_byte(Reader *reader) noexcept nogil:
    """The one behind white space, where the reader stands then; -1: there is none."""
    while reader.at < reader.end:
        if reader.at[0] not in (c' ', c'\n', c'\r', c'\t'):
            return reader.at[0]
        reader.at += 1
    return -1


cdef bint read_member(Reader *reader) noexcept nogil:
    """The next one of the innermost object or array, or its end; False: it is no JSON."""
    cdef bint is_object = reader.is_object[reader.depth - 1], is_first = reader.is_first
    cdef int byte = next_byte(reader)
    reader.is_first = False
    if byte == (c'}' if is_object else c']'):
        reader.at += 1
        reader.depth -= 1
        return True
    if not is_first:
        if byte != c',':
            return False
        reader.at += 1
    reader.path_size = reader.path_sizes[reader.depth - 1]
    return (not is_object or read_key(reader)) and read_value(reader)


cdef bint read_key(Reader *reader) noexcept nogil:
    """Go down the path."""
    cdef size_t size = reader.path_size
    cdef int64_t key_size
    if next_byte(reader) != c'"':
        return False
    if 0 < size < PEEK_NEEDLE_SIZE_MAX:
        reader.path[size] = c'.'
    size = min(size + (size > 0), <size_t> TOO_LONG)
    key_size = read_string(reader, reader.path + size, PEEK_NEEDLE_SIZE_MAX - <int64_t> size)
    if key_size < 0 or next_byte(reader) != c':':
        return False
    reader.at += 1
    reader.path_size = min(size + <size_t> key_size, <size_t> TOO_LONG)
    return True


cdef bint read_value(Reader *reader) noexcept nogil:
    """Of an object or an array only how it begins."""
    cdef int byte = next_byte(reader)
    cdef int64_t size
    if byte == c'"':
        if is_looked_for(reader):
            size = read_string(reader, reader.value, PEEK_NEEDLE_SIZE_MAX)
            if 0 <= size <= PEEK_NEEDLE_SIZE_MAX:
                note_value(reader, reader.value, <size_t> size)
        else:
            size = read_string(reader, NULL, 0)
        return size >= 0
    if byte != c'{' and byte != c'[':
        return read_scalar(reader)
    if reader.depth == SEARCH_DEPTH_MAX:
        return False
    reader.is_object[reader.depth] = byte == c'{'
    reader.path_sizes[reader.depth] = reader.path_size
    reader.depth += 1
    reader.is_first = True
    reader.at += 1
    return True


cdef bint is_here(const Reader *reader, size_t i) noexcept nogil:
    """Whether that term is a field that was not found yet, and is where the reader stands."""
    cdef const Term *term = &reader.terms.terms[i]
    return (reader.unmet >> i & 1 and term.path_size == reader.path_size
            and memcmp(term.path, reader.path, term.path_size) == 0)


cdef bint is_looked_for(const Reader *reader) noexcept nogil:
    cdef size_t i
    for i in range(reader.terms.count):
        if is_here(reader, i):
            return True
    return False


cdef void note_value(Reader *reader, const char *value, size_t size) noexcept nogil:
    cdef const Term *term
    cdef size_t i
    for i in range(reader.terms.count):
        term = &reader.terms.terms[i]
        if is_here(reader, i) and term.value_size == size and memcmp(term.value, value, size) == 0:
            reader.unmet &= ~(<uint32_t> 1 << i)


cdef bint read_scalar(Reader *reader) noexcept nogil:
    """A number, true, false or null."""
    cdef const char *start = <const char *> reader.at
    cdef size_t size = 0
    while reader.at < reader.end and reader.at[0] not in (
            c',', c'}', c']', c' ', c'\n', c'\r', c'\t'):
        reader.at += 1
        size += 1
    if not (is_number(start, size) or (size == 4 and (memcmp(start, b"true", 4) == 0 or memcmp(start, b"null", 4) == 0))
            or (size == 5 and memcmp(start, b"false", 5) == 0)):
        return False
    note_value(reader, start, size)
    return True


cdef bint is_number(const char *text, size_t size) noexcept nogil:
    """-? (0 | [1-9][0-9]*) (.[0-9]+)? ([eE][+-]?[0-9]+)?"""
    cdef size_t i = 0, start
    if i < size and text[i] == c'-':
        i += 1
    start = i
    i = skip_digits(text, size, i)
    if i == start or (text[start] == c'0' and i > start + 1):
        return False
    if i < size and text[i] == c'.':
        start = i + 1
        i = skip_digits(text, size, start)
        if i == start:
            return False
    if i < size and text[i] in (c'e', c'E'):
        i += 1
        if i < size and text[i] in (c'+', c'-'):
            i += 1
        start = i
        i = skip_digits(text, size, start)
        if i == start:
            return False
    return i == size


cdef size_t skip_digits(const char *text, size_t size, size_t i) noexcept nogil:
    while i < size and c'0' <= text[i] <= c'9':
        i += 1
    return i


cdef int64_t read_string(Reader *reader, char *out, int64_t room) noexcept nogil:
    """Write what it says as far as there is room, and return the size of all of it; -1: it is no JSON."""
    cdef int64_t size = 0
    cdef unsigned char byte
    reader.at += 1
    while reader.at < reader.end:
        byte = reader.at[0]
        reader.at += 1
        if byte == c'"':
            return size
        if byte < 32:
            return -1
        if byte == c'\\':
            size = read_escape(reader, out, room, size)
            if size < 0:
                return -1
        else:
            if size < room:
                out[size] = <char> byte
            size += 1
    return -1


cdef int64_t read_escape(Reader *reader, char *out, int64_t room, int64_t size) noexcept nogil:
    """What stands behind a backslash; return the size with it, or -1."""
    cdef int64_t code, low
    cdef unsigned char byte
    if reader.at == reader.end:
        return -1
    byte = reader.at[0]
    reader.at += 1
    if byte != c'u':
        code = escaped(byte)
        return put_code(code, out, room, size) if code else -1
    code = read_hex(reader)
    if 0xD800 <= code < 0xDC00 and reader.end - reader.at >= 6 and reader.at[0] == c'\\' and reader.at[1] == c'u':
        reader.at += 2
        low = read_hex(reader)
        if 0xDC00 <= low < 0xE000:
            code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00)
        elif low < 0:
            return -1
        else:
            reader.at -= 6      # it stands for itself
    return put_code(code, out, room, size) if code >= 0 else -1


cdef int escaped(unsigned char byte) noexcept nogil:
    """0: there is none."""
    if byte == c'n':
        return c'\n'
    if byte == c't':
        return c'\t'
    if byte == c'r':
        return c'\r'
    if byte == c'b':
        return 8
    if byte == c'f':
        return 12
    return byte if byte in (c'"', c'\\', c'/') else 0


cdef int64_t read_hex(Reader *reader) noexcept nogil:
    """Four digits; -1: they are not there."""
    cdef int64_t code = 0
    cdef const unsigned char *end = reader.at + 4
    cdef unsigned char byte
    if reader.end - reader.at < 4:
        return -1
    while reader.at < end:
        byte = reader.at[0]
        reader.at += 1
        if c'0' <= byte <= c'9':
            code = code << 4 | (byte - c'0')
        elif c'a' <= byte | 32 <= c'f':
            code = code << 4 | ((byte | 32) - c'a' + 10)
        else:
            return -1
    return code


cdef int64_t put_code(int64_t code, char *out, int64_t room, int64_t size) noexcept nogil:
    """The character in UTF-8."""
    cdef int more = 0 if code < 0x80 else 1 if code < 0x800 else 2 if code < 0x10000 else 3
    cdef int64_t lead = 0 if more == 0 else 0xFF00 >> more + 1 & 0xFF
    cdef int i
    for i in range(more + 1):
        if size < room:
            out[size] = <char> (lead | code >> 6 * more if i == 0 else 0x80 | (code >> 6 * (more - i) & 0x3F))
        size += 1
    return size
