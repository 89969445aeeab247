"""One data file: its name, and where its whole records start and end.

A record has no checksum and no magic:

    size (4) │ timestamp (8) │ attempts (2) │ id (16 lower-case hex digits) │ body (size - 26)

so after damage the next record is recognised by its form: a size that fits into the file, an id of hex digits, and
behind it the end of the file, another such record, or at least a plausible time and number of attempts. The search
begins inside the record before the damage, because its size may have been wrong and have hidden its neighbours. If the
disk does not return some bytes, all records before them were right, and the search begins behind them.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.errno cimport EINTR, ENOENT, errno
from libc.stdint cimport INT64_MAX, uint64_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memmove, memset
from posix.unistd cimport close, pread

import os
import stat
from contextlib import contextmanager

from nsqfast._ext.core.limits cimport MESSAGE_HEADER_SIZE
from nsqfast._ext.core.message cimport get_be16, get_be32, get_be64, is_record_id
from nsqfast._ext.storage.diskqueue.hollow cimport is_hollow, is_sealed, is_zeros

cdef enum:
    # The first read after a jump; each sequential read takes twice as much.
    STEP_SIZE_MIN = 512
    # Reading so much costs no more than another call: a shorter jump is not worth it.
    JUMP_SIZE = 8192
    PAGE_SIZE = 4096
    STEP_SIZE = 4096         # of a search for zeros
    SECTOR_SIZE = 512
    ID_START = 14            # in a record
    # How often to retry a page that cannot be read though its sectors can.
    RETRIES_MAX = 3

# 2001 and 2200 as Unix time in nanoseconds: a damaged timestamp is hardly ever between them.
cdef uint64_t TIMESTAMP_MIN = 1000000000000000000
cdef uint64_t TIMESTAMP_MAX = 7258118400000000000
cdef uint64_t ATTEMPTS_MAX = 1000

cdef dict listed = None     # of listed_once
cdef dict unread = {}       # absolute prefix -> names of links to unread data that it found and no queue has taken
cdef str known_folder = ""  # all of its queues were opened...
cdef set unopened = set()   # ...except these, which have data files

cdef tuple FIRST_NAMES = ("meta.dat", "acks.dat", "deferred.dat", "000000.dat")


cdef str given_folder = ""      # the last argument of absolute()...
cdef str absolute_folder = ""   # ...and its result


cdef str absolute(str prefix):
    """Return the same with the folder's absolute path."""
    global given_folder, absolute_folder
    folder, _, name = prefix.rpartition("/")
    if folder != given_folder or not folder.startswith("/"):    # a relative one depends on the current directory
        given_folder, absolute_folder = folder, os.path.dirname(os.path.abspath(prefix))
    return f"{absolute_folder}/{name}" if absolute_folder != "/" else f"/{name}"


def segment_path(str prefix, int64_t number):
    """prefix is '<data path>/<queue>.diskqueue.'."""
    return f"{prefix}{number:06d}.dat"


def segment_numbers(str prefix):
    """Return the numbers of the data files that exist, ascending. A folder or a pipe of such a name does not count."""
    found = None if listed is None else listed.get(absolute(prefix), [])
    if found is None:
        found = numbers_by_prefix(*os.path.split(prefix)).get(prefix, [])
    return sorted(found)


def numbers_by_prefix(str folder, str beginning="", dict links=None):
    """Return the same for all queues of the folder whose names begin so, in any order; none for a queue that has other
    files alone. links: gets the names of those to unread data (see unreadable), by the queues' prefixes."""
    found = {}
    with os.scandir(folder or ".") as entries:
        for entry in entries:
            if not entry.name.startswith(beginning) or not entry.name.endswith(".dat"):
                if links is not None and ".dat.unread-" in entry.name:
                    links.setdefault(os.path.join(folder, entry.name.partition(".diskqueue.")[0] + ".diskqueue."),
                                     []).append(entry.name)
                continue
            start, _, digits = entry.name.removesuffix(".dat").rpartition(".")
            numbers = found.setdefault(os.path.join(folder, start + "."), [])
            if (len(digits) >= 6 and digits.isascii() and digits.isdigit() and int(digits) < 1 << 62
                    and entry.is_file()):
                numbers.append(int(digits))
    return found


