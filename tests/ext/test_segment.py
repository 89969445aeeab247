"""Names of data files, and finding whole records in any bytes."""

import random

import pytest
from nsqfast._ext.segment import Segment, save_damaged, segment_numbers, segment_path

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
    assert segment(record(b"abc")[:20]).torn(0)
    assert segment(b"\0\0").torn(0)
    assert segment(bytes(100)).torn(0)
    assert not segment(b"\0\0\0\7garbage").torn(0)


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
