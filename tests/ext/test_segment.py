"""Names of data files, and finding whole records in any bytes."""

import itertools
import os
import random
from pathlib import Path

import pytest
from nsqfast._ext.dev.structures import is_hollow_record, is_sealed_record, seal_record
from nsqfast._ext.storage.diskqueue.segment import (
    Segment,
    forget_listed,
    listed_once,
    save_damaged,
    segment_numbers,
    segment_path,
    segments_between,
)

from support.seeds import seeds


def record(body, number=1, timestamp_ns=1_700_000_000_000_000_000):
    header = (26 + len(body)).to_bytes(4, "big") + timestamp_ns.to_bytes(8, "big") + bytes(2)
    return header + b"%016x" % number + body


@pytest.fixture
def segment(tmp_path):
    def make(data, size=-1):
        path = tmp_path / "x.dat"
        path.write_bytes(data)
        return Segment(str(path), size)

    return make


def test_names(tmp_path):
    prefix = f"{tmp_path}/orders.diskqueue."
    assert segment_path(prefix, 7).endswith("/orders.diskqueue.000007.dat")
    assert segment_path(prefix, 12345678).endswith(".12345678.dat")
    for name in ("000010.dat", "000002.dat", "1234567.dat", "12.dat", "000001.dat.bad", "meta.dat"):
        (tmp_path / f"orders.diskqueue.{name}").touch()
    (tmp_path / "orders:x.diskqueue.000005.dat").touch()
    assert segment_numbers(prefix) == [2, 10, 1234567]


def test_names_in_a_folder_that_is_read_once(tmp_path):
    """Of a queue that was opened meanwhile the folder is asked again."""
    prefixes = [f"{tmp_path}/{name}.diskqueue." for name in ("t", "t:c", "t.b", "t.b:c.d", "none")]
    for number, prefix in enumerate(prefixes[:-1]):
        Path(segment_path(prefix, number)).touch()
        Path(prefix + "meta.dat").touch()
    (tmp_path / "t.diskqueue.000009.dat").mkdir()
    with listed_once(str(tmp_path)):
        found = [segment_numbers(prefix) for prefix in prefixes]
        Path(segment_path(prefixes[0], 7)).touch()
        assert segment_numbers(prefixes[0]) == [0]
        forget_listed(prefixes[0])
        assert segment_numbers(prefixes[0]) == [0, 7]
    assert found == [[0], [1], [2], [3], []]
    Path(segment_path(prefixes[-1], 7)).touch()
    assert segment_numbers(prefixes[-1]) == [7]


def test_damaged_bytes_are_appended(tmp_path):
    path = str(tmp_path / "x.dat")
    save_damaged(path, b"one")
    save_damaged(path, b"two")
    assert (tmp_path / "x.dat.bad").read_bytes() == b"onetwo"


def test_empty_file(segment):
    assert segment(b"").records() == []


def test_only_the_published_part_counts(segment):
    data = record(b"a") + record(b"b")
    assert segment(data, 31).records() == [(0, 31)]
    assert segment(data, 60).records() == [(0, 31)]


def test_foreign_ids_are_records_too(segment):
    data = record(b"a") + record(b"b").replace(b"0" * 15 + b"1", b"Not-hex-at-all-!") + record(b"c")
    assert segment(data).records() == [(0, 31), (31, 62), (62, 93)]


def test_torn(segment):
    assert segment(record(b"abc")[:20]).is_torn_at(0)
    assert segment(b"\0\0").is_torn_at(0)
    assert segment(bytes(100)).is_torn_at(0)
    assert not segment(b"\0\0\0\7garbage").is_torn_at(0)


@pytest.mark.parametrize("seed", seeds("segment", 30))
def test_whole_records_are_found_amid_noise(segment, seed):
    print("seed", seed)
    rng = random.Random(seed)
    data, expected = b"", []
    for number in range(rng.randrange(1, 40)):
        if rng.random() < 0.3:
            # Bytes that cannot be mistaken for the size of a record.
            data += b"\xff" + rng.randbytes(rng.randrange(60)).replace(b"\0", b"\xff")
        whole = record(b"b" * rng.randrange(50), number)
        expected.append((len(data), len(data) + len(whole)))
        data += whole
    assert segment(data).records() == expected


def test_what_is_no_regular_file_is_no_data_file(tmp_path):
    prefix = f"{tmp_path}/q.diskqueue."
    (tmp_path / "q.diskqueue.000001.dat").write_bytes(record(b"a"))
    (tmp_path / "q.diskqueue.000002.dat").mkdir()
    os.mkfifo(tmp_path / "q.diskqueue.000003.dat")
    assert segment_numbers(prefix) == segments_between(prefix, 0, 9) == [1]
    assert segments_between(prefix, 2, 3) == []
    with pytest.raises(FileNotFoundError, match="Is a directory"):
        Segment(f"{prefix}000002.dat")
    with pytest.raises(FileNotFoundError, match="Not a regular file"):
        Segment(f"{prefix}000003.dat")


