"""Lines, JSON lines, Parquet and Arrow: what comes back, from where, and what is told of what does not."""

import builtins
import os
import random
import threading

import pytest

from nsqfast.archives import lines as lines_module
from nsqfast.archives.records import NO_TIME
from nsqfast.errors import OptionsError
from support.archives import (
    BEGIN_NS,
    Reading,
    json_line,
    lines,
    members,
    write_arrow,
    write_parquet,
)
from support.seeds import seeds

BODIES = [b"%d " % i + bytes([i % 256, 0, 10]) * (i % 40) + b"\xff" for i in range(3000)]
TEXTS = [b"%d " % i + b"x" * (i % 90) for i in range(3000)]


@pytest.fixture(params=["parquet", "arrow", "stream"])
def table(request, tmp_path):
    """A function that writes a table of 3 groups of rows, and its path."""
    if request.param == "parquet":
        return write_parquet, tmp_path / "a.parquet"
    if request.param == "arrow":
        return write_arrow, tmp_path / "a.arrow"
    return lambda *args, **more: write_arrow(*args, is_stream=True, **more), tmp_path / "a.rows"


# -- lines


@pytest.mark.parametrize("block_size", [1, 50, 1 << 20])
def test_lines(tmp_path, block_size):
    path = tmp_path / "a.log"
    path.write_bytes(lines(TEXTS))
    reading = Reading(path, block_size=block_size)
    assert reading.bodies == TEXTS
    assert reading.damages == []
    for index in (1, 1500, 2999):
        again = Reading(path, reading.positions[index], block_size)
        assert again.bodies == TEXTS[index:]
        assert again.positions == reading.positions[index:]


def test_nuls_and_carriage_returns_stay_and_empty_lines_are_none(tmp_path):
    path = tmp_path / "a.log"
    path.write_bytes(b"\n\na\0b\r\n\n\0\n")
    assert Reading(path).bodies == [b"a\0b\r", b"\0"]


def test_a_last_line_without_its_newline_is_torn(tmp_path):
    path = tmp_path / "a.log"
    path.write_bytes(b"one\ntwo\ntor")
    reading = Reading(path)
    assert reading.bodies == [b"one", b"two"]
    assert reading.told == f"{path}: byte 8: torn: 3 bytes without a newline at the end of the file"
    whole = Reading(path, is_last_whole=True)
    assert (whole.bodies, whole.positions) == ([b"one", b"two", b"tor"], [0, 4, 8])
    assert whole.damages == []


@pytest.mark.parametrize("block_size", [7, 1000])
def test_a_line_that_is_too_long_is_left_out(tmp_path, monkeypatch, block_size):
    monkeypatch.setattr(lines_module, "RECORD_SIZE_MAX", 100)
    path = tmp_path / "a.log"
    path.write_bytes(b"one\n" + b"x" * 2500 + b"\ntwo\nthree\n")
    reading = Reading(path, block_size=block_size)
    assert reading.bodies == [b"one", b"two", b"three"]
    assert reading.positions == [0, 2505, 2509]
    assert reading.told == f"{path}: byte 4: a line of more than 100 bytes"
    path.write_bytes(b"one\n" + b"x" * 2500)
    reading = Reading(path, block_size=block_size)
    assert (reading.bodies, len(reading.damages)) == ([b"one"], 1)


def test_lines_come_from_a_pipe_as_they_come(tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    writer = threading.Thread(target=lambda: path.write_bytes(b"one\ntwo\n"))
    writer.start()
    assert Reading(path).bodies == [b"one", b"two"]
    writer.join(10)


# -- JSON lines


@pytest.mark.parametrize("packer", ["", "gzip", "zstd"])
def test_jsonl_is_exact(tmp_path, packer):
    path = tmp_path / "a.jsonl"
    data = b"".join(json_line(i, body, f"t{i % 3}") for i, body in enumerate(BODIES))
    path.write_bytes(members([data], packer)[0] if packer else data)
    reading = Reading(path)
    assert reading.bodies == BODIES
    assert reading.topics == [f"t{i % 3}" for i in range(3000)]
    assert reading.timestamps_ns == [BEGIN_NS + i * 1_000_000_000 for i in range(3000)]
    assert reading.ids == [b"%016x" % i for i in range(3000)]
    rest = Reading(path, reading.positions[1700])
    assert rest.bodies == BODIES[1700:]


def test_only_the_body_has_to_be_there(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes('{"body":"é\\u0000"}\n{"body_base64":"AP8="}\n{"body":"","id":"x"}\n'.encode())
    reading = Reading(path)
    assert reading.bodies == ["é\0".encode(), b"\0\xff", b""]
    assert reading.timestamps_ns == [NO_TIME] * 3
    assert reading.ids == [b"", b"", b"x"]
    assert reading.parts[0].topics is None
    assert reading.damages == []


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"{torn", "expected"),
        (b'{"body":"a"} {"body":"b"}', "unexpected"),
        (b"[1]", "not an object"),
        (b"null", "not an object"),
        (b"{}", "neither body nor body_base64"),
        (b'{"body":1}', "body is no text"),
        (b'{"body":null}', "body is no text"),
        (b'{"body_base64":"@@@"}', "body_base64:"),
        (b'{"body":"\xff"}', "str is not valid UTF-8"),
        (b'{"body":"a","topic":"no good"}', "topic 'no good' is not valid"),
        (b'{"body":"a","topic":7}', "topic is no text"),
        (b'{"body":"a","id":7}', "id is no text"),
        (b'{"body":"a","timestamp_ns":"7"}', "timestamp_ns is no integer"),
        (b'{"body":"a","timestamp_ns":true}', "timestamp_ns is no integer"),
        (b'{"body":"a","timestamp_ns":9223372036854775808}', "timestamp_ns is no integer"),
        (b"\0" * 50, "expected"),
        (b"[" * 5000, ""),
    ],
)
def test_a_damaged_line_is_named_and_the_others_are_read(tmp_path, line, reason):
    path = tmp_path / "a.jsonl"
    path.write_bytes(json_line(1, b"one") + line + b"\n" + json_line(2, b"two"))
    reading = Reading(path)
    assert reading.bodies == [b"one", b"two"]
    (damage,) = reading.damages
    assert damage.place == f"byte {len(json_line(1, b'one'))}"
    assert reason in damage.reason
    assert len(str(damage)) < len(str(path)) + 250


