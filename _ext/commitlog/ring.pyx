"""A ring of four files in which batches of records are committed: one write at a time, or synced by time.

    append() ─► filling buffer ─ commit() ─► thread: sums, write, sync (commit.h) ─ eventfd ─► end_write() ─► committed

While a batch is being written the next one gathers in the other buffer: the slower the disk, the more records share a
write. What is in flight is never touched. docs/DURABILITY.md has the rules.

In interval mode a turn writes its batch itself, into the kernel's cache, and the thread syncs now and then:

    append() ─► filling buffer ─ write(): sums, write ─► written
                                 sync() ─► thread: sync, head ─ eventfd ─► end_write() ─► committed
"""

from libc.errno cimport EIO, EMSGSIZE, errno
from libc.stdint cimport INT64_MIN
from libc.string cimport memset
from posix.unistd cimport read

import os

from nsqfast._ext.commitlog.files cimport FileTable
from nsqfast._ext.commitlog.format cimport (
    BATCH_HEADER_SIZE, QUARTER_COUNT, RECORD_HEADER_SIZE, SECTOR_SIZE, Batch, RecordHeader, align_up,
    crc_prepare, make_place, place_quarter,
)
from nsqfast._ext.core.clock cimport now_monotonic, wall_ns as read_wall_ns
from nsqfast._ext.core.histogram cimport record as record_time
from nsqfast._ext.core.memory cimport Memory, account_of, charge, leave_account

cdef extern from "core/block.h" nogil:
    enum:
        MAPPED_SIZE "NSQ_MAPPED_SIZE"
    void block_free "nsq_block_free"(void *block, ptrdiff_t size)
    void *block_resize "nsq_block_resize"(void *block, ptrdiff_t before, ptrdiff_t size)

cdef extern from "commitlog/commit.h" nogil:
    enum:
        BUFFER_KEPT_SIZE "NSQ_BUFFER_KEPT_SIZE"

    ctypedef struct Job "nsq_commit_job":
        FileTable *files
        bint is_dsync
        uint32_t epoch_seed
        int head_fd
        const char *head
        int64_t head_at
        int fd
        char *data
        size_t size
        Batch header
        int *sync_fds
        int sync_count
        int head_error
        int error
        int64_t time_ns

    Committer *committer_start "nsq_committer_start"(bint is_stepped)
    void committer_stop "nsq_committer_stop"(Committer *committer)
    void committer_submit "nsq_committer_submit"(Committer *committer)
    bint committer_busy "nsq_committer_busy"(Committer *committer)
    bint committer_step "nsq_committer_step"(Committer *committer)
    void committer_wait "nsq_committer_wait"(Committer *committer, int64_t until_ns)
    int committer_fd "nsq_committer_fd"(Committer *committer)
    Job *committer_job "nsq_committer_job"(Committer *committer)
    int write_batch "nsq_write_batch"(
        FileTable *files, uint32_t epoch_seed, int fd, char *data, size_t size, Batch *header
    )

crc_prepare()


