"""A ring as somebody looks at it, while it is written perhaps: its figures, its batches and their records."""

from libc.stdint cimport uint64_t

from nsqfast._ext.commitlog.contents cimport RingContents
from nsqfast._ext.commitlog.files cimport Files
from nsqfast._ext.commitlog.format cimport (
    QUARTER_COUNT, RING_VERSION, SECTOR_SIZE, Batch, align_up, place_offset, place_quarter,
)
from nsqfast._ext.commitlog.recovery cimport Recovery

FORMAT = RING_VERSION


cdef class RingView:
    """OptionsError or OSError from open(): there is nothing to look at; one line says why."""

    def __cinit__(self, str path, Files files=None):
        self.contents = RingContents(path, files)

    def open(self):
        self.contents.open_to_read()
        self.recovery = Recovery(self.contents)

    def close(self):
        self.contents.close()

    # The head

    @property
    def format(self):
        return self.contents.head.version

    @property
    def epoch(self):
        return self.contents.epoch()

    @property
    def quarter_size(self):
        return self.contents.quarter_size

    @property
    def interval_from(self):
        return self.contents.head.interval_from

    @property
    def failed(self):
        """For each quarter the batch whose write failed there; 0: none did."""
        return [self.contents.head.failed[i] for i in range(QUARTER_COUNT)]

    # What a start would find

    @property
    def first(self):
        return self.recovery.first

    @property
    def last(self):
        return self.recovery.last

    @property
    def torn(self):
        """(batch, file, start) of what a start would cut off; None: nothing."""
        return self.locate(self.recovery.torn.sequence, self.recovery.torn.place) if self.recovery.is_torn else None

    @property
    def damaged(self):
        """As Recovery has it."""
        return self.recovery.damaged

    @property
    def fill(self):
        cdef Recovery found = self.recovery
        cdef uint64_t align = SECTOR_SIZE if self.contents.head.interval_from else 8 * SECTOR_SIZE
        cdef uint64_t offset = align_up(found.end_offset, align)
        return self.contents.fill(found.last_in, found.first, found.end_quarter, offset)

    cdef tuple locate(self, uint64_t sequence, uint64_t place):
        return sequence, self.contents.quarter_path(place_quarter(place)), place_offset(place)

    # Records

    def seek(self, uint64_t sequence):
        """Before the first record: begin with this batch."""
        self.recovery.seek(sequence)

    def count(self, size_t most):
        """Count up to so many records; return how many there were."""
        cdef size_t done = 0
        while done < most and self.recovery.next(&self.record):
            self.kinds[self.record.kind] += 1
            self.payload_bytes += self.record.size
            done += 1
        return done

    def counts(self):
        """Records by kind."""
        return {kind: self.kinds[kind] for kind in range(256) if self.kinds[kind]}

    def read(self, size_t most, size_t most_bytes, size_t payload_most):
        """The next records of one batch: (batch, its header, records), or None.

        The header, of a batch that is whole, is (file, start, length, records, wall_ns, unsynced, needed_from), else
        None. A record is (kind, flags, extra, subject, size, payload), with `payload_most` bytes of that. It ends after
        `most` records, or with the first that has `most_bytes` behind it.
        """
        cdef size_t read_bytes = 0
        if not self.has_record:
            self.has_record = self.recovery.next(&self.record)
        if not self.has_record:
            return None
        sequence, header, found = self.record.sequence, self.describe(), []
        while self.has_record and self.record.sequence == sequence and len(found) < most and read_bytes < most_bytes:
            payload = self.record.payload[:min(self.record.size, payload_most)]
            read_bytes += <size_t> len(payload)
            found.append((
                self.record.kind, self.record.flags, self.record.extra, self.record.subject, self.record.size, payload,
            ))
            self.has_record = self.recovery.next(&self.record)
        return sequence, header, found

    cdef tuple describe(self):
        cdef const Batch *header = <const Batch *> self.recovery.salvage.data
        if self.recovery.is_searching:
            return None
        _, path, start = self.locate(header.sequence, header.place)
        return path, start, header.length, header.count, header.wall_ns, header.unsynced, header.needed_from
