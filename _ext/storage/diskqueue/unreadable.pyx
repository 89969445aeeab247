"""Bytes that the disk does not return: how long they are tried for, and how they are kept for the next start.

A read that fails is not damage yet: a cable, a controller or a network disk may be away for seconds. A place is damaged
if it has failed for READ_RETRY_NS, and after that the same device returns something else, from the disk and not from
the page cache. A device that returns nothing loses nothing.

What is given up keeps a second name, a hard link: it stays when the queue removes the file. The next start reads it.

    NAME.diskqueue.000003.dat.unread-8000-12400     bytes 8000 up to 12400 of that file
"""

from libc.stdlib cimport free
from posix.unistd cimport close, pread

import logging
import os
import re
import time
from contextlib import contextmanager
from itertools import islice

from nsqfast._ext.core.clock cimport monotonic_ns
from nsqfast._ext.storage.diskqueue.segment import listed_once, segment_path

cdef extern from "stdlib.h" nogil:
    int posix_memalign(void **memory, size_t alignment, size_t size)

cdef enum:
    PAGE_SIZE = 4096
    # So many files of other queues are asked in turn whether the device works, and so many of this queue.
    PROBED_MAX = 8

cdef int64_t SECOND_NS = 1000000000
# Kernels retry a command and reset a device or a path within 30 s (SCSI's own timeout, NVMe's and multipath's default).
cdef int64_t READ_RETRY_NS = 30 * SECOND_NS

# A queue that nobody wants to read for so long begins anew: what failed before may have been whole meanwhile.
cdef int64_t PAUSE_NS_MAX = 10 * SECOND_NS

cdef int64_t retry_ns = READ_RETRY_NS
cdef bint is_starting = False
cdef int64_t start_deadline_ns = 0      # of all queues of a start together; 0 = nothing has failed in it

UNREAD = re.compile(r"(.+)\.unread-([0-9]{1,18})-([0-9]{1,18})", re.ASCII | re.DOTALL)

log = logging.getLogger("nsqd")


def set_read_retry(int64_t value_ns):
    """Let tests wait less than READ_RETRY_NS."""
    global retry_ns
    retry_ns = value_ns


cdef class DeviceProbe(ReadOwner):
    """Asks whether a device returns anything at all, by a page of another file."""

    def __dealloc__(self):
        if self.pending is not NULL:
            self.pending.owner = self.pending = NULL

    cdef int ask(self, str prefix, str path, int64_t position, ColdReads cold) except -1:
        """Read a page other than that one. With `cold` its thread reads one, of one place after the other, once per
        second for all queues; without, the caller waits, until one is read."""
        cdef int64_t now_ns = monotonic_ns()
        if self.pending is not NULL or (cold is not None and now_ns - self.health.asked_at_ns < SECOND_NS):
            return 0
        self.health.asked_at_ns = now_ns
        pages = pages_to_read(prefix, path, position)
        for _ in range(len(pages)):
            self.count += 1
            page = pages[self.count % len(pages)]
            if self.read_page(page[0], page[1], cold):
                break
        return 0

    cdef bint read_page(self, str path, int64_t position, ColdReads cold) except -1:
        """Whether it was read, or will be tried."""
        cdef ssize_t got = -1
        cdef void *data = NULL
        cdef int fd = open_uncached(path, position)
        if fd < 0:
            return False
        if cold is not None and cold.request(self, fd, position, PAGE_SIZE):
            close(fd)
            return True
        if posix_memalign(&data, PAGE_SIZE, PAGE_SIZE) == 0:
            got = pread(fd, data, PAGE_SIZE, position)
            free(data)
        close(fd)
        if got > 0:
            self.health.read_at_ns = monotonic_ns()
        return got > 0

    cdef int end_read(self, ColdRead *done) except -1:
        if done.got > 0:
            self.health.read_at_ns = monotonic_ns()
        return 0