cdef class CommitRing:
    def __cinit__(
        self, RingFolder folder, uint32_t align=4096, bint is_stepped=False, Memory memory=None, bint is_interval=False
    ):
        if align not in (SECTOR_SIZE, 8 * SECTOR_SIZE):
            raise ValueError(f"batches start on multiples of {SECTOR_SIZE} or {8 * SECTOR_SIZE}, not of {align}")
        assert not (is_interval and folder.is_dsync)
        self.account = account_of(memory)
        self.folder = folder
        self.is_interval = is_interval
        self.is_noted = True
        self.align = align
        self.used = BATCH_HEADER_SIZE
        self.latest_ns = INT64_MIN
        self.committer = committer_start(is_stepped)
        if self.committer is NULL:
            raise OSError(errno, os.strerror(errno))
        job = committer_job(self.committer)
        job.files = folder.table
        job.is_dsync = folder.is_dsync
        job.epoch_seed = folder.epoch_seed
        job.head_fd = folder.head_fd
        self.go_on(0, 1, 0, 0, 0)

    def __dealloc__(self):
        cdef int i
        cdef int64_t counted = 0
        if self.committer is not NULL:
            with nogil:
                committer_stop(self.committer)
        for i in range(2):
            if self.buffers[i].data is not NULL:
                block_free(self.buffers[i].data, self.buffers[i].capacity)
                counted += self.buffers[i].capacity
        leave_account(self.account, counted)

    cdef int go_on(
        self, uint64_t committed, uint64_t needed_from, uint32_t previous, int quarter, uint64_t offset
    ) except -1:
        self.committed = self.written = committed
        self.filling = self.quarter_first = committed + 1
        self.needed_from = self.kept_from = needed_from
        self.previous = previous
        self.quarter = quarter
        self.offset = align_up(offset, self.align)
        return 0

    # Filling

    cdef char *append(
        self, uint8_t kind, uint8_t flags, uint16_t extra, uint32_t subject, size_t size
    ) except NULL:
        cdef size_t padded = align_up(RECORD_HEADER_SIZE + size, 8)
        cdef RecordHeader *header
        if self.failed:
            raise OSError(self.failed, os.strerror(self.failed))
        if size > self.folder.quarter_size or self.used + padded > self.folder.quarter_size:
            raise OSError(EMSGSIZE, os.strerror(EMSGSIZE))
        if self.used + padded > self.buffers[self.side].capacity:
            self.grow(self.used + padded)
        header = <RecordHeader *> (self.buffers[self.side].data + self.used)
        # The payload overwrites what of these are not padding.
        memset(<char *> header + padded - 8, 0, 8)
        header.length = <uint32_t> (RECORD_HEADER_SIZE + size)
        header.kind = kind
        header.flags = flags
        header.extra = extra
        header.subject = subject
        self.used += padded
        self.count += 1
        return <char *> header + RECORD_HEADER_SIZE

    cdef int cut(self, size_t used) except -1:
        cdef size_t at = used
        while at < self.used:
            at += align_up((<RecordHeader *> (self.buffers[self.side].data + at)).length, 8)
            self.count -= 1
        self.used = min(self.used, used)
        return 0

    cdef size_t room(self) noexcept:
        cdef size_t rest = self.folder.quarter_size - self.used
        return rest - RECORD_HEADER_SIZE if rest > RECORD_HEADER_SIZE else 0

    cdef int grow(self, size_t size) except -1:
        """A buffer is a mapping, hence aligned to what O_DIRECT wants, and with room for the batch's padding."""
        cdef Buffer *buffer = &self.buffers[self.side]
        cdef size_t capacity = buffer.capacity or <size_t> MAPPED_SIZE
        cdef void *data
        while capacity < align_up(size, self.align):
            capacity *= 2
        data = block_resize(buffer.data, buffer.capacity, capacity)
        if data is NULL:
            raise MemoryError
        charge(self.account, <int64_t> capacity - <int64_t> buffer.capacity)
        buffer.data = <char *> data
        buffer.capacity = capacity
        return 0

    # Handing over

    cdef bint commit(self, int64_t wall_ns) except -1:
        cdef int quarter
        assert not self.is_interval
        if self.is_in_flight:
            return True
        if self.count == 0 or self.failed or self.committer is NULL:
            return False
        quarter = self.find_quarter(align_up(self.used, self.align))
        if quarter < 0:
            if self.next_quarter() < 0:
                self.failed = EIO       # no checkpoint will make room
            return False
        self.submit(quarter, wall_ns)
        return True

    cdef int find_quarter(self, size_t size) noexcept:
        """Where a batch of this size goes; -1: the next quarter is still needed."""
        cdef int following
        if not self.folder.is_bad(self.quarter) and self.offset + size <= self.folder.quarter_size:
            return self.quarter
        following = self.next_quarter()
        return following if following >= 0 and self.last[following] < self.needed_from else -1

    cdef int next_quarter(self) noexcept:
        return self.quarter_behind(self.quarter)

    cdef int quarter_behind(self, int before) noexcept:
        """The next one that is good; -1: there is none but this, or the one that is written to."""
        cdef int i, quarter
        for i in range(1, QUARTER_COUNT):
            quarter = (before + i) % QUARTER_COUNT
            if quarter != self.quarter and not self.folder.is_bad(quarter):
                return quarter
        return -1

    cdef int submit(self, int quarter, int64_t wall_ns) except -1:
        cdef Job *job = committer_job(self.committer)
        self.fill_header(&job.header, wall_ns)
        job.data = self.buffers[self.side].data
        job.size = align_up(self.used, self.align)
        job.head = NULL
        if quarter != self.quarter and self.last[quarter] >= self.kept_from:
            # What this overwrites is needed as far as the disk knows.
            job.head_at = self.folder.draft_head(self.needed_from)
            job.head = self.folder.block
        self.side ^= 1
        self.begin_filling()
        self.is_second = False
        self.place_job(quarter)
        return 0

    cdef void fill_header(self, Batch *header, int64_t wall_ns) noexcept:
        memset(header, 0, sizeof(header[0]))
        header.sequence = self.filling
        header.needed_from = self.needed_from
        header.length = <uint32_t> self.used
        header.count = self.count
        header.previous = self.previous
        header.wall_ns = self.latest_ns = max(self.latest_ns, wall_ns)
        header.unsynced = self.filling - 1 - self.committed

    cdef void begin_filling(self) noexcept:
        self.filling += 1
        self.used = BATCH_HEADER_SIZE
        self.count = 0

    cdef void place_job(self, int quarter) noexcept:
        cdef Job *job = committer_job(self.committer)
        if quarter != self.quarter:
            self.quarter = quarter
            self.offset = 0
        job.fd = self.folder.fds[quarter]
        job.header.place = make_place(quarter, self.offset)
        self.offset += job.size
        self.last[quarter] = job.header.sequence
        self.is_in_flight = True
        committer_submit(self.committer)

    # Interval mode

    cdef bint write(self, int64_t wall_ns) except -1:
        cdef int quarter
        assert self.is_interval
        if self.count == 0 or self.failed or self.failing or self.committer is NULL:
            return False
        quarter = self.find_quarter(align_up(self.used, self.align))
        if quarter < 0:
            if self.next_quarter() < 0:
                self.failing = EIO      # no checkpoint will make room
                if not self.sync():
                    self.failed = EIO
            return False
        if quarter != self.quarter and self.is_held(quarter):
            self.sync()
            return False
        return self.write_to(quarter, wall_ns)

    cdef bint is_held(self, int quarter) noexcept:
        """Whether a sync has to end before this quarter is begun: what it overwrites is needed as far as the disk
        knows, the disk does not know yet where a write failed, or batches would be unsynced in a third quarter, where a
        start does not expect them."""
        return (
            self.last[quarter] >= self.kept_from
            or (self.refused > 0 and (self.is_in_flight or not self.is_noted))
            or self.committed + 1 < self.quarter_first
        )

    cdef bint write_to(self, int quarter, int64_t wall_ns) except -1:
        cdef Batch header
        cdef char *data = self.buffers[self.side].data
        cdef size_t size = align_up(self.used, self.align)
        cdef bint is_next = quarter != self.quarter
        cdef int error
        self.fill_header(&header, wall_ns)
        if is_next:
            self.quarter = quarter
            self.offset = 0
            self.quarter_first = self.filling
        header.place = make_place(quarter, self.offset)
        with nogil:
            error = write_batch(
                self.folder.table, self.folder.epoch_seed, self.folder.fds[quarter], data, size, &header
            )
        if error:
            self.leave_quarter(error)
            return False
        self.note_written(&header, size)
        if is_next:
            # It ends before the quarter after this one is wanted.
            self.sync()
        return True

    cdef void note_written(self, const Batch *header, size_t size) noexcept:
        self.written = self.last[self.quarter] = self.filling
        self.previous = header.crc
        self.offset += size
        self.is_unsynced[self.quarter] = True
        self.refused = 0
        self.count_batch(header, size)
        self.begin_filling()
        self.give_back(self.side)

    cdef int leave_quarter(self, int error) except -1:
        """It is bad from now on; the batch goes to another one, once, when the head says so."""
        self.figures.failed_count += 1
        self.folder.head.failed[self.quarter] = self.filling
        if self.refused == self.filling:
            self.failing = error
        self.refused = self.filling
        self.is_noted = False
        self.sync()
        return 0

    cdef bint sync(self) except -1:
        cdef Job *job
        cdef int i, quarter
        assert self.is_interval
        if self.is_in_flight:
            return True
        if self.failed or self.committer is NULL:
            return False
        if self.committed == self.written and self.kept_from == self.needed_from and self.is_noted:
            return False
        job = committer_job(self.committer)
        job.sync_count = 0
        for i in range(1, QUARTER_COUNT + 1):
            # The earlier batches first: what a start cuts off behind a lost one was not synced then.
            quarter = (self.quarter + i) % QUARTER_COUNT
            if self.is_unsynced[quarter]:
                job.sync_fds[job.sync_count] = self.folder.fds[quarter]
                job.sync_count += 1
                self.is_unsynced[quarter] = False
        job.header.sequence = self.written
        job.header.needed_from = self.needed_from
        self.folder.head.interval_from = self.written + 1
        job.head_at = self.folder.draft_head(self.needed_from)
        job.head = self.folder.block
        self.is_noted = self.is_in_flight = True
        committer_submit(self.committer)
        return True

    cdef int end_sync(self) except -1:
        """What could not be synced is not synced again; a start writes it once more."""
        cdef Job *job = committer_job(self.committer)
        if job.error or job.head_error:
            self.figures.failed_count += 1
            self.failed = job.error or job.head_error
            return 0
        self.committed = job.header.sequence
        self.kept_from = job.header.needed_from
        record_time(&self.figures.times, job.time_ns)
        if self.failing and self.is_noted:
            self.failed = self.failing
        elif self.failing:
            self.sync()
        return 0

    # Results

    cdef bint end_write(self) except -1:
        cdef uint64_t rings
        cdef Job *job
        if self.committer is NULL or not self.is_in_flight:
            return False
        if read(committer_fd(self.committer), &rings, sizeof(rings)) < 0:
            pass    # wait() saw the end before the thread wrote
        if committer_busy(self.committer):
            return False
        self.is_in_flight = False
        job = committer_job(self.committer)
        if self.is_interval:
            self.end_sync()
        elif self.failing or job.head_error:
            self.failed = self.failing or job.head_error
        elif job.error:
            self.submit_again(job.error)
            return self.failed != 0
        else:
            self.note_committed()
        return True

    cdef void submit_again(self, int error) noexcept:
        """The quarter is bad from now on; the batch goes to the next one, once. Either is noted in the head first."""
        cdef Job *job = committer_job(self.committer)
        cdef int following
        self.figures.failed_count += 1
        self.folder.head.failed[place_quarter(job.header.place)] = job.header.sequence
        job.head_at = self.folder.draft_head(self.needed_from)
        job.head = self.folder.block
        following = self.next_quarter()
        if self.is_second or following < 0 or self.last[following] >= self.needed_from:
            self.failing = error
            job.data = NULL
            self.is_in_flight = True
            committer_submit(self.committer)
            return
        self.is_second = True
        self.place_job(following)

    cdef void note_committed(self) noexcept:
        cdef Job *job = committer_job(self.committer)
        self.committed = self.written = job.header.sequence
        self.kept_from = max(self.kept_from, job.header.needed_from)
        self.previous = job.header.crc
        self.count_batch(&job.header, job.size)
        record_time(&self.figures.times, job.time_ns)
        self.give_back(self.side ^ 1)

    cdef void count_batch(self, const Batch *header, size_t size) noexcept:
        self.figures.commits += 1
        self.figures.records += header.count
        self.figures.bytes += size
        self.figures.largest = max(self.figures.largest, <uint64_t> size)

    cdef void give_back(self, int side) noexcept:
        """Shrink a large buffer, whose memory behind that the thread has emptied if it wrote it."""
        cdef Buffer *buffer = &self.buffers[side]
        cdef void *data
        if buffer.capacity <= <size_t> BUFFER_KEPT_SIZE:
            return
        data = block_resize(buffer.data, buffer.capacity, BUFFER_KEPT_SIZE)
        if data is not NULL:
            charge(self.account, <int64_t> BUFFER_KEPT_SIZE - <int64_t> buffer.capacity)
            buffer.data = <char *> data
            buffer.capacity = BUFFER_KEPT_SIZE

    cdef int fileno(self):
        return committer_fd(self.committer)

    cdef bint wait(self, uint64_t sequence, int timeout_ms) except -1:
        cdef int64_t until_ns = -1 if timeout_ms < 0 else now_monotonic() + timeout_ms * <int64_t> 1000000
        if sequence > self.filling or (sequence == self.filling and self.count == 0):
            raise ValueError(f"batch {sequence} has no records yet")
        while self.committed < sequence and not self.failed:
            if not self.start_write():
                break
            self.finish_write(until_ns)
            if 0 <= until_ns <= now_monotonic():
                break
        return self.committed >= sequence

    cdef bint start_write(self) except -1:
        """Return whether a write runs, or a sync."""
        if not self.is_interval:
            return self.commit(read_wall_ns())
        self.write(read_wall_ns())
        return self.sync()

    cdef int finish_write(self, int64_t until_ns) except -1:
        """Wait for the write in flight, and take its result."""
        with nogil:
            if not committer_step(self.committer):
                committer_wait(self.committer, until_ns)
        self.end_write()
        return 0

    cdef bint step(self) except -1:
        cdef bint is_done = False
        if self.committer is not NULL:
            with nogil:
                is_done = committer_step(self.committer)
        return is_done

    # Room

    cdef int checkpoint(self, uint64_t needed_from) except -1:
        if needed_from > self.filling:
            raise ValueError(f"batch {needed_from} is not begun, {self.filling} is being filled")
        self.needed_from = max(self.needed_from, needed_from)
        return 0

    cdef bint is_full(self) noexcept:
        return self.count > 0 and self.find_quarter(align_up(self.used, self.align)) < 0

    cdef double fill(self):
        return self.folder.fill(self.last, self.needed_from, self.quarter, self.offset)

    cdef uint64_t needed(self) noexcept:
        return self.folder.needed(self.last, self.needed_from, self.quarter, self.offset)

    cdef int close(self):
        if self.committer is NULL:
            return 0
        while self.is_in_flight and self.fileno() >= 0:
            self.finish_write(-1)
        with nogil:
            committer_stop(self.committer)
        self.committer = NULL
        self.folder.close()
        return 0
