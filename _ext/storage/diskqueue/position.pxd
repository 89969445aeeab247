"""Where a queue on disk begins and ends, and what its ack file and metadata say about that."""

from libc.stdint cimport int64_t, uint64_t

from nsqfast._ext.storage.diskqueue.ackfile cimport AckFile, Place
from nsqfast._ext.storage.diskqueue.eventlog cimport QueueLog
from nsqfast._ext.storage.diskqueue.recovery cimport Recovered
from nsqfast._ext.storage.diskqueue.syncer cimport OpenFile, Syncer


cdef class FileOwner:
    # An owner of data files that may be open.
    cdef bint close_idle(self) except -1


cdef class DiskPosition:
    cdef FileOwner owner
    cdef readonly str name
    cdef str prefix                     # <data_path>/<name>.diskqueue.
    cdef Syncer syncer
    cdef QueueLog log                   # None: nothing is logged of this queue, or not any more
    cdef bint was_logged                # the metadata says that it is the log's
    cdef str birth                      # its line about where the queue was made (see births.pyx), or ""
    cdef AckFile acks                   # None until there is something to store
    cdef bint closed
    cdef bint is_open                   # data files may be open
    cdef readonly int64_t unacked       # from the cursor on, whether read or not
    cdef bint in_batch                  # records are gathered and acknowledgements postponed
    cdef list postponed_acks            # ordinals acknowledged while the batch is open

    # Where it ends: what is published
    cdef uint64_t written               # index of the next record
    cdef int64_t write_file
    cdef int64_t write_position
    cdef bint tail_dirty                # bytes behind it must be cut off before the next write
    # With a log, which has them as well, the last bytes before it are written at the end of a turn, or before they are
    # read or synced.
    cdef char *unwritten
    cdef size_t unwritten_size
    cdef size_t unwritten_capacity
    cdef int unwritten_fd               # of the write file

    # Where it begins
    cdef uint64_t cursor                # index of the first record not finished
    cdef int64_t cursor_file            # where it starts
    cdef int64_t cursor_position
    cdef Place kept                     # the cursor in the ack file and the metadata
    cdef Place next_kept                # the same once wait_ticket is done
    cdef uint64_t wait_ticket           # 0 = of the next requested fsync
    cdef bint is_waiting
    cdef uint64_t copied_from           # no batch of fsyncs before this one has copies; 0 = there are none
    cdef uint64_t copied_ticket         # all copies made so far are on disk when it is done...
    cdef bint has_new_copies            # ...except some for which no fsync was requested yet

    # Hollow records behind this are sealed (see hollow.h); file -1: not known
    cdef int64_t sealed_file
    cdef int64_t sealed_position

    # The metadata file
    cdef str meta_text                  # its content now
    cdef str meta_synced                # the same if it is known to be on disk
    cdef list unread                    # paths of the links to what was given up
    cdef list meta_draft                # what waits for its fsync to replace it; None = nothing

    cdef int open(self, Recovered found) except -1
    cdef int note_open(self) except -1

    # Count bytes as written to the end of the write file.
    cdef int write_later(self, int fd, const char *data, size_t size) except -1
    # OSError: they stay, for the next call.
    cdef int write_unwritten(self) except -1
    # Forget the last ones; they are not cut off.
    cdef void drop_unwritten(self, size_t size) noexcept

    cdef int move_cursor(self, int64_t file, int64_t position) except -1
    cdef int keep_cursor(self) except -1
    cdef int log_places(self) except -1
    cdef int keep(self, Place place) except -1
    cdef int note_copy(self, uint64_t ticket) except -1
    cdef bint has_failed(self) noexcept
    cdef bint are_copies_kept(self) noexcept
    cdef bint synced(self) except -1
    cdef uint64_t kept_behind(self) noexcept

    cdef list meta_now(self)
    cdef str text_of(self, list numbers)
    cdef int note_sealed(self) except -1
    cdef bint is_meta_due(self)
    cpdef uint64_t begin_meta(self) except? 0
    cpdef int end_meta(self) except -1
    cpdef int drop_meta(self) except -1
    cdef OpenFile *put_meta(self) except NULL
    cdef int try_meta(self) except -1