# -- tables


def test_tables_are_exact(table):
    write, path = table
    write(path, BODIES, topics=["a", "b.c", "d#ephemeral"])
    reading = Reading(path)
    assert reading.bodies == BODIES
    assert reading.topics == [["a", "b.c", "d#ephemeral"][i % 3] for i in range(3000)]
    assert reading.timestamps_ns == [BEGIN_NS + i * 1_000_000_000 for i in range(3000)]
    assert reading.ids == [b"%016x" % i for i in range(3000)]
    assert reading.positions == list(range(3000))
    assert reading.damages == []
    assert 0 < reading.read_size <= path.stat().st_size


@pytest.mark.parametrize("position", [1, 999, 1000, 1001, 2999, 3000])
def test_tables_go_on_at_any_row(table, position):
    write, path = table
    write(path, BODIES)
    reading = Reading(path, position)
    assert reading.bodies == BODIES[position:]
    assert reading.positions == list(range(position, 3000))


def test_large_rows_come_a_few_at_a_time(tmp_path):
    """Memory is bounded by what rows take, not by their number."""
    path = tmp_path / "a.parquet"
    write_parquet(path, [os.urandom(1 << 20) for _ in range(20)], group_rows=20)
    reading = Reading(path, block_size=1 << 20)
    assert len(reading.bodies) == 20
    assert max(map(len, reading.parts)) <= 2


def test_tables_of_others(tmp_path):
    """Other types for the same things, nulls, and columns that are not there."""
    import pyarrow as pa
    import pyarrow.parquet

    path = tmp_path / "a.parquet"
    found = pa.table(
        {
            "body": pa.array(["one", None, "three"], pa.string()),
            "timestamp_ns": pa.array([1, None, 3], pa.timestamp("us")),
            "topic": pa.array(["t", "", None]).dictionary_encode(),
            "more": pa.array([1, 2, 3]),
        }
    )
    pyarrow.parquet.write_table(found, path)
    reading = Reading(path)
    assert reading.bodies == [b"one", b"", b"three"]
    assert reading.timestamps_ns == [1000, NO_TIME, 3000]
    assert reading.topics == ["t", "", ""]
    assert reading.parts[0].ids is None
    pyarrow.parquet.write_table(found.select(["body"]), path)
    assert Reading(path).parts[0].timestamps_ns is None


def test_a_table_without_bodies_or_with_a_wrong_topic(tmp_path):
    import pyarrow as pa
    import pyarrow.parquet

    path = tmp_path / "a.parquet"
    pyarrow.parquet.write_table(pa.table({"x": [1]}), path)
    assert "no column body, only x" in Reading(path).told
    pyarrow.parquet.write_table(pa.table({"body": ["a"], "topic": ["no good"]}), path)
    reading = Reading(path)
    assert reading.bodies == []
    assert reading.told == f"{path}: row 0: 1 rows lost (topic 'no good' is not valid)"


def test_a_damaged_parquet_footer(tmp_path):
    path = tmp_path / "a.parquet"
    write_parquet(path, BODIES)
    data = path.read_bytes()
    for torn in (data[:-1], data[:2000], data[:-8] + b"\xff" * 4 + b"PAR1", b"PAR1"):
        path.write_bytes(torn)
        reading = Reading(path)
        assert reading.bodies == []
        (damage,) = reading.damages
        assert damage.place == "its footer"
        assert "damaged Parquet" in damage.reason


