"""What a start finds in a ring, or whoever looks at one: nothing here writes.

A batch's header says which batches before it were on disk, and so does the head: a bad one among them is damaged, and
what is whole of it is handed out. Behind the last that is proven so the first batch that is not whole is torn, and is
cut off with all that follows. Where each batch is synced that is the last one at most.

    scan: every header ─► cut_off: what is torn ─► choose: one for each number ─► next(): its records, batch by batch
                                                                                    └─ damaged or missing: salvage.h
"""

from libc.stdint cimport INT64_MIN
from libc.stdlib cimport free, qsort, realloc
from libc.string cimport memmove

from nsqfast._ext.commitlog.format cimport (
    BATCH_HEADER_SIZE, QUARTER_COUNT, RECORD_HEADER_SIZE, SECTOR_SIZE, Batch, RecordHeader, align_up, crc_prepare,
    is_batch, is_whole, make_place, place_offset, place_quarter,
)

cdef enum:
    PAGE_SIZE = 4096
    PIECE_SIZE = 1048576        # of a quarter, read at a time

cdef extern from "core/block.h" nogil:
    void block_free "nsq_block_free"(void *block, ptrdiff_t size)
    void *block_resize "nsq_block_resize"(void *block, ptrdiff_t before, ptrdiff_t size)

cdef extern from "commitlog/salvage.h" nogil:
    void salvage_prepare "nsq_salvage_prepare"()
    bint salvage_begin "nsq_salvage_begin"(Salvage *salvage)
    void salvage_end "nsq_salvage_end"(Salvage *salvage)
    uint64_t salvage_find "nsq_salvage_find"(const Salvage *salvage, uint64_t at, uint64_t *sequence)

crc_prepare()
salvage_prepare()


cdef int compare(const void *first, const void *second) noexcept nogil:
    cdef const Found *a = <const Found *> first
    cdef const Found *b = <const Found *> second
    if a.sequence != b.sequence:
        return -1 if a.sequence < b.sequence else 1
    return -1 if a.place < b.place else 1


