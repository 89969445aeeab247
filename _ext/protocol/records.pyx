"""`split` and `encode` are two passes, so that a caller can choose among the records of a block in between."""

from typing import NamedTuple

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int64_t, uint8_t, uint32_t
from libc.string cimport memchr, memcpy

from nsqfast._ext.core.limits cimport LENGTH_SIZE, MPUB_SIZE_MAX
from nsqfast._ext.core.message cimport put_be32
from nsqfast._ext.protocol.publish_command cimport make_encoded

from nsqfast.errors import PublishError


class Pieces(NamedTuple):
    """`rest` is where the last piece begins, which has no delimiter yet."""

    starts: bytes
    ends: bytes
    rest: int


def split(const unsigned char[::1] data not None, int delimiter):
    """Split a block at a delimiter (one byte), which is not part of the pieces. Empty pieces are left out."""
    cdef const char *block = NULL
    cdef Py_ssize_t size = data.shape[0]
    cdef Py_ssize_t count, rest
    cdef bytes starts, ends
    if not 0 <= delimiter <= 255:
        raise ValueError(f"a delimiter is one byte, not {delimiter}")
    if size == 0:
        return Pieces(b"", b"", 0)
    block = <const char *> &data[0]
    with nogil:
        count = count_pieces(block, size, delimiter)
    starts = PyBytes_FromStringAndSize(NULL, count * sizeof(int64_t))
    ends = PyBytes_FromStringAndSize(NULL, count * sizeof(int64_t))
    cdef int64_t *first_start = <int64_t *> PyBytes_AS_STRING(starts)
    cdef int64_t *first_end = <int64_t *> PyBytes_AS_STRING(ends)
    with nogil:
        rest = find_pieces(block, size, delimiter, first_start, first_end)
    return Pieces(starts, ends, rest)


cdef Py_ssize_t count_pieces(const char *data, Py_ssize_t size, int delimiter) noexcept nogil:
    """Count the pieces that are not empty and have their delimiter."""
    cdef const char *start = data
    cdef const char *limit = data + size
    cdef const char *end
    cdef Py_ssize_t count = 0
    while start < limit:
        end = <const char *> memchr(start, delimiter, limit - start)
        if end is NULL:
            break
        count += end > start
        start = end + 1
    return count


cdef Py_ssize_t find_pieces(const char *data, Py_ssize_t size, int delimiter, int64_t *starts,
                            int64_t *ends) noexcept nogil:
    """Store the positions of the pieces; return where the last one without a delimiter begins."""
    cdef const char *start = data
    cdef const char *limit = data + size
    cdef const char *end
    while start < limit:
        end = <const char *> memchr(start, delimiter, limit - start)
        if end is NULL:
            break
        if end > start:
            starts[0] = start - data
            ends[0] = end - data
            starts += 1
            ends += 1
        start = end + 1
    return start - data


def encode(const unsigned char[::1] data not None, const int64_t[::1] starts not None,
           const int64_t[::1] ends not None, const uint8_t[::1] chosen not None, Py_ssize_t first,
           Py_ssize_t count_max, Py_ssize_t size_max):
    """Return the next MPUB of the records from `first` on, and the record with which the MPUB after it begins.

    `chosen` has a 1 for each wanted record. `size_max` limits the MPUB behind its size field; a record that does not
    fit goes alone. None instead of an MPUB: no more records are wanted.
    """
    cdef Py_ssize_t record_count = starts.shape[0]
    cdef Py_ssize_t size = LENGTH_SIZE
    cdef Py_ssize_t count = 0
    cdef Py_ssize_t index = first
    cdef Py_ssize_t wanted
    if ends.shape[0] != record_count or chosen.shape[0] != record_count or first < 0:
        raise ValueError("starts, ends and chosen have one item for each record")
    while index < record_count and count < count_max:
        if chosen[index]:
            if not 0 <= starts[index] <= ends[index] <= data.shape[0]:
                raise ValueError(f"record {index} is not within its block")
            wanted = LENGTH_SIZE + ends[index] - starts[index]
            if count and size + wanted > size_max:
                break
            size += wanted
            count += 1
        index += 1
    if count == 0:
        return None, index
    if size > MPUB_SIZE_MAX:
        raise PublishError(f"{size} bytes are too many for one publish")
    return make_encoded(join(data, starts, ends, chosen, first, index, count, size), count), index


cdef bytes join(const unsigned char[::1] data, const int64_t[::1] starts, const int64_t[::1] ends,
                const uint8_t[::1] chosen, Py_ssize_t first, Py_ssize_t limit, Py_ssize_t count, Py_ssize_t size):
    """Join the chosen records as an MPUB has them."""
    cdef bytes joined = PyBytes_FromStringAndSize(NULL, size)
    cdef char *place = PyBytes_AS_STRING(joined)
    cdef Py_ssize_t index, body_size
    with nogil:
        put_be32(place, <uint32_t> count)
        place += LENGTH_SIZE
        for index in range(first, limit):
            if chosen[index]:
                body_size = ends[index] - starts[index]
                put_be32(place, <uint32_t> body_size)
                if body_size:
                    memcpy(place + LENGTH_SIZE, &data[starts[index]], body_size)
                place += LENGTH_SIZE + body_size
    return joined
