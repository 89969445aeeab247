"""The commit ring and its recovery as Python objects."""

from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy

from nsqfast._ext.commitlog.files cimport Files, FileTable
from nsqfast._ext.commitlog.recovery cimport Record, Recovery
from nsqfast._ext.commitlog.ring cimport CommitFigures, CommitRing
from nsqfast._ext.core.histogram cimport BOUND_COUNT

from nsqfast._ext.commitlog.start import open_ring

cdef extern from "dev/faulty_files.h" nogil:
    enum:
        FAULTS_MAX "NSQ_FAULTS_MAX"

    ctypedef struct Faults "nsq_faults":
        int *results
        int count
        int next

    ctypedef struct FaultyTable "nsq_faulty_files":
        FileTable table
        Faults pwrites
        Faults syncs
        int refuses_direct
        int is_unsynced
        int gate_fd
        int unreadable_file
        int64_t unreadable_at
        int *pwrite_counts
        int *sync_counts

    void faulty_init "nsq_faulty_init"(FaultyTable *faulty, FileTable *real)

cdef extern from "commitlog/crc32c.h" nogil:
    uint32_t crc_by_table "nsq_crc_by_table"(uint32_t state, const void *data, size_t size)
    uint32_t crc_run "nsq_crc_run"(uint32_t state, const void *data, size_t size)
    void crc_prepare "nsq_crc_prepare"()

crc_prepare()


def crc32c(bytes data, uint32_t crc=0):
    """Return the sum of the data: as this processor computes it, and by the tables."""
    return (
        crc_run(~crc, <char *> data, len(data)) ^ 0xffffffff, crc_by_table(~crc, <char *> data, len(data)) ^ 0xffffffff
    )


def sum_many(bytes data, int count):
    """Compute the sum of the data so many times, from the last one's; return the last."""
    cdef uint32_t crc = 0
    for _ in range(count):
        crc = crc_run(crc, <char *> data, <size_t> len(data))
    return crc


cdef class FaultyFiles(Files):
    """The real files, whose calls fail when they are told to; see faulty_files.h."""
    cdef FaultyTable faulty

    def __cinit__(self):
        faulty_init(&self.faulty, self.table)
        self.table = &self.faulty.table

    def fail_writes(self, *results):
        """What the next writes do: 0, an errno, or -n: write at most n bytes."""
        self.set(&self.faulty.pwrites, results)

    def fail_syncs(self, *results):
        """What the next fdatasyncs do: 0, or an errno."""
        self.set(&self.faulty.syncs, results)

    cdef int set(self, Faults *faults, tuple results) except -1:
        cdef int i
        assert len(results) <= FAULTS_MAX
        for i in range(<int> len(results)):
            faults.results[i] = results[i]
        faults.count = <int> len(results)
        faults.next = 0
        return 0

    def refuse_direct(self, int how):
        """O_DIRECT is refused: 1 = when a file is opened, 2 = when the first is read."""
        self.faulty.refuses_direct = how

    def never_sync(self):
        """Nothing is synced from now on, which makes tests of damage fast."""
        self.faulty.is_unsynced = 1

    def hold_writes(self, int gate_fd):
        """Each write waits for a byte from this descriptor; -1: none does."""
        self.faulty.gate_fd = gate_fd

    def make_unreadable(self, int file, int64_t at):
        """The disk cannot read this byte of a quarter (0 to 3) or of the head (4)."""
        self.faulty.unreadable_file = file
        self.faulty.unreadable_at = at

    def counts(self):
        """How many writes and fdatasyncs went to each quarter, and to the head."""
        return [(self.faulty.pwrite_counts[i], self.faulty.sync_counts[i]) for i in range(5)]


cdef class OpenRing:
    """A ring as open_ring() returns it, and what that found; see ring.pxd and recovery.pxd."""
    cdef CommitRing ring
    cdef Recovery recovery

    def __init__(
        self, str folder, uint64_t size, Files files=None, uint32_t align=4096, bint is_stepped=False, memory=None,
        bint is_interval=False,
    ):
        self.ring, self.recovery = open_ring(folder, size, files, align, is_stepped, memory, is_interval)

    def append(self, bytes payload, uint8_t kind=1, uint8_t flags=0, uint16_t extra=0, uint32_t subject=0):
        """Return the number of the batch that it went to."""
        memcpy(self.ring.append(kind, flags, extra, subject, <size_t> len(payload)), <char *> payload, len(payload))
        return self.ring.filling

    def append_many(self, bytes payload, int count):
        """Append so many; return the number of the batch that the last went to."""
        cdef char *data = payload
        cdef size_t size = <size_t> len(payload)
        for _ in range(count):
            memcpy(self.ring.append(1, 0, 0, 0, size), data, size)
        return self.ring.filling

    def room(self):
        return self.ring.room()

    def commit(self, int64_t wall_ns=0):
        return bool(self.ring.commit(wall_ns))

    def write(self, int64_t wall_ns=0):
        return bool(self.ring.write(wall_ns))

    def sync(self):
        return bool(self.ring.sync())

    def step(self):
        return bool(self.ring.step())

    def end_write(self):
        return bool(self.ring.end_write())

    def fileno(self):
        return self.ring.fileno()

    def wait(self, uint64_t sequence, int timeout_ms=-1):
        return bool(self.ring.wait(sequence, timeout_ms))

    def checkpoint(self, uint64_t needed_from):
        self.ring.checkpoint(needed_from)

    def is_full(self):
        return bool(self.ring.is_full())

    def fill(self):
        return self.ring.fill()

    def close(self):
        self.ring.close()

    def read(self):
        """Return all records that recovery has yet to hand out: (sequence, kind, flags, extra, subject, payload)."""
        cdef Record record
        found = []
        while self.recovery.next(&record):
            payload = record.payload[:record.size]
            found.append((record.sequence, record.kind, record.flags, record.extra, record.subject, payload))
        return found

    def figures(self):
        """Return (commits, records, bytes, failed writes, bytes of the largest, commits by time)."""
        cdef CommitFigures *figures = &self.ring.figures
        times = [figures.times.counts[i] for i in range(BOUND_COUNT + 1)]
        return figures.commits, figures.records, figures.bytes, figures.failed_count, figures.largest, times

    def size(self):
        return self.ring.folder.size()

    def bad(self):
        """The quarters where writing failed."""
        return [i for i in range(4) if self.ring.folder.is_bad(i)]

    def is_direct(self):
        return bool(self.ring.folder.is_dsync)

    @property
    def filling(self):
        return self.ring.filling

    @property
    def committed(self):
        return self.ring.committed

    @property
    def written(self):
        return self.ring.written

    @property
    def needed_from(self):
        return self.ring.needed_from

    @property
    def failed(self):
        return self.ring.failed

    @property
    def first(self):
        return self.recovery.first

    @property
    def last(self):
        return self.recovery.last

    @property
    def is_torn(self):
        return bool(self.recovery.is_torn)

    @property
    def damaged(self):
        return self.recovery.damaged