cdef class Recovery:
    def __cinit__(self, RingContents folder):
        self.folder = folder
        self.damaged = []
        self.latest_ns = INT64_MIN
        self.scan()
        self.choose()
        self.note_end()
        self.following = self.first
        self.salvage.size = self.position = 0

    def __dealloc__(self):
        salvage_end(&self.salvage)
        free(self.found)
        if self.data is not NULL:
            block_free(self.data, self.capacity_read)

    # Headers

    cdef int scan(self) except -1:
        cdef uint64_t start
        cdef size_t size
        cdef int quarter
        self.grow_data(PIECE_SIZE)
        for quarter in range(QUARTER_COUNT):
            start = 0
            while start < self.folder.quarter_size:
                size = min(self.folder.quarter_size - start, <uint64_t> PIECE_SIZE)
                self.folder.read_quarter(quarter, start, self.data, size, self.damaged)
                self.scan_piece(quarter, start, size)
                start += size
        if self.count:
            qsort(self.found, self.count, sizeof(Found), compare)
        return 0

    cdef int scan_piece(self, int quarter, uint64_t start, size_t size) except -1:
        """Bodies are looked at as well, where a header cannot stand by chance: it knows the epoch and its place."""
        cdef size_t at
        cdef uint64_t place
        for at in range(0, size, SECTOR_SIZE):
            place = make_place(quarter, start + at)
            if (
                is_batch(self.data + at, self.folder.epoch_seed, place, self.folder.quarter_size)
                and not self.is_failed(quarter, (<const Batch *> (self.data + at)).sequence)
            ):
                self.note(self.data + at)
        return 0

    cdef bint is_failed(self, int quarter, uint64_t sequence) noexcept:
        """Whether the write of this batch failed there, or came after one that did: it was answered elsewhere, if at
        all, whatever the disk has."""
        return self.folder.is_bad(quarter) and sequence >= self.folder.head.failed[quarter]

    cdef int note(self, const char *header) except -1:
        cdef const Batch *batch = <const Batch *> header
        cdef Found *found
        if self.count == self.capacity:
            found = <Found *> realloc(self.found, (self.capacity * 2 or 1024) * sizeof(Found))
            if found is NULL:
                raise MemoryError
            self.found = found
            self.capacity = self.capacity * 2 or 1024
        found = &self.found[self.count]
        found.sequence = batch.sequence
        found.needed_from = batch.needed_from
        found.place = batch.place
        found.length = batch.length
        found.crc = batch.crc
        found.previous = batch.previous
        found.unsynced = batch.unsynced
        self.latest_ns = max(self.latest_ns, batch.wall_ns)
        self.count += 1
        return 0

    # What is proven

    cdef int find_proven(self) noexcept:
        """Even a header that belongs to nothing said it when it was written."""
        cdef size_t i
        self.proven = self.folder.head.interval_from - 1 if self.folder.head.interval_from else 0
        for i in range(self.count):
            self.proven = max(self.proven, self.found[i].sequence - 1 - self.found[i].unsynced)
        return 0

    cdef size_t cut_off(self) except? 0:
        """Return the index of the first header behind the batches that are proven, or whole and joined to them."""
        cdef uint64_t expected = self.proven + 1
        cdef size_t start = self.count, end, before = self.count
        while start > 0 and self.found[start - 1].sequence > self.proven:
            start -= 1
        while start < self.count:
            end = self.group_end(start)
            if self.found[start].sequence != expected or not self.is_joined(start, end, before):
                self.torn = self.choose_good(start, end)[0]
                if before < self.count:
                    self.torn.previous = 0      # it does not say which of those before counts
                break
            expected += 1
            before = start
            start = end
        return start

    cdef size_t group_end(self, size_t start) noexcept:
        """Behind the headers with the number of this one."""
        cdef size_t end = start + 1
        while end < self.count and self.found[end].sequence == self.found[start].sequence:
            end += 1
        return end

    cdef bint is_joined(self, size_t start, size_t end, size_t before) except -1:
        """Whether one of these is whole and was written behind one of those `before`, unless there are none."""
        cdef size_t i, j
        for i in range(start, end):
            if not self.load_batch(&self.found[i]):
                continue
            if before == self.count:
                return True
            for j in range(before, start):
                if self.found[j].crc == self.found[i].previous:
                    return True
        return False

    cdef int choose(self) except -1:
        """One for each number, from the last to the first; they move to the end of the array meanwhile."""
        cdef size_t end, chosen, start
        cdef Found *behind = NULL
        cdef Found *one
        self.find_proven()
        self.cut_end = self.count
        end = chosen = self.count = self.cut = self.cut_off()
        if self.torn.sequence:
            behind = &self.torn
        while end > 0:
            start = end - 1
            while start > 0 and self.found[start - 1].sequence == self.found[end - 1].sequence:
                start -= 1
            if behind is NULL:
                one = self.choose_whole(start, end)
                if one is NULL:
                    # The head proves it: damaged.
                    one = self.choose_good(start, end)
            else:
                one = self.choose_one(start, end, behind)
            if one is not NULL:
                chosen -= 1
                self.found[chosen] = one[0]
                behind = &self.found[chosen]
            end = start
        self.count -= chosen
        if self.count:
            memmove(self.found, self.found + chosen, self.count * sizeof(Found))
        self.note_ends()
        return 0

    cdef int note_ends(self) except -1:
        cdef size_t i
        self.is_torn = self.torn.sequence > 0
        self.first = self.folder.head.needed_from
        for i in range(self.count):
            self.first = max(self.first, self.found[i].needed_from)
        self.last = self.found[self.count - 1].sequence if self.count else 0
        # No number is used again, even if nothing that is left says so.
        self.last = max(self.last, self.proven, self.first - 1)
        return 0

    cdef Found *choose_one(self, size_t start, size_t end, Found *behind) except? NULL:
        """A write that failed, or a torn one, may have left a header of the same number; NULL: none belongs here."""
        cdef Found *whole
        cdef size_t i
        if behind.sequence == self.found[start].sequence + 1 and behind.previous:
            for i in range(start, end):
                if self.found[i].crc == behind.previous:
                    return &self.found[i]
            return NULL
        whole = self.choose_whole(start, end) if end > start + 1 else NULL
        return self.choose_good(start, end) if whole is NULL else whole

    cdef Found *choose_good(self, size_t start, size_t end) noexcept:
        """One in a quarter where no write failed, if there is one."""
        cdef size_t i
        for i in range(start, end):
            if not self.folder.is_bad(place_quarter(self.found[i].place)):
                return &self.found[i]
        return &self.found[start]

    cdef Found *choose_whole(self, size_t start, size_t end) except? NULL:
        cdef Found *found = NULL
        cdef size_t i
        for i in range(start, end):
            if self.load_batch(&self.found[i]):
                found = &self.found[i]
                if not self.folder.is_bad(place_quarter(found.place)):
                    break
        return found

    cdef Found *behind(self, size_t index) noexcept:
        """The header with this index; behind the last one what is torn."""
        return &self.found[index] if index < self.count else &self.torn

    cdef int note_end(self) except -1:
        """Where the next batch goes, and the last one in each quarter."""
        cdef Found *last = &self.found[self.count - 1] if self.count else NULL
        if last is not NULL:
            self.end_quarter = place_quarter(last.place)
            self.end_offset = place_offset(last.place) + last.length
            self.end_crc = last.crc if last.sequence == self.last else 0
        if self.torn.sequence and not self.end_crc:
            # Nobody knows where the batch before it ended.
            self.end_quarter = place_quarter(self.torn.place)
            self.end_offset = place_offset(self.torn.place)
            if self.end_offset == 0:
                self.end_quarter = (self.end_quarter + QUARTER_COUNT - 1) % QUARTER_COUNT
                self.end_offset = self.folder.quarter_size
        if self.last < self.first:
            self.note_begun_anew()
        return self.note_last()

    cdef void note_begun_anew(self) noexcept:
        """Nothing is needed, and what was cut off may stand before the end: no other quarter is good, so that this one
        was begun once more."""
        cdef size_t i
        for i in range(self.cut, self.cut_end):
            if (place_quarter(self.found[i].place) == self.end_quarter
                    and place_offset(self.found[i].place) < self.end_offset):
                self.end_offset = 0

    cdef int note_last(self) except -1:
        """Batches that are missing stand in a quarter as well."""
        cdef Found *before = NULL
        cdef Found *found
        cdef size_t i
        cdef uint64_t missing_first, missing_last
        cdef int j, quarter
        for i in range(self.count + (self.torn.sequence > 0)):
            found = self.behind(i)
            if before is not NULL and before.sequence + 1 < self.first:
                before = NULL       # of an earlier lap, perhaps
            # What is missing right before one that was cut off was cut off, too.
            missing_first = before.sequence + 1 if before is not NULL else self.first
            missing_last = min(found.sequence - 1, self.last)
            if missing_first <= missing_last:
                self.find_ranges(before, found, found.sequence - missing_first)
                for j in range(self.range_count):
                    self.last_in[self.ranges[j].quarter] = missing_last
            before = found
        self.range_count = 0
        for i in range(self.cut, self.cut_end):
            quarter = place_quarter(self.found[i].place)
            while quarter != self.end_quarter:
                # It was begun behind the last batch, and so were those between, whatever was looked for there.
                self.last_in[quarter] = 0
                quarter = (quarter + QUARTER_COUNT - 1) % QUARTER_COUNT
        for i in range(self.count):
            quarter = place_quarter(self.found[i].place)
            self.last_in[quarter] = max(self.last_in[quarter], self.found[i].sequence)
        self.last_in[self.end_quarter] = max(self.last_in[self.end_quarter], self.last)
        return 0

    # Reading

    cdef int grow_data(self, size_t size) except -1:
        cdef size_t capacity = self.capacity_read or <size_t> PIECE_SIZE
        cdef void *data
        while capacity < size:
            capacity *= 2
        if capacity > self.capacity_read:
            data = block_resize(self.data, self.capacity_read, capacity)
            if data is NULL:
                raise MemoryError
            self.data = <char *> data
            self.capacity_read = capacity
        return 0

    cdef int load(self, int quarter, uint64_t start, uint64_t end) except -1:
        """Make these bytes what records are read from."""
        cdef uint64_t page = start // PAGE_SIZE * PAGE_SIZE
        cdef size_t size = align_up(end, PAGE_SIZE) - page
        self.grow_data(size)
        self.folder.read_quarter(quarter, page, self.data, size, None)
        self.salvage.data = self.data + (start - page)
        self.salvage.size = end - start
        self.salvage.place = make_place(quarter, start)
        self.salvage.epoch_seed = self.folder.epoch_seed
        self.position = 0
        self.is_reported = False
        return 0

    cdef bint load_batch(self, Found *found) except -1:
        """Return whether it is whole."""
        cdef uint64_t start = place_offset(found.place)
        self.load(place_quarter(found.place), start, start + found.length)
        self.position = BATCH_HEADER_SIZE
        self.sequence = found.sequence
        return (
            is_batch(self.salvage.data, self.folder.epoch_seed, found.place, self.folder.quarter_size)
            and (<const Batch *> self.salvage.data).length == found.length
            and is_whole(self.salvage.data, self.folder.epoch_seed)
        )

    cdef void seek(self, uint64_t sequence) noexcept:
        self.following = sequence

    cdef bint next(self, Record *record) except -1:
        cdef const RecordHeader *header
        while self.position >= self.salvage.size or (self.is_searching and not self.search()):
            self.end_range()
            if not self.load_next():
                return False
        header = <const RecordHeader *> (self.salvage.data + self.position)
        record.kind = header.kind
        record.flags = header.flags
        record.extra = header.extra
        record.subject = header.subject
        record.payload = <const char *> header + RECORD_HEADER_SIZE
        record.size = header.length - RECORD_HEADER_SIZE
        record.sequence = self.sequence
        self.position += align_up(header.length, 8)
        return True

    cdef bint load_next(self) except -1:
        """Load the next batch, or a range where it may be; False: there is none."""
        cdef Found *found
        if self.range_index < self.range_count:
            self.load_range()
            return True
        if self.following > self.last:
            self.free_data()
            return False
        while self.index < self.count and self.found[self.index].sequence < self.following:
            self.index += 1
        found = self.behind(self.index)
        if self.following < self.first:
            return self.load_old(found)
        if found.sequence == self.following:
            if not self.load_batch(found):
                self.begin_search(found.sequence, found.sequence)
            self.following += 1
            return True
        return self.load_missing(found)

    cdef bint load_old(self, Found *found) except -1:
        """A batch that is not needed any more, unless it is damaged: others may stand over it."""
        if self.index == self.count or found.sequence >= self.first:
            self.following = self.first
            return True
        self.following = found.sequence + 1
        if not self.load_batch(found):
            self.salvage.size = self.position = 0
        return True

    cdef bint load_missing(self, Found *found) except -1:
        """Search for all batches before this one: each range in turn."""
        cdef Found *before = NULL
        self.salvage.first = self.following
        self.salvage.last = self.missing_last = min(found.sequence - 1, self.last)
        if self.index > 0 and self.found[self.index - 1].sequence == self.following - 1:
            before = &self.found[self.index - 1]
        if found.sequence > 0:
            self.find_ranges(before, found, found.sequence - self.following)
        else:
            self.find_ranges_at_end()
        self.following = self.missing_last + 1
        if self.range_count == 0:
            self.salvage.place = found.place
            self.report(0, 0)
        return True

    cdef bint load_range(self) except -1:
        cdef Range *range_ = &self.ranges[self.range_index]
        cdef uint64_t last = self.missing_last
        self.range_index += 1
        if self.is_failed(range_.quarter, self.salvage.first):
            return False
        if self.is_failed(range_.quarter, last):
            last = self.folder.head.failed[range_.quarter] - 1
        self.load(range_.quarter, range_.start, range_.end)
        self.begin_search(self.salvage.first, last)
        return True

    cdef int find_ranges(self, Found *before, Found *behind, uint64_t missing) noexcept:
        """Where so many batches may stand between these two. before: NULL if nobody knows where it was."""
        cdef int until = place_quarter(behind.place), quarter = (until + 1) % QUARTER_COUNT
        cdef uint64_t size = self.folder.quarter_size, end = place_offset(behind.place), start = 0
        self.range_count = self.range_index = 0
        if before is not NULL:
            quarter = place_quarter(before.place)
            start = align_up(place_offset(before.place) + before.length, SECTOR_SIZE)
            if quarter == until and start <= end:
                self.add_range(quarter, start, end)
                return 0
        if missing == 1 and end > 0:
            # The one right before stands in the same quarter.
            self.add_range(until, 0, end)
            return 0
        self.add_range(quarter, start, size)
        quarter = (quarter + 1) % QUARTER_COUNT
        while quarter != until:
            self.add_range(quarter, 0, size)
            quarter = (quarter + 1) % QUARTER_COUNT
        self.add_range(until, 0, end)
        return 0

    cdef void find_ranges_at_end(self) noexcept:
        """Where batches may have stood behind the last one that is left: a start erases it."""
        cdef uint64_t size = self.folder.quarter_size
        cdef int i
        self.range_count = self.range_index = 0
        self.add_range(self.end_quarter, self.end_offset, size)
        for i in range(1, QUARTER_COUNT):
            self.add_range((self.end_quarter + i) % QUARTER_COUNT, 0, size)
        if self.folder.count_good() == 1:
            self.add_range(self.end_quarter, 0, self.end_offset)    # which was begun once more

    cdef void add_range(self, int quarter, uint64_t start, uint64_t end) noexcept:
        if start < end:
            self.ranges[self.range_count] = Range(quarter, start, end)
            self.range_count += 1

    cdef int free_data(self) noexcept:
        if self.data is not NULL:
            block_free(self.data, self.capacity_read)
        self.data = NULL
        self.capacity_read = 0
        self.salvage.size = self.position = 0
        return 0

    # Salvage

    cdef int begin_search(self, uint64_t first, uint64_t last) except -1:
        self.salvage.first = first
        self.salvage.last = last
        if not salvage_begin(&self.salvage):
            raise MemoryError
        self.is_searching = True
        return 0

    cdef bint search(self) except -1:
        """Go to the next whole record; report what is skipped. False: there is none in this range."""
        cdef uint64_t at = salvage_find(&self.salvage, self.position, &self.sequence)
        if at > self.position:
            self.report(self.position, at)
        self.position = at
        if at == self.salvage.size:
            return False
        # What is left of an earlier write may stand behind it, and is not handed out out of order.
        self.salvage.first = self.sequence
        return True

    cdef int end_range(self) except -1:
        if self.is_searching and not self.is_reported:
            self.report(0, self.salvage.size)
        salvage_end(&self.salvage)
        self.is_searching = False
        return 0

    cdef int report(self, uint64_t start, uint64_t end) except -1:
        cdef int quarter = place_quarter(self.salvage.place)
        cdef uint64_t offset = place_offset(self.salvage.place)
        sequences = (self.salvage.first, self.salvage.last)
        self.damaged.append((self.folder.quarter_path(quarter), offset + start, offset + end, sequences))
        self.is_reported = True
        return 0
