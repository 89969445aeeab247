"""One helper thread that runs fdatasync for all queues, a batch at a time, and reports through an eventfd."""

from libc.stdint cimport uint64_t, uintptr_t

from nsqfast._ext.commitlog.ring cimport CommitRing
from nsqfast._ext.core.budget cimport Budget
from nsqfast._ext.storage.health cimport Health


cdef extern from "storage/diskqueue/syncer.h" nogil:
    ctypedef struct Worker "nsq_syncer":
        int event_fd

    ctypedef struct OpenFile "nsq_file":
        int fd

    void keep_file "nsq_file_keep"(OpenFile *file)
    void drop_file "nsq_file_drop"(OpenFile *file)


cdef class Syncer:
    cdef Worker *worker                  # NULL until the first request, and after close()
    cdef uintptr_t *pending              # files, a reference each; with the lowest bit set for their whole file system
    cdef size_t pending_size
    cdef size_t pending_capacity
    cdef size_t running_size             # of the running batch
    cdef readonly uint64_t open_ticket   # the number of the batch that is being gathered
    cdef readonly uint64_t done_ticket   # everything up to here was attempted
    cdef readonly uint64_t failed_ticket # the last batch in which something failed; 0 = none
    cdef uint64_t all_ticket             # of request_all(); 0 = not requested
    cdef readonly object open_queues     # OrderedDict: those with open data files, in the order of opening
    cdef public Py_ssize_t open_max      # how many may have
    cdef public Py_ssize_t short_from    # a descriptor with this number or a higher one means that hardly any is left
    cdef Py_ssize_t lately_opened        # the highest of the descriptors opened lately, see open_file(); -1 = none was
    cdef object waiting                  # queues whose cursors wait for a batch
    cdef readonly int error_errno        # the first failure not yet reported by completed(); 0 = none
    cdef uint64_t sync_count             # fsyncs done when the last batch ended
    cdef readonly Health health
    cdef public object on_pending        # called without arguments once per batch, at its first request

    cdef dict removable                  # files to be removed: prefix of a queue -> [(batch that says why, paths)]
    cdef CommitRing ring                 # None: there is no log
    cdef object on_removable             # called without arguments when there are some; None: they are removed at once

    cdef dict folders                    # path -> Folder; kept open, since their names are synced again and again

    cdef OpenFile *open_file(self, int fd) except NULL      # takes the descriptor over
    cdef uint64_t request(self, OpenFile *file) except 0
    cdef uint64_t request_folder(self, str path) except 0
    cdef uint64_t request_all(self, str path) except 0
    cdef int open_folder(self, str path) except -1
    cpdef int start_batch(self) except -1
    cpdef int wait(self, uint64_t ticket) except -1
    cdef bint wait_some(self, uint64_t ticket, int timeout_ms) except -1
    cdef uint64_t last_ticket(self) noexcept
    cdef int collect(self) except -1
    cdef int start(self) except -1
    cdef int remove_later(self, str prefix, object paths) except -1
    cdef void keep_file(self, str prefix, str path)
    cdef str next_removable(self)
    cdef bint may_remove(self, uint64_t batch) noexcept
    cdef bint has_removed(self, uint64_t end)
    cdef bint remove_next(self, str prefix, Budget *budget) except -1
    cdef int remove_all(self) except -1
    cdef int remove_now(self, str prefix) except -1
    cdef bint remove_some(self, str prefix, object paths, Budget *budget) except -1
    cdef bint dispose(self, str path) except -1
    cdef int rename(self, str draft, str path) except -1
    cdef bint may_close(self) noexcept
    cdef int close_later(self, int fd) except -1
    cdef int add(self, OpenFile *file, int how) except -1
    cdef bint make_room(self) except -1
    cdef bint is_crowded(self) noexcept
    cdef bint has_open(self) noexcept
    cdef bint is_running(self) noexcept
    cdef int announce(self) except -1
    cdef int widen(self) except -1
    cdef void stop(self) noexcept


cdef class Folder:
    cdef OpenFile *file