@contextmanager
def listed_once(str folder):
    """Open queues within this context: the folder is listed once, not once for each. A queue that was opened, and may
    change its files, is looked up again each time."""
    global listed, known_folder, unopened, unread
    known_folder = ""
    unread = {}
    listed = numbers_by_prefix(os.path.abspath(folder), "", unread)
    try:
        yield
        known_folder = os.path.abspath(folder)
        unopened = {prefix for prefix, numbers in listed.items() if numbers}
    finally:
        listed = None


def forget_listed(str prefix):
    """The queue was opened."""
    if listed is not None:
        listed[absolute(prefix)] = None


def take_unread(str prefix):
    """Return the paths of the links to unread data that the last start found for this queue; only once."""
    folder = os.path.dirname(prefix)
    return [os.path.join(folder, name) for name in sorted(unread.pop(absolute(prefix), []))] if unread else []


def note_left(str prefix):
    """A file of a deleted queue could not be removed."""
    unopened.add(absolute(prefix))


def forget_folder():
    """The content of the folder is unknown from now on."""
    global known_folder
    known_folder = ""


def is_untouched(str prefix):
    """Whether such a queue can have no file, so that none need be tried, and the folder need not be listed. At a start
    the list says so. Those that had data files then were opened, and one created since begins with file 0 and leaves
    other files as well. Files that someone puts there meanwhile are found through these, or at the next start."""
    path = absolute(prefix)
    if listed is not None:
        return path not in listed
    return (os.path.dirname(path) == known_folder and path not in unopened
            and not any(os.path.lexists(prefix + name) for name in FIRST_NAMES))


def segments_between(str prefix, int64_t first, int64_t end):
    """Return the numbers of [first, end) that have a file; damaged metadata may name an end too large to count to."""
    if end - first <= NEAR_COUNT:
        return [number for number in range(first, end) if os.path.isfile(segment_path(prefix, number))]
    return [number for number in segment_numbers(prefix) if first <= number < end]


def data_files(str prefix, int64_t first, int64_t end):
    """Yield the paths of these, each looked up when it is requested."""
    for number in segments_between(prefix, first, end):
        yield segment_path(prefix, number)


def all_files(str prefix, int64_t first, int64_t last):
    """Yield the paths of all files of a queue whose data files have these numbers."""
    for number in range(first, last + 1) if last - first < NEAR_COUNT else segment_numbers(prefix):
        yield segment_path(prefix, number)
        yield segment_path(prefix, number) + ".bad"
    for name in ("meta.dat", "meta.dat.0.tmp", "meta.dat.1.tmp", "acks.dat", "acks.dat.tmp", "deferred.dat"):
        yield prefix + name


