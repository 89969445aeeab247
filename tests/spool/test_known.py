"""Which messages a spool holds: looked up when one comes again."""

import os
import time

import pyarrow as pa
import pytest

from nsqfast.spark.receiver import known as known_module
from nsqfast.spark.receiver.known import KnownMessages, last_sealed_ns
from nsqfast.spark.spool.release import release_segments, remove_done
from nsqfast.spark.spool.segments import ARROW, PARQUET, Segment
from nsqfast.spark.spool.writer import SegmentWriter
from support.spool import make_rows

MEMORY = 32 << 20


@pytest.fixture
def writers(spool):
    formats = {"r0": ARROW, "r1": PARQUET}
    made = {name: SegmentWriter.open(spool, name, kind) for name, kind in formats.items()}
    yield made
    for writer in made.values():
        writer.close()


def left(known, rows, unsure_before_ns=0):
    """The numbers of those that had not come before."""
    known.refresh()
    kept = known.drop_known(rows, unsure_before_ns)
    return [time_ns // 1000 for time_ns in kept.column("timestamp_ns").to_pylist()]


def again(numbers, topic="t"):
    return make_rows(numbers, topic, attempts=2)


def test_what_any_receiver_has_sealed_is_dropped(spool, writers):
    writers["r0"].seal([make_rows([1, 2]), make_rows([3])])
    writers["r1"].seal([make_rows([4])])
    writers["r1"].seal([make_rows([5])])
    release_segments(writers["r1"].folder, 1)
    known = KnownMessages(spool, "r0", MEMORY)
    assert left(known, again(range(8))) == [0, 6, 7]
    assert left(known, again(range(9))) == [8]


def test_new_segments_of_others_are_found(spool, writers, monkeypatch):
    monkeypatch.setattr(known_module, "LISTING_REST", 0.0)
    known = KnownMessages(spool, "r0", MEMORY)
    assert left(known, again([1])) == [1]
    for n in range(2, 40):
        writers["r1"].seal([make_rows([n])])
        if n % 3 == 0:
            release_segments(writers["r1"].folder, writers["r1"].next_number - 2)
        assert left(known, again([n])) == []
    assert known.segments_read == 38


def test_what_it_seals_itself_is_read_only_if_it_was_not_remembered(spool, writers):
    known = KnownMessages(spool, "r0", MEMORY)
    known.note_sealed(writers["r0"].seal([make_rows([1])]), is_remembered=False)
    assert left(known, again([1, 2])) == [2]
    known.note_sealed(writers["r0"].seal([again([2])]), is_remembered=True)
    assert known.segments_read == 1
    known.note_sealed(writers["r0"].seal([make_rows([3])]), is_remembered=False)
    assert left(known, again([2, 3, 4])) == [4]
    assert known.segments_read == 2


def test_those_of_one_attempt_are_not_asked_for_unless_they_may_have_come(spool, writers):
    writers["r0"].seal([make_rows([1, 2, 3])])
    known = KnownMessages(spool, "r0", MEMORY)
    assert left(known, make_rows([1, 2])) == [1, 2]
    assert left(known, make_rows([1, 2, 3, 4]), unsure_before_ns=2000) == [2, 3, 4]


def test_the_first_copy_may_be_in_the_same_group(spool):
    known = KnownMessages(spool, "r0", MEMORY)
    assert left(known, make_rows([1, 2])) == [1, 2]
    assert left(known, again([2, 3])) == [3]


def test_what_was_not_sealed_is_forgotten(spool, writers):
    writers["r0"].seal([make_rows([1])])
    known = KnownMessages(spool, "r0", MEMORY)
    assert left(known, again([1, 2])) == [2]
    known.forget()
    assert left(known, again([1, 2])) == [2]


def test_the_same_id_is_another_message_in_another_topic_or_at_another_time(spool, writers):
    rows = make_rows([1, 2])
    writers["r0"].seal([rows])
    known = KnownMessages(spool, "r0", MEMORY)
    later = again([1]).to_pylist()[0] | {"timestamp_ns": 7000}
    later = pa.RecordBatch.from_pylist([later], rows.schema)
    assert left(known, later) == [7]
    assert left(known, again([1], "u")) == [1]


def test_several_topics_in_one_batch(spool, writers):
    mixed = pa.concat_batches([make_rows([1, 2], "a"), make_rows([1, 3], "b"), make_rows([9], "a")])
    writers["r0"].seal([mixed])
    known = KnownMessages(spool, "r0", MEMORY)
    asked = pa.concat_batches([again([3], "a"), again([1, 3], "b"), again([9, 1], "a")])
    assert left(known, asked) == [3]
    assert left(known, pa.concat_batches([again([2], t) for t in ("b", "a", "c")])) == [2, 2]


def test_a_slice_is_as_good_as_a_batch(spool, writers):
    writers["r0"].seal([make_rows(range(10))])
    known = KnownMessages(spool, "r0", MEMORY)
    assert left(known, again(range(5, 15)).slice(3, 4)) == [10, 11]


def test_a_damaged_segment_is_said_and_not_relied_on(spool, writers, caplog):
    segment = writers["r0"].seal([make_rows([1])])
    writers["r0"].seal([make_rows([2])])
    data = bytearray(segment.path.read_bytes())
    data[data.index(b"body 1")] ^= 1
    segment.path.write_bytes(data)
    known = KnownMessages(spool, "r0", MEMORY)
    assert left(known, again([1, 2])) == [1]
    assert "is damaged" in caplog.text


def test_a_segment_that_is_removed_meanwhile_is_no_matter(spool, writers):
    writers["r0"].seal([make_rows([1])])
    writers["r0"].seal([make_rows([2])])
    release_segments(writers["r0"].folder, 2)
    known = KnownMessages(spool, "r1", MEMORY)
    listed = known._list_all()
    remove_done(writers["r0"].folder, 0.0, 0)
    known.forget()
    assert [segment.number for segment in listed] == [1, 2]
    assert left(known, again([1, 2])) == [1]


def test_when_something_was_sealed_last(spool, writers):
    assert last_sealed_ns(spool) == 0
    began_ns = time.time_ns() - 10**9
    first = writers["r1"].seal([make_rows([1])])
    assert began_ns < last_sealed_ns(spool) <= time.time_ns()
    os.utime(first.path, ns=(7, 7))
    assert last_sealed_ns(spool) == 7
    release_segments(writers["r1"].folder, 1)
    assert last_sealed_ns(spool) == 7


def test_the_newest_count_where_memory_is_short(spool, writers):
    """So it is after a kill: what comes again was sealed last."""
    for first in range(0, 5000, 100):
        writers["r0"].seal([make_rows(range(first, first + 100))])
    known = KnownMessages(spool, "r1", 0)
    assert left(known, again(range(4900, 5000))) == []
    assert known.segments_read < 10


def test_the_cost_of_many_that_come_again_does_not_grow(spool, writers):
    """A million redelivered messages in groups of 10,000, with as many segments."""
    known = KnownMessages(spool, "r0", 128 << 20)
    rows = again(range(10_000))
    stamps = rows.column("timestamp_ns").to_numpy()
    writer, spent_s = writers["r0"], []
    for group in range(100):
        columns = [
            pa.array(stamps + group * 10**9) if name == "timestamp_ns" else rows.column(name)
            for name in rows.schema.names
        ]
        moved = pa.RecordBatch.from_arrays(columns, schema=rows.schema)
        began_s = time.process_time()
        known.refresh()
        assert known.drop_known(moved, 0).num_rows == 10_000
        spent_s.append(time.process_time() - began_s)
        known.note_sealed(Segment(writer.folder, group + 1, 10_000, 1), is_remembered=True)
    # The table grows a few times, so that one group or another costs more.
    assert sorted(spent_s[50:])[25] < 5 * sorted(spent_s[:50])[25]
    assert sum(spent_s) < 5.0


def test_many_live_segments_are_listed_seldom(spool, writers, monkeypatch):
    """Each new segment of another receiver changes its folder; a long list is not read each time."""
    folder = writers["r1"].folder
    for number in range(1, 5001):
        (folder / Segment(folder, number, 0, 0).name).touch()
    known = KnownMessages(spool, "r0", MEMORY)
    listings = []
    from nsqfast.spark.receiver import known as module

    real = module.list_segments
    monkeypatch.setattr(module, "list_segments", lambda path: listings.append(path) or real(path))
    known.refresh()
    began = len(listings)
    end_s = time.monotonic() + 20
    number = 5000
    while len(listings) < began + 3 and time.monotonic() < end_s:
        number += 1
        (folder / Segment(folder, number, 0, 0).name).touch()
        known.refresh()
    assert number - 5000 > 3 * (len(listings) - began) > 0
