"""The messages of one /mpub: all are checked before the first one is queued."""

from libc.stdint cimport int64_t, uint64_t

from nsqfast._ext.broker.large_mpub cimport LargeMpub
from nsqfast._ext.broker.topic cimport Topic
from nsqfast._ext.core.budget cimport Budget


cdef class Bodies:
    cdef Topic topic
    cdef object owner            # bytes or a Body: the memory of all of them
    cdef const char *data
    cdef Py_ssize_t size
    cdef bint is_binary
    cdef uint64_t count          # of messages; while lines are checked, of those behind `offset`
    cdef uint64_t seen_count     # checked so far, later: put so far
    cdef Py_ssize_t offset       # behind what was checked, later: behind what was put
    cdef readonly bint is_checked
    cdef LargeMpub large         # None = no piece of it was logged

    cdef int begin(self) except -1
    cdef bint check_some(self, Budget *budget) except -1
    cdef bint check_binary(self, Budget *budget) except -1
    cdef bint check_lines(self, Budget *budget) except -1
    cdef bytes take_lines(self, uint64_t *count, Py_ssize_t size_max)
    cdef uint64_t put_next(self) except? 0
    cdef uint64_t size_of_bodies(self) noexcept
    cpdef bint has_parts(self) noexcept


cdef Py_ssize_t skip_bodies(const char *data, uint64_t count) noexcept
# The size of the next piece of a large MPUB, of which so many {size(4) body} are left: count becomes that of the piece.
cdef Py_ssize_t piece_size(const char *data, uint64_t *count) noexcept

# Log what follows so many bytes and messages that were; `lines`: these keep the place. False: the part is over, or
# storage takes no more in this turn.
cdef bint log_pieces(Topic topic, LargeMpub mpub, const char *data, Py_ssize_t *size, uint64_t *done,
                     Bodies lines=*) except -1