@pytest.mark.parametrize("seed", seeds("segment-window", 6))
def test_records_of_any_size_are_found_through_the_window(segment, seed):
    print("seed", seed)
    rng = random.Random(seed)
    sizes = [
        rng.choice([rng.randrange(300), rng.randrange(10_000), rng.randrange(700_000)])
        for _ in range(40)
    ]
    made = [record(rng.randbytes(size), number) for number, size in enumerate(sizes)]
    ends = list(itertools.accumulate(map(len, made)))
    found = segment(b"".join(made))
    assert found.records() == list(zip([0, *ends], ends, strict=False))
    for start, end, data in zip([0, *ends], ends, made, strict=False):
        assert found.bytes(start, end) == data
    assert found.unreadable == []
    assert found.error == 0


def test_a_file_that_is_cut_ends_there(segment):
    data = b"".join(record(b"b" * 170, number) for number in range(5000))
    found = segment(data)
    os.truncate(found.path, 300_100)
    assert found.records() == [(at, at + 200) for at in range(0, 300_000, 200)]
    assert found.size == 300_100
    assert found.bytes(300_000, 400_000) == data[300_000:300_100]
    os.truncate(found.path, 0)
    assert found.bytes(0, 100) == b""
    assert found.records() == []


# Hollow records: sectors full of zeros.


def parts(position, size):
    """(start, end) of the body's parts, one in each sector of the file that it touches."""
    bounds = range(position // 512 * 512, position + size + 512, 512)
    inner = ((max(at - position, 30), min(at + 512 - position, size)) for at in bounds)
    return [(start, end) for start, end in inner if start < end]


def test_every_sector_that_is_lost_shows():
    rng = random.Random(1)
    for position in range(512):
        size = 30 + rng.choice([1, 100, 482, 513, 2000])
        whole = record(bytes(rng.randrange(1, 256) for _ in range(size - 30)), position)
        assert not is_hollow_record(whole, position)
        for start, end in parts(position, size):
            torn = whole[:start] + bytes(end - start) + whole[end:]
            assert is_hollow_record(torn, position)
            assert not is_sealed_record(torn)
            if end - start > 1:
                nearly = torn[: end - 1] + b"x" + torn[end:]
                assert not is_hollow_record(nearly, position)


@pytest.mark.parametrize("seed", seeds("hollow", 10))
def test_bodies_with_holes_are_told_from_torn_ones(seed):
    print("seed", seed)
    rng = random.Random(seed)
    for _ in range(60):
        position, size = rng.randrange(1 << 40), 30 + rng.randrange(1, 3000)
        body = bytearray(rng.choice([bytes(size - 30), rng.randbytes(size - 30)]))
        for _ in range(rng.randrange(3)):
            at = rng.randrange(size - 30)
            body[at : at + 512] = bytes(len(body[at : at + 512]))
        whole = record(bytes(body), rng.getrandbits(64), rng.getrandbits(63))
        hollow = any(not any(whole[start:end]) for start, end in parts(position, size))
        assert is_hollow_record(whole, position) == hollow
        if not hollow:
            continue
        sealed = seal_record(whole)
        assert (sealed[:10], sealed[12:]) == (whole[:10], whole[12:])
        assert is_sealed_record(sealed)
        assert seal_record(sealed) == sealed
        for start, end in parts(position, size):
            torn = sealed[:start] + bytes(end - start) + sealed[end:]
            assert is_sealed_record(torn) == (torn == sealed)


WORD = (1 << 64) - 1


def checksum(data):
    """By the description in hollow.h, a word after the other."""
    step, factor, total = 0x9E3779B97F4A7C14, 0xFF51AFD7ED558CCD, len(data)
    data = data[:10] + bytes(2) + data[12:]
    for start in range(0, len(data), 8):
        total += int.from_bytes(data[start : start + 8].ljust(8, b"\0"), "big") * factor
        factor += step
    mixed = (total + 0x9E3779B97F4A7C15) & WORD
    mixed = ((mixed ^ mixed >> 30) * 0xBF58476D1CE4E5B9) & WORD
    mixed = ((mixed ^ mixed >> 27) * 0x94D049BB133111EB) & WORD
    return (mixed ^ mixed >> 31) >> 48


@pytest.mark.parametrize("size", [1, 2, 3, 9, 10, 200, 511, 512, 5000])
def test_the_seal_is_a_checksum_of_all_else(size):
    for body in (bytes(size), bytes(size - 1) + b"x", b"x" + bytes(size - 1), b"y" * size):
        sealed = seal_record(record(body))
        assert int.from_bytes(sealed[10:12], "big") == checksum(sealed)


def test_records_without_a_body_are_never_hollow():
    assert not any(is_hollow_record(record(b""), position) for position in range(512))


@pytest.mark.parametrize("size", [1, 100, 262_114, 262_115, 600_000])
def test_hollow_records_are_known_in_the_file(segment, size):
    made = [record(b"x" * size), record(bytes(size)), seal_record(record(bytes(size)))]
    found = segment(b"".join(made))
    starts = [start for start, _ in found.records()]
    assert [found.is_hollow_at(start) for start in starts] == [False, True, True]
    assert [found.is_sealed_at(start) for start in starts] == [False, False, True]
    assert not found.is_hollow_at(1)
    assert not found.is_sealed_at(found.size)
