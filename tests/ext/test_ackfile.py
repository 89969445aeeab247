"""The file of acknowledgements: what is stored is there for the next who opens it, without a close."""

import random
import struct
from pathlib import Path

import pytest
from nsqfast._ext.ackfile import AckFile

from support.seeds import seeds


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "q.diskqueue.acks.dat")


def test_fresh(path):
    acks = AckFile(path)
    assert acks.state() == ((1, 0, 0), (1, 0, 0))
    assert acks.finished() == []
    assert Path(path).stat().st_mode & 0o777 == 0o600
    assert Path(path).stat().st_size == 512 + acks.capacity // 8


def test_seen_by_others_at_once(path):
    acks = AckFile(path)
    acks.put_written(10, 2, 300)
    acks.put_cursor(3, 1, 90)
    acks.finish_record(5)
    other = AckFile.load(path)
    assert other.trusted
    assert other.state() == ((3, 1, 90), (10, 2, 300))
    assert other.finished() == [5]


@pytest.mark.parametrize("size", [0, 100, 512, 2559, 2561])
def test_wrong_size_is_refused(path, size):
    AckFile(path).close()
    data = Path(path).read_bytes().ljust(size, b"\0")[:size]
    Path(path).write_bytes(data)
    assert AckFile.load(path) is None


FAR = 1 << 62
MASK = (1 << 64) - 1
FILE_FACTOR = 0xFF51AFD7ED558CCD
POSITION_FACTOR = 0xC4CEB9FE1A85EC53


def mix(number):
    """The finalizer of splitmix64."""
    number = (number + 0x9E3779B97F4A7C15) & MASK
    number = ((number ^ number >> 30) * 0xBF58476D1CE4E5B9) & MASK
    number = ((number ^ number >> 27) * 0x94D049BB133111EB) & MASK
    return number ^ number >> 31


def kept(index, file, position):
    """A place as it stands in the file, with its check."""
    check = mix((index + file * FILE_FACTOR + position * POSITION_FACTOR) & MASK)
    return struct.pack("<3qQ", index, file, position, check)


@pytest.mark.parametrize(
    ("cursor", "written", "is_sound"),
    [
        ((3, 1, 90), (10, 2, 0), True),
        ((3, 1, 90), (10, 1, 300), True),
        ((10, 1, 90), (10, 1, 90), True),
        ((10, 3, 0), (10, 2, 90), True),  # killed while the queue was emptied
        ((10, 4, 0), (10, 2, 90), False),
        ((10, 3, 30), (10, 2, 90), False),
        ((9, 3, 0), (10, 2, 90), False),
        ((9, 2, 91), (10, 2, 90), False),
        ((11, 1, 0), (10, 2, 0), False),
        ((FAR, 1, 0), (FAR, 1, 0), False),
        ((1, FAR, 0), (1, FAR, 0), False),
        ((1, 1, FAR), (1, 1, FAR), False),
        ((1, -1, 0), (1, 0, 0), False),
    ],
)
def test_places_that_contradict_each_other_are_refused(path, cursor, written, is_sound):
    """Where the queue begins cannot lie behind its end: all records would be lost, those still to come as well."""
    AckFile(path).close()
    data = bytearray(Path(path).read_bytes())
    # Behind magic and capacity: the two slots of the one, then those of the other.
    data[16:144] = 2 * kept(*cursor) + 2 * kept(*written)
    Path(path).write_bytes(data)
    assert (AckFile.load(path) is not None) is is_sound


MARKED, BITS_CHECK = slice(288, 296), slice(296, 304)


@pytest.mark.parametrize("is_told", [True, False])
def test_a_kill_between_a_bit_and_its_check(path, is_told):
    """The bit that was set last is named in front of it, so that a kill there is not taken for damage."""
    acks = AckFile(path)
    acks.put_written(10, 0, 300)
    acks.finish_record(3)
    before = Path(path).read_bytes()[BITS_CHECK]
    acks.finish_record(5)
    data = bytearray(Path(path).read_bytes())
    assert data[BITS_CHECK] != before
    data[BITS_CHECK] = before
    if not is_told:
        data[MARKED] = bytes(8)
    Path(path).write_bytes(data)
    other = AckFile.load(path)
    assert other.trusted is is_told
    if is_told:
        assert other.finished() == [3, 5]
        other.finish_record(4)
        assert AckFile.load(path).trusted


def test_nothing_there(path):
    assert AckFile.load(path) is None


def test_every_damaged_header_byte_is_survived(path):
    acks = AckFile(path)
    acks.put_written(10, 2, 300)
    acks.close()
    whole = Path(path).read_bytes()
    for position in range(200):
        data = bytearray(whole)
        data[position] ^= 0xFF
        Path(path).write_bytes(data)
        AckFile.load(path)


def test_a_full_disk_is_no_reason_not_to_start(tmp_path, caplog):
    acks = AckFile(str(tmp_path / "missing" / "q.acks.dat"))
    acks.put_written(100_000, 0, 9)
    acks.finish_record(77)
    assert acks.finished() == [77]
    assert "memory only" in caplog.text


@pytest.mark.parametrize("seed", seeds("ackfile", 5))
def test_random(path, seed):
    print("seed", seed)
    rng = random.Random(seed)
    acks, finished, cursor, written = AckFile(path), set(), 1, 1
    for _ in range(60):
        written += rng.choice([1, 63, 64, 65, 3000])
        acks.put_written(written, 0, written)
        for _ in range(20):
            index = rng.randrange(cursor, written)
            finished.add(index)
            acks.finish_record(index)
        cursor = rng.randrange(cursor, min(written, cursor + rng.choice([2, 100, 5000])))
        acks.put_cursor(cursor, 0, cursor)
        if rng.random() < 0.2:
            acks = AckFile.load(path)
        left = sorted(index for index in finished if index >= cursor)
        assert acks.finished() == left
        assert acks.finished_count() == len(left)