cdef list pages_to_read(str prefix, str path, int64_t position):
    """Return (path, position) of pages that may be read in place of that one: of other queues' files and nsqd.dat, of
    this queue's other files, and of the same file."""
    folder, name = os.path.split(prefix)
    try:
        with os.scandir(folder or ".") as entries:
            others = [(entry.path, 0) for entry in islice(
                (entry for entry in entries
                 if not entry.name.startswith(name) and entry.is_file(follow_symlinks=False)), PROBED_MAX)]
        with os.scandir(folder or ".") as entries:
            others += [(entry.path, 0) for entry in islice(
                (entry for entry in entries if entry.name.startswith(name) and os.path.join(folder, entry.name) != path
                 and entry.is_file(follow_symlinks=False)), PROBED_MAX)]
        size = os.stat(path).st_size
    except OSError:
        return []
    page, last = position // PAGE_SIZE, max(size - 1, 0) // PAGE_SIZE
    return others + [(path, number * PAGE_SIZE) for number in sorted({0, last // 2, last}) if number != page]


cdef int open_uncached(str path, int64_t position) except -2:
    """Open it for a read that the page cache does not answer; -1: not possible."""
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK
    try:
        return os.open(path, flags | os.O_DIRECT)
    except OSError:
        pass    # the file system refuses O_DIRECT, or the open fails altogether
    try:
        fd = os.open(path, flags)
    except OSError:
        return -1
    os.posix_fadvise(fd, position, PAGE_SIZE, os.POSIX_FADV_DONTNEED)
    return fd


cdef class Unreadable:
    def __init__(self, str prefix, Health health not None):
        self.prefix, self.health = prefix, health

    cdef bint is_lasting(self, int64_t file, int64_t start, int64_t end, ColdReads cold) except -1:
        """Note that these bytes cannot be read; return whether they are damaged. No: try again in a second."""
        cdef int64_t now_ns = monotonic_ns(), since_ns = self.note(file, start, end, now_ns)
        if now_ns - since_ns < retry_ns:
            return False
        # A read from before the device went away proves nothing: it has to work now.
        if self.health.read_at_ns < since_ns + retry_ns:
            if self.probe is None:
                self.probe = DeviceProbe()
                self.probe.health = self.health
            self.probe.ask(self.prefix, segment_path(self.prefix, file), start, cold)
        return self.health.read_at_ns >= since_ns + retry_ns

    cdef int64_t note(self, int64_t file, int64_t start, int64_t end, int64_t now_ns) except -1:
        """Return since when they cannot be read. Another place to read from gives the same bytes another start."""
        self.failed_ns = now_ns
        if self.since is None:
            self.since = {}
        start -= start % PAGE_SIZE
        if (file, start) in self.since:
            return self.since[file, start][1]
        for (noted_file, noted_start), (noted_end, since_ns) in self.since.items():
            if noted_file == file and noted_start <= start < noted_end:
                return since_ns
        self.since[file, start] = (end + PAGE_SIZE - 1 - (end - 1) % PAGE_SIZE, now_ns)
        return now_ns

    cdef int begin_try(self) except -1:
        """What failed is going to be read again. However long that takes, it is no pause."""
        if self.since is not None and monotonic_ns() - self.failed_ns > PAUSE_NS_MAX:
            self.since = None
        return 0

    cdef bint is_any_new(self) except -1:
        """Whether some bytes have not failed for long enough, so that there is nothing to be decided, or read, yet."""
        cdef int64_t now_ns = monotonic_ns()
        if self.since is None or not any(
                [now_ns - <int64_t> since_ns < retry_ns for _, since_ns in self.since.values()]):
            return False
        self.failed_ns = now_ns
        return True

    cdef int forget_before(self, int64_t file, int64_t position) except -1:
        """The reader has come there."""
        if self.since is not None:
            self.since = {place: noted for place, noted in self.since.items() if place >= (file, position)} or None
        return 0


# What is kept

cdef str keep_unread(str name, Segment segment, int64_t start, int64_t end):
    """Give the file a second name for the next start; return the name's path, or '' with a line in the log."""
    path = f"{segment.path}.unread-{start}-{end}"
    try:
        os.link(segment.path, path)
    except FileExistsError:
        pass
    except OSError as error:
        log.error("DISKQUEUE(%s) %s will not be read again at the next start: no hard link to it - %s", name,
                  segment.path, error.strerror)
        return ""
    return path


def parse_unread(str path):
    """Return (path of the data file, start, end) of such a name; ValueError: it is none."""
    found = UNREAD.fullmatch(path)
    if found is None or int(found[2]) >= int(found[3]):
        raise ValueError(f"{path} names no bytes")
    return found[1], int(found[2]), int(found[3])


# A start

@contextmanager
def opened_at_start(str folder):
    """Open queues within this context, which is a start of a broker: see listed_once() and wait_at_start()."""
    global is_starting, start_deadline_ns
    is_starting, start_deadline_ns = True, 0
    try:
        with listed_once(folder):
            yield
    finally:
        is_starting = False


cdef bint wait_at_start(str name, Segment segment) except -1:
    """Wait a second if the file is to be read once more; no: a start has waited for READ_RETRY_NS in all, or it is
    none, and a running broker does not wait."""
    global start_deadline_ns
    cdef int64_t now_ns = monotonic_ns()
    if not is_starting:
        return False
    if start_deadline_ns == 0:
        start_deadline_ns = now_ns + retry_ns
        log.error("DISKQUEUE(%s) %s: %s; the start reads it again each second, for %d s at most", name, segment.path,
                  os.strerror(segment.error).lower(), retry_ns // SECOND_NS)
    if now_ns >= start_deadline_ns:
        return False
    # Nobody is served before the queues are open, so nobody else waits.
    time.sleep(min(SECOND_NS, start_deadline_ns - now_ns) / 1e9)
    return True