def open_file(str path):
    """Return (descriptor, size). FileNotFoundError if it is not a regular file. Opening never waits."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    status = os.fstat(fd)
    if stat.S_ISREG(status.st_mode):
        return fd, status.st_size
    os.close(fd)
    raise FileNotFoundError(ENOENT, "Is a directory" if stat.S_ISDIR(status.st_mode) else "Not a regular file", path)


def save_damaged(str path, data):
    """Append bytes that are not a record to '<path>.bad'."""
    with open(path + ".bad", "ab", opener=private) as file:
        file.write(data)


def private(path, flags):
    return os.open(path, flags, 0o600)


cdef class FileWindow:
    """Random access to a file without mapping it: a bad sector or a truncated file would kill a process that maps it.

    When a read fails, smaller reads find the unreadable range: a page, and within it the first to the last failing
    sector. The range is noted once and not read again. If somebody truncates the file, it ends there.
    """

    def __cinit__(self, str path, int64_t size=-1):
        """size: the valid part of the file; the rest is not published yet."""
        self.path = path
        self.fd = -1
        self.fd, real = open_file(path)
        self.size = real if size < 0 or size > real else size
        self.window = <char *>malloc(max(min(self.size, WINDOW_SIZE), 1))
        if self.window is NULL:
            raise MemoryError

    def __dealloc__(self):
        if self.fd >= 0:
            close(self.fd)
        free(self.window)
        free(self.lost)

    @property
    def unreadable(self):
        """(start, end) of each range found unreadable so far."""
        return [(self.lost[i].start, self.lost[i].end) for i in range(self.lost_count)]

    def bytes(self, int64_t start, int64_t end):
        """The file's bytes in that range; zeros where it cannot be read."""
        start, end = min(start, self.size), min(end, self.size)
        if start >= end:
            return b""
        cdef bytes data = PyBytes_FromStringAndSize(NULL, end - start)
        cdef int64_t stop = self.read_into(PyBytes_AS_STRING(data), start, end)
        return data if stop == end else data[:stop - start]

    cdef const char *at(self, int64_t position, int64_t size) noexcept:
        """Return so many bytes, at most WINDOW_SIZE, valid until the next call; NULL: missing or unreadable."""
        if position < self.window_start or position + size > self.window_end:
            if position < 0 or position + size > self.size or not self.load(position, size):
                return NULL
        if self.lost_count and self.touches_lost(position, position + size):
            return NULL
        return self.window + (position - self.window_start)

    cdef bint load(self, int64_t position, int64_t size) noexcept:
        """Move the window there. It widens during sequential reads, so that skipping a large body is a small read."""
        cdef bint follows = self.step_size > 0 and self.window_start <= position <= self.window_end + JUMP_SIZE
        self.step_size = min(2 * self.step_size, WINDOW_SIZE) if follows else STEP_SIZE_MIN
        self.window_start = position
        self.window_end = self.read_into(self.window, position, min(position + max(size, self.step_size), self.size))
        return position + size <= self.window_end

    cdef int64_t read_into(self, char *out, int64_t start, int64_t end) noexcept:
        """Return where it ended: at `end`, or where the file was truncated. Unreadable bytes become zeros, and are
        noted."""
        cdef int64_t position = start, stop
        cdef int retries = 0
        cdef bint is_careful = False
        cdef ssize_t done
        while position < end:
            stop = min(end, self.skip_lost(position))
            if stop > position:
                memset(out + (position - start), 0, stop - position)
                position = stop
                continue
            stop = min(end, self.next_lost(position))
            if is_careful:
                stop = min(stop, position - position % PAGE_SIZE + PAGE_SIZE)
            done = pread(self.fd, out + (position - start), stop - position, position)
            if done > 0:
                position += done
                is_careful = False
            elif done == 0:
                self.size = min(self.size, position)
                self.window_end = min(self.window_end, self.size)
                return position
            elif errno != EINTR:
                self.error = errno
                if is_careful:
                    retries = 0 if self.note_lost(position, stop, retries == RETRIES_MAX) else retries + 1
                is_careful = True
        return position

    cdef bint note_lost(self, int64_t start, int64_t end, bint is_hopeless) noexcept:
        """A page, or a part of one, cannot be read. False: its sectors can."""
        cdef int64_t stop
        while start < end and not is_hopeless:
            stop = min(end, start - start % SECTOR_SIZE + SECTOR_SIZE)
            if not self.can_read(start, stop):
                break
            start = stop
        while start < end and not is_hopeless:
            stop = max(start, end - 1 - (end - 1) % SECTOR_SIZE)
            if not self.can_read(stop, end):
                break
            end = stop
        if start < end:
            self.add_lost(start, end)
        return start < end

    cdef bint can_read(self, int64_t start, int64_t end) noexcept:
        """Try one sector."""
        cdef char data[SECTOR_SIZE]
        while pread(self.fd, data, end - start, start) < 0:
            if errno != EINTR:
                self.error = errno
                return False
        return True

    cdef void add_lost(self, int64_t start, int64_t end) noexcept:
        """Insert the range in order; adjacent ranges are merged."""
        cdef size_t i = self.lost_count
        cdef Range *grown
        while i and self.lost[i - 1].start > start:
            i -= 1
        if i and self.lost[i - 1].end >= start:
            self.lost[i - 1].end = max(self.lost[i - 1].end, end)
            return
        if i < self.lost_count and self.lost[i].start <= end:
            self.lost[i].start = start
            return
        if self.lost_count % 16 == 0:
            grown = <Range *>realloc(self.lost, (self.lost_count + 16) * sizeof(Range))
            if grown is NULL:
                self.size = min(self.size, start)    # no memory to continue behind it
                return
            self.lost = grown
        memmove(self.lost + i + 1, self.lost + i, (self.lost_count - i) * sizeof(Range))
        self.lost[i].start, self.lost[i].end = start, end
        self.lost_count += 1

    cdef bint touches_lost(self, int64_t start, int64_t end) noexcept:
        return self.skip_lost(start) > start or self.next_lost(start) < end

    cdef int64_t skip_lost(self, int64_t position) noexcept:
        """Return the end of the unreadable range that contains position, else position."""
        cdef size_t i
        for i in range(self.lost_count):
            if self.lost[i].start <= position < self.lost[i].end:
                position = self.lost[i].end
        return position

    cdef int64_t next_lost(self, int64_t position) noexcept:
        """Return where the next unreadable range begins; INT64_MAX: there is none."""
        cdef size_t i
        for i in range(self.lost_count):
            if self.lost[i].start >= position:
                return self.lost[i].start
        return INT64_MAX


