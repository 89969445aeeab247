"""What a start finds in a ring, or whoever looks at one: nothing here writes."""

from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t

from nsqfast._ext.commitlog.contents cimport RingContents

ctypedef struct Record:
    uint8_t kind                # this, flags, extra, subject and payload are as they were appended
    uint8_t flags
    uint16_t extra
    uint32_t subject
    const char *payload
    size_t size                 # of the payload
    uint64_t sequence           # of its batch


# What a batch's header says, and its sum.
ctypedef struct Found:
    uint64_t sequence
    uint64_t needed_from
    uint64_t place
    uint32_t length
    uint32_t crc
    uint32_t previous
    uint64_t unsynced


# Bytes of a quarter in which records of these batches stand.
ctypedef struct Range:
    int quarter
    uint64_t start
    uint64_t end


cdef extern from "commitlog/salvage.h" nogil:
    ctypedef struct Salvage "nsq_salvage":
        const char *data
        uint64_t size
        uint64_t place
        uint32_t epoch_seed
        uint64_t first
        uint64_t last
        uint32_t *states


cdef class Recovery:
    cdef readonly uint64_t first         # the first batch that is handed out: the last needed_from that was committed
    cdef readonly uint64_t last          # the last batch that was committed; first - 1 = there is none from `first` on
    cdef readonly int64_t latest_ns      # the latest wall time of a batch; INT64_MIN = there is none
    cdef readonly bint is_torn           # the beginning of a batch behind it was found: all that was cut off
    # (path, start, end, (first sequence, last sequence)) of what was damaged: bytes of that file, and the batches that
    # they belong to; (0, 0) for bytes that cannot be read and may belong to none. Complete when next() returned False.
    cdef readonly list damaged           # such tuples
    cdef RingContents folder

    cdef Found *found                    # headers, in the order of their batches; one for each when chosen
    cdef size_t count
    cdef size_t capacity
    cdef uint64_t proven                 # all batches up to this one were on disk
    cdef size_t cut                      # of `found`, what was cut off: from this one ...
    cdef size_t cut_end                  # ... to this one
    cdef Found torn                      # the first header that was cut off; sequence 0 = none was
    cdef int end_quarter                 # where the next batch goes, before it is aligned
    cdef uint64_t end_offset
    cdef uint32_t end_crc                # of the header of the last batch; 0 = unknown
    cdef uint64_t[4] last_in             # the last batch in each quarter; 0 = none

    cdef uint64_t following              # the next batch to be handed out
    cdef size_t index                    # of the first of `found` that is not before it
    cdef uint64_t missing_last           # of the batches that are searched for; the first one is salvage.first
    cdef Range[6] ranges                 # where they may be
    cdef int range_count
    cdef int range_index                 # the next one

    cdef char *data                      # a range that was read, beginning on a page; the batch or range in it is
    cdef size_t capacity_read            # salvage.data
    cdef Salvage salvage
    cdef bint is_searching               # the range is damaged
    cdef uint64_t position               # in it: behind the last record
    cdef uint64_t sequence               # of the batch in it, unless searching
    cdef bint is_reported                # damage of the range was

    # The records from `first` on, in the order of their batches and in these as they were appended. False: there are no
    # more. The record is valid until the next call. Appending and committing may go on meanwhile; closing may not.
    cdef bint next(self, Record *record) except -1
    # Before the first next(): begin with this batch. Of those before `first`, which nobody needs, whole ones are handed
    # out that nothing was written over.
    cdef void seek(self, uint64_t sequence) noexcept

    cdef int scan(self) except -1
    cdef int scan_piece(self, int quarter, uint64_t start, size_t size) except -1
    cdef bint is_failed(self, int quarter, uint64_t sequence) noexcept
    cdef int note(self, const char *header) except -1
    cdef int find_proven(self) noexcept
    cdef size_t cut_off(self) except? 0
    cdef size_t group_end(self, size_t start) noexcept
    cdef bint is_joined(self, size_t start, size_t end, size_t before) except -1
    cdef int choose(self) except -1
    cdef int note_ends(self) except -1
    cdef int note_end(self) except -1
    cdef void note_begun_anew(self) noexcept
    cdef int note_last(self) except -1
    cdef Found *choose_one(self, size_t start, size_t end, Found *behind) except? NULL
    cdef Found *choose_good(self, size_t start, size_t end) noexcept
    cdef Found *choose_whole(self, size_t start, size_t end) except? NULL
    cdef Found *behind(self, size_t index) noexcept
    cdef int grow_data(self, size_t size) except -1
    cdef int free_data(self) noexcept
    cdef int load(self, int quarter, uint64_t start, uint64_t end) except -1
    cdef bint load_batch(self, Found *found) except -1
    cdef bint load_next(self) except -1
    cdef bint load_old(self, Found *found) except -1
    cdef bint load_missing(self, Found *found) except -1
    cdef bint load_range(self) except -1
    cdef int find_ranges(self, Found *before, Found *behind, uint64_t missing) noexcept
    cdef void find_ranges_at_end(self) noexcept
    cdef void add_range(self, int quarter, uint64_t start, uint64_t end) noexcept
    cdef int begin_search(self, uint64_t first, uint64_t last) except -1
    cdef bint search(self) except -1
    cdef int end_range(self) except -1
    cdef int report(self, uint64_t start, uint64_t end) except -1
