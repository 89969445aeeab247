"""Segments that are damaged: what of them can be read is read, and the rest is named."""

import random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from nsqfast.spark.spool import parquet
from nsqfast.spark.spool.identity import open_spool
from nsqfast.spark.spool.reading import read_batches
from nsqfast.spark.spool.segments import ARROW, FORMATS, PARQUET
from nsqfast.spark.spool.writer import SegmentWriter
from support.spool import make_rows


@pytest.fixture(params=FORMATS)
def writer(tmp_path, request):
    open_spool(tmp_path, "t", "c")
    made = SegmentWriter.open(tmp_path, "r0", request.param)
    yield made
    made.close()


only_arrow = pytest.mark.parametrize("writer", [ARROW], indirect=True)
only_parquet = pytest.mark.parametrize("writer", [PARQUET], indirect=True)


def read_damaged(segment):
    said = []
    rows = [batch.num_rows for batch in read_batches(segment, said.append)]
    return rows, said


def test_a_damaged_batch_is_named_and_the_rest_is_read(writer, monkeypatch):
    monkeypatch.setattr(parquet, "ROW_GROUP_ROWS", 10)
    segment = writer.seal([make_rows(range(n, n + 10)) for n in range(0, 30, 10)])
    data = bytearray(segment.path.read_bytes())
    place = data.index(b"body 15")
    data[place] ^= 1
    segment.path.write_bytes(data)
    rows, said = read_damaged(segment)
    assert rows == [10, 10]
    (line,) = said
    assert f"segment {segment.path} is damaged" in line
    assert "10 messages (rows 10 to 19) cannot be read" in line


@only_arrow
def test_a_torn_segment_is_read_up_to_its_tear(writer):
    segment = writer.seal([make_rows(range(n, n + 10)) for n in range(0, 30, 10)])
    data = segment.path.read_bytes()
    segment.path.write_bytes(data[: data.index(b"body 25")])
    rows, said = read_damaged(segment)
    assert rows == [10, 10]
    assert "10 of 30 messages cannot be read" in said[0]


@only_parquet
@pytest.mark.parametrize("gone", [1, 4, 100])
def test_a_parquet_segment_without_its_end_cannot_be_read(writer, gone):
    """What it consists of stands at its end."""
    segment = writer.seal([make_rows(range(30))])
    segment.path.write_bytes(segment.path.read_bytes()[:-gone])
    rows, said = read_damaged(segment)
    assert rows == []
    assert f"segment {segment.path} is damaged: 30 messages cannot be read" in said[0]


@only_parquet
def test_a_parquet_segment_with_damage_where_no_checksum_is(writer):
    """That part says which columns and rows there are: a name that is no text, and fewer rows than were sealed."""
    segment = writer.seal([make_rows(range(50))])
    data = segment.path.read_bytes()
    place = data.index(b"attempts")
    segment.path.write_bytes(data[:place] + b"\xf4" + data[place + 1 :])
    rows, said = read_damaged(segment)
    assert rows == []
    assert "50 messages cannot be read" in said[0]
    segment.path.write_bytes(parquet.pack([make_rows(range(40))]))
    rows, said = read_damaged(segment)
    assert sum(rows) == 40
    assert said == [f"segment {segment.path} is damaged: it has 40 of 50 messages"]


@only_parquet
def test_a_file_with_other_columns_is_no_segment(writer):
    segment = writer.seal([make_rows(range(30))])
    pq.write_table(pa.table({"x": [1]}), segment.path)
    assert read_damaged(segment)[1] == [
        f"segment {segment.path} is damaged: 30 messages cannot be read (its columns are x)"
    ]


@only_arrow
def test_a_segment_without_its_end_is_read_as_far_as_it_is_sound(writer):
    segment = writer.seal([make_rows(range(10))])
    segment.path.write_bytes(segment.path.read_bytes()[:-4])
    assert read_damaged(segment)[0] == [10]
    assert "its checksums are gone" in read_damaged(segment)[1][0]


def test_any_single_flipped_bit_is_noticed(writer):
    """No message is changed or lost without a word, and nothing crashes."""
    rows = [make_rows(range(5)), make_rows(range(5, 10))]
    segment = writer.seal(rows)
    sound = segment.path.read_bytes()
    lottery = random.Random(14)
    for _ in range(300):
        data = bytearray(sound)
        data[lottery.randrange(len(data))] ^= 1 << lottery.randrange(8)
        segment.path.write_bytes(data)
        said = []
        found = list(read_batches(segment, said.append))
        if not said:
            assert pa.Table.from_batches(found) == pa.Table.from_batches(rows)


@pytest.mark.parametrize("size", [0, 1, 20])
def test_a_segment_that_is_hardly_there(writer, size):
    segment = writer.seal([make_rows(range(10))])
    segment.path.write_bytes(segment.path.read_bytes()[:size])
    rows, said = read_damaged(segment)
    assert rows == []
    assert "10" in said[0]


def test_a_segment_that_is_gone_is_named(writer):
    segment = writer.seal([make_rows(range(10))])
    segment.path.unlink()
    assert read_damaged(segment) == ([], [f"segment {segment.path} is not there: 10 messages"])