def test_a_damaged_group_of_rows_does_not_hide_the_others(tmp_path):
    import pyarrow.parquet

    path = tmp_path / "a.parquet"
    write_parquet(path, BODIES)
    group = pyarrow.parquet.ParquetFile(path).metadata.row_group(1)
    column = group.column(5)
    assert column.path_in_schema == "body"
    data = bytearray(path.read_bytes())
    begin = column.dictionary_page_offset or column.data_page_offset
    data[begin : begin + 200] = b"\xff" * 200
    path.write_bytes(data)
    reading = Reading(path)
    assert reading.bodies == BODIES[:1000] + BODIES[2000:]
    (damage,) = reading.damages
    assert damage.place == "row 1000"
    assert "1000 rows lost" in damage.reason


def test_an_arrow_file_without_its_end_is_read_up_to_there(tmp_path):
    path = tmp_path / "a.arrow"
    write_arrow(path, BODIES)
    path.write_bytes(path.read_bytes()[:-300])
    reading = Reading(path)
    assert reading.bodies == BODIES
    assert "its footer" in reading.told
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    reading = Reading(path)
    assert reading.bodies == BODIES[:1000]
    assert reading.damages


def test_a_stream_that_is_torn_is_read_up_to_there(tmp_path):
    """NAME.rows of an nsq_to_file that was killed."""
    path = tmp_path / "a.parquet.rows"
    write_arrow(path, BODIES, is_stream=True)
    data = path.read_bytes()
    path.write_bytes(data[:-8])  # without the mark of its end
    reading = Reading(path)
    assert (reading.bodies, reading.damages) == (BODIES, [])
    path.write_bytes(data[:-2000])
    reading = Reading(path)
    assert reading.bodies == BODIES[:2000]
    assert "row 2000" in reading.told


def test_rows_that_a_damaged_page_leaves_out_are_told(tmp_path):
    """Arrow gives fewer rows than the footer says, and no error."""
    path = tmp_path / "a.parquet"
    write_parquet(path, BODIES[:600], 200)
    data = bytearray(path.read_bytes())
    silent = 0
    for place in range(len(data) - 3000):
        data[place] ^= 2
        path.write_bytes(data)
        reading = Reading(path)
        lost = 600 - len(reading.bodies)
        assert not lost or reading.damages, place
        silent += "its pages have fewer" in reading.told
        data[place] ^= 2
        if silent:
            break
    assert silent


@pytest.mark.parametrize("seed", seeds("tables", 40))
def test_random_damage_to_a_table_never_raises(table, seed):
    dice = random.Random(seed)
    write, path = table
    write(path, BODIES[:600], 200)
    data = bytearray(path.read_bytes())
    for _ in range(dice.randrange(1, 6)):
        data[dice.randrange(len(data))] ^= 1 << dice.randrange(8)
    path.write_bytes(data[: dice.choice([len(data), dice.randrange(len(data))])])
    reading = Reading(path)
    if len(reading.bodies) < 600:
        assert reading.damages


@pytest.mark.parametrize(
    ("write", "is_hit", "count", "is_said"),
    [
        (write_parquet, lambda _: True, 0, True),
        (write_arrow, lambda number: number == 0, 3, False),  # the footer says it again
        (write_arrow, lambda number: number > 0, 3, True),  # what is before the footer is as good
        (write_arrow, lambda _: True, 0, True),
    ],
    ids=["parquet", "arrow's head", "arrow's footer", "arrow"],
)
def test_a_damaged_name_of_a_column_is_damage(tmp_path, write, is_hit, count, is_said):
    path = tmp_path / "a"
    write(path, [b"1", b"2", b"3"])
    before, *others = path.read_bytes().split(b"timestamp_ns")
    assert others
    names = [
        b"timestamp_n" + (b"\xf3" if is_hit(number) else b"s") for number in range(len(others))
    ]
    path.write_bytes(before + b"".join(map(bytes.__add__, names, others)))
    reading = Reading(path)
    assert (len(reading.bodies), bool(reading.damages)) == (count, is_said)


def test_without_pyarrow_one_line_says_what_to_install(tmp_path, monkeypatch):
    path = tmp_path / "a.parquet"
    write_parquet(path, [b"a"])
    real = builtins.__import__

    def missing(name, *args, **more):
        if name.startswith("pyarrow"):
            raise ModuleNotFoundError(name, name=name)
        return real(name, *args, **more)

    monkeypatch.setattr(builtins, "__import__", missing)
    with pytest.raises(OptionsError, match=r"pip install 'nsqfast\[arrow\]'"):
        Reading(path)


def test_a_disk_that_cannot_be_read_on_is_damage(tmp_path, monkeypatch):
    path = tmp_path / "a.log"
    path.write_bytes(lines(TEXTS))
    real = os.read
    calls = []

    def read(fd, size):
        calls.append(size)
        if len(calls) == 3:
            raise OSError(5, "Input/output error")
        return real(fd, size)

    monkeypatch.setattr(os, "read", read)
    reading = Reading(path)
    assert reading.bodies == TEXTS[: len(reading.bodies)]
    assert len(reading.bodies) > 10
    assert (
        reading.told == f"{path}: byte 2000 of the file: input/output error; the rest was not read"
    )