cdef bint is_head_part(const char *head, int64_t start, int64_t end) noexcept nogil:
    """Whether these bytes of a record's first ones are zeros, or can be such: of a size below 16 MiB, of an id."""
    cdef int64_t i
    if start >= end or is_zeros(head + start, end - start):
        return True
    for i in range(max(start, ID_START), end):
        if not (c'0' <= head[i] <= c'9' or c'a' <= head[i] <= c'f'):
            return False
    return start > 0 or head[0] == 0


@cython.final
cdef class Segment(FileWindow):
    def __dealloc__(self):
        free(self.large)

    cdef bint fits(self, int64_t position) noexcept:
        """Whether a possible size field is there, and the file is long enough for it."""
        cdef const char *data = self.at(position, RECORD_SIZE_MIN)
        if data is NULL:
            return False
        cdef int64_t size = get_be32(data), end = position + RECORD_HEADER_SIZE + size
        return (size >= RECORD_SIZE_MIN - RECORD_HEADER_SIZE and end <= self.size
                and not (self.lost_count and self.touches_lost(position, end)))

    cdef bint has_record_head(self, int64_t position) noexcept:
        return self.fits(position) and is_record_id(self.at(position, RECORD_SIZE_MIN) + 14)

    cdef int64_t end_of(self, int64_t position) noexcept:
        """Return the end of the record whose head is readable there; else the end of the file."""
        cdef const char *data = self.at(position, RECORD_SIZE_MIN)
        return self.size if data is NULL else position + RECORD_HEADER_SIZE + get_be32(data)

    cdef bint is_accepted_record(self, int64_t position) noexcept:
        """Right behind a sound record: foreign ids are accepted if everything else is right."""
        if self.has_record_head(position):
            return True
        if not self.fits(position):
            return False
        cdef int64_t end = self.end_of(position)
        return end == self.size or self.has_record_head(end)

    cdef bint is_plausible_record(self, int64_t position) noexcept:
        """Amid damage: arbitrary bytes must prove that they are a record."""
        if not self.has_record_head(position):
            return False
        cdef const char *data = self.at(position, RECORD_SIZE_MIN)
        cdef uint64_t timestamp_ns = get_be64(data + 4)
        cdef bint is_sane = TIMESTAMP_MIN < timestamp_ns < TIMESTAMP_MAX and get_be16(data + 12) < ATTEMPTS_MAX
        cdef int64_t end = self.end_of(position)
        return is_sane or end == self.size or self.has_record_head(end)

    cdef Span next_record(self, int64_t position, int64_t previous) noexcept:
        """Return the first whole record at or after position; previous: where the one before started, or -1."""
        cdef Span span
        cdef int64_t at
        span.damaged = -1
        if self.is_accepted_record(position):
            span.start = position
            span.end = self.end_of(position)
            return span
        span.start = span.end = self.size
        if position >= self.size:
            return span
        span.damaged = position if previous < 0 else previous
        at = self.search_start(position, previous)
        while at + RECORD_SIZE_MIN <= self.size:
            if self.is_plausible_record(at):
                span.start = at
                span.end = self.end_of(at)
                break
            at += 1
            if self.lost_count:
                at = self.skip_lost(at)
        if span.end <= span.start:
            span.start = span.end = self.size    # smaller, if the file was truncated meanwhile
        if span.start >= position:
            span.damaged = position
        return span

    cdef int64_t search_start(self, int64_t position, int64_t previous) noexcept:
        """Return where to search for the next one, if there is no whole record at position."""
        cdef int64_t end
        if not self.lost_count or not self.touches_lost(position, position + RECORD_SIZE_MIN):
            end = self.end_of(position)
            if not self.lost_count or end > self.size or not self.touches_lost(position, end):
                return position if previous < 0 else previous + RECORD_SIZE_MIN
            # Its head is readable, but not all of its body: bytes of a body are not records.
            return end if end == self.size or self.has_record_head(end) else self.skip_lost(self.next_lost(position))
        return self.skip_lost(max(position, min(self.next_lost(position), position + RECORD_SIZE_MIN)))

    cdef int64_t walk(self, int64_t position, int64_t limit, int64_t *count, int64_t *damages) noexcept:
        """Return the end of the last whole record that starts before limit; count records, and how often bytes were
        skipped."""
        cdef int64_t previous = -1, end = position
        cdef Span span
        count[0] = damages[0] = 0
        while True:
            span = self.next_record(position, previous)
            if span.end <= span.start or span.start >= limit:
                return end
            count[0] += 1
            damages[0] += span.damaged >= 0
            previous = span.start
            position = end = span.end

    cdef bint is_readable(self, int64_t position) noexcept:
        """Whether the record there is readable to its end, which a search for the next one does not try."""
        if not self.fits(position):
            return False
        cdef int64_t end = self.end_of(position)
        self.try_range(position, end)
        return self.fits(position) and self.end_of(position) == end

    cdef bint try_range(self, int64_t start, int64_t end) noexcept:
        """Read all of it, to find all unreadable bytes; return whether there is none."""
        cdef int64_t at = start
        while at < end:
            self.at(at, min(end - at, WINDOW_SIZE))
            at += WINDOW_SIZE
        return not self.touches_lost(start, end)

    cdef const char *record(self, int64_t position, size_t *size) except? NULL:
        """Return all of it, valid until the next call; NULL: there is no whole one."""
        if not self.is_readable(position):
            return NULL
        size[0] = self.end_of(position) - position
        if size[0] <= WINDOW_SIZE:
            return self.at(position, size[0])
        free(self.large)
        self.large = <char *>malloc(size[0])
        if self.large is NULL:
            raise MemoryError
        self.read_into(self.large, position, position + size[0])
        return self.large

    cpdef bint is_hollow_at(self, int64_t position) except -1:
        """Whether some sector of the file has only zeros of the record's body, as published or after a power cut."""
        cdef size_t size = 0
        cdef const char *record = self.record(position, &size)
        return record is not NULL and is_hollow(record, size, position)

    cpdef bint is_sealed_at(self, int64_t position) except -1:
        """Whether the record there has the checksum of a hollow one in its timestamp."""
        cdef size_t size = 0
        cdef const char *record = self.record(position, &size)
        return record is not NULL and is_sealed(record, size)

    cpdef bint is_cut_at(self, int64_t position) except -1:
        """Whether a power cut may have taken the first bytes of the record's size, which stand in the sector before:
        then it seems shorter, and ends amid its body."""
        cdef int64_t size = SECTOR_SIZE - position % SECTOR_SIZE
        cdef const char *data = self.at(position, RECORD_HEADER_SIZE)
        if size >= RECORD_HEADER_SIZE or data is NULL or not is_zeros(data, size):
            return False
        return not self.is_head_left(self.end_of(position))

    cdef bint is_head_left(self, int64_t position) noexcept:
        """Whether there is what a power cut may leave of a record's head, the part in either sector or zeros, or the
        end of the file."""
        cdef int64_t size = min(RECORD_SIZE_MIN, self.size - position)
        cdef int64_t middle = min(size, SECTOR_SIZE - position % SECTOR_SIZE)
        cdef const char *data = self.at(position, size)
        return size <= 0 or data is NULL or self.has_record_head(position) or (
            is_head_part(data, 0, middle) and is_head_part(data, middle, size))

    def is_torn_at(self, int64_t position):
        """Whether the bytes there are the beginning of a record, or space that the file system gave to an unfinished
        write."""
        cdef int64_t at = position
        cdef const char *data = self.at(position, RECORD_HEADER_SIZE)
        if self.lost_count and self.touches_lost(position, self.size):
            return False
        if self.size - position < RECORD_HEADER_SIZE or (data is not NULL and get_be32(data) >= MESSAGE_HEADER_SIZE):
            return True
        while at < self.size:
            data = self.at(at, min(self.size - at, STEP_SIZE))
            if data is NULL or not is_zeros(data, min(self.size - at, STEP_SIZE)):
                return at >= self.size    # truncated meanwhile
            at += STEP_SIZE
        return True

    def records(self, int64_t position=0):
        """Yield (start, end) of the whole records from there on, for tests and tools."""
        cdef int64_t previous = -1
        cdef Span span
        found = []
        while True:
            span = self.next_record(position, previous)
            if span.end <= span.start:
                return found
            found.append((span.start, span.end))
            previous, position = span.start, span.end
