"""What a start finds in a ring: whole, torn, damaged, unreadable, stale."""

import random
import zipfile
from itertools import pairwise
from pathlib import Path

import pytest
from nsqfast._ext.dev.commit_rings import FaultyFiles, OpenRing

from models import commit_ring
from support.seeds import seeds

QUARTER = 65536
EPOCH = bytes(range(100, 116))
GOLDEN = Path(__file__).parent / "golden" / "commit_ring_1.zip"
# One batch: what its records hold.
RECORDS = [
    (1, 2, 3, 4, b"first"),
    (5, 6, 7, 8, b"the second one, of 32 bytes in all"),
    (9, 0, 0, 0, b""),
    (10, 11, 12, 13, b"last"),
]


class Folder:
    """A ring that the model wrote: whatever it likes, wherever it likes."""

    def __init__(self, path):
        self.path = path
        self.previous, self.sequence, self.place = 0, 0, 0
        self.spans = {}  # by number of a batch: quarter, start, end
        path.mkdir()
        self.write_head()
        for quarter in range(4):
            (path / f"{quarter}.ring").write_bytes(bytes(QUARTER))

    def write_head(self, **options):
        heads = [commit_ring.encode_head(EPOCH, QUARTER, n, **options) for n in (0, 1)]
        (self.path / "head").write_bytes(b"".join(heads))

    def add(self, records=RECORDS, **options):
        """Write the next batch; a `quarter` begins with it."""
        self.sequence += 1
        if (quarter := options.pop("quarter", None)) is not None:
            self.place = quarter << 48
        assert self.place & 0xFFFFFFFF < QUARTER
        options = {"previous": self.previous} | options
        data = commit_ring.encode_batch(EPOCH, self.sequence, self.place, records, **options)
        quarter, start = self.place >> 48, self.place & 0xFFFFFFFF
        self.write(quarter, start, data)
        self.spans[self.sequence] = quarter, start, start + len(data)
        self.previous = int.from_bytes(data[:4], "little")
        self.place += len(data)
        return data

    def write(self, quarter, start, data):
        with (self.path / f"{quarter}.ring").open("r+b") as file:
            file.seek(start)
            file.write(data)

    def read(self, quarter, start, end):
        return (self.path / f"{quarter}.ring").read_bytes()[start:end]


@pytest.fixture
def folder(tmp_path):
    return Folder(tmp_path / "log")


def open_and_read(path, files=None):
    """(first, last, is_torn), the records by batch, what was damaged."""
    files = files or FaultyFiles()
    files.never_sync()
    ring = OpenRing(str(path), 0, files)
    found = {}
    for sequence, *record in ring.read():
        assert sequence >= max(found, default=0)
        found.setdefault(sequence, []).append(tuple(record))
    ring.close()
    return (ring.first, ring.last, ring.is_torn), found, ring.damaged


def covers(folder, damaged, quarter, position):
    path = str(folder.path / f"{quarter}.ring")
    return any(each[0] == path and each[1] <= position < each[2] for each in damaged)


def record_ends(records=RECORDS):
    """Where each of them begins in its batch, and ends without its padding."""
    at, found = 64, []
    for record in records:
        found.append((at, at + 16 + len(record[-1])))
        at += (16 + len(record[-1]) + 7) // 8 * 8
    return found


# Whole


def test_reads_what_the_model_wrote(folder):
    for _ in range(3):
        folder.add()
    folder.add([(1, 0, 0, 0, b"q" * (QUARTER - 80))], quarter=1, needed_from=2)
    folder.add([], quarter=2)
    assert open_and_read(folder.path) == (
        (2, 5, False),
        {2: RECORDS, 3: RECORDS, 4: [(1, 0, 0, 0, b"q" * (QUARTER - 80))]},
        [],
    )


def test_golden_file(tmp_path):
    """What version 1 of the format was when it was made."""
    with zipfile.ZipFile(GOLDEN) as archive:
        archive.extractall(tmp_path / "log")
    ring = OpenRing(str(tmp_path / "log"), 0)
    assert (ring.first, ring.last, ring.is_torn, ring.bad()) == (7, 12, False, [2])
    found = ring.read()
    expected = [
        (n, 1 + k, n, 1000 * k, 100000 * n, b"%d.%d " % (n, k) * (100 * k + 1))
        for n in range(7, 13)
        for k in range(3)
    ]
    assert (found, ring.damaged) == (expected, [])
    assert (ring.append(b"next"), ring.wait(13)) == (13, True)
    ring.close()
    assert open_and_read(tmp_path / "log")[1][13] == [(1, 0, 0, 0, b"next")]


# Damaged


def flip(data, bit):
    changed = bytearray(data)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


@pytest.mark.slow
def test_every_bit_of_a_batch_before_another(folder):
    """It is noticed, the range covers it, and all other records are there."""
    folder.add()
    data = folder.add()
    folder.add()
    _, start, _ = folder.spans[2]
    ends = record_ends()
    for bit in range(8 * ends[-1][1]):
        at = bit // 8
        hit = [i for i, (begin, end) in enumerate(ends) if begin <= at < end]
        if at >= 64 and not hit:
            continue  # padding
        folder.write(0, start, flip(data, bit))
        state, found, damaged = open_and_read(folder.path)
        assert state == (1, 3, False), bit
        assert found == {
            1: RECORDS,
            2: [r for i, r in enumerate(RECORDS) if i not in hit],
            3: RECORDS,
        }
        assert covers(folder, damaged, 0, start + at), bit
        assert {each[3] for each in damaged} == {(2, 2)}


@pytest.mark.slow
def test_every_bit_of_the_last_batch(folder):
    """Nothing of it is handed out, and nothing is called damaged."""
    folder.add()
    data = folder.add()
    _, start, end = folder.spans[2]
    ends = record_ends()
    for bit in range(8 * ends[-1][1]):
        at = bit // 8
        if at >= 64 and not any(begin <= at < end for begin, end in ends):
            continue
        folder.write(0, start, flip(data, bit))
        assert open_and_read(folder.path) == ((1, 1, at >= 64), {1: RECORDS}, []), bit
        assert folder.read(0, start, end) == bytes(4096)


@pytest.mark.slow
def test_every_truncation(folder):
    """Of the last batch and of one before: other bytes follow."""
    folder.add()
    data = folder.add()
    last = folder.add()
    _, start, _ = folder.spans[2]
    _, last_start, _ = folder.spans[3]
    ends = record_ends()
    for size in range(ends[-1][1]):
        cut = data[:size].ljust(4096, b"\xff")
        folder.write(0, start, cut)
        folder.write(0, last_start, last)
        state, found, damaged = open_and_read(folder.path)
        whole = [record for record, (_, stop) in zip(RECORDS, ends, strict=True) if stop <= size]
        assert state == (1, 3, False)
        assert found == {1: RECORDS, 3: RECORDS} | ({2: whole} if whole else {}), size
        assert covers(folder, damaged, 0, start + ends[-1][1] - 1)
        folder.write(0, start, data)
        folder.write(0, last_start, last[:size].ljust(4096, b"\xff"))
        state = (1, 2, size >= 64)
        assert open_and_read(folder.path) == (state, {1: RECORDS, 2: RECORDS}, []), size


@pytest.mark.parametrize("seed", seeds("garbage", 20))
def test_batches_full_of_garbage(folder, seed):
    """Several in a row, over the end of a quarter; what is left of their records is found."""
    dice = random.Random(seed)
    batches = {}
    for n in range(1, 9):
        count = dice.randint(1, 30)
        batches[n] = [(n, 0, 0, k, dice.randbytes(dice.randrange(200))) for k in range(count)]
        room = QUARTER - (folder.place & 0xFFFFFFFF)
        options = {"quarter": (folder.place >> 48) + 1} if room < 8192 else {}
        folder.add(batches[n], **options)
    damaged_ones = sorted(dice.sample(range(2, 8), dice.randint(1, 4)))
    lost = {}
    for n in damaged_ones:
        quarter, start, _ = folder.spans[n]
        begin, end = dice.choice(record_ends(batches[n]))
        size = dice.randrange(1, end - begin + 1)
        folder.write(quarter, start, dice.randbytes(64))  # the header, too
        folder.write(
            quarter,
            start + begin,
            flip(folder.read(quarter, start + begin, start + begin + size), 0),
        )
        lost[n] = (begin, quarter, start + begin)
    state, found, damaged = open_and_read(folder.path)
    assert state == (1, 8, False)
    for n, records in batches.items():
        places = [begin for begin, _ in record_ends(records)]
        kept = [
            r for r, at in zip(records, places, strict=True) if n not in lost or at != lost[n][0]
        ]
        assert found.get(n, []) == kept
    assert all(covers(folder, damaged, quarter, at) for _, quarter, at in lost.values())


def test_a_batch_that_vanished(folder):
    """As by a write that was lost: what was there before stays there."""
    for _ in range(5):
        folder.add()
    for n in (2, 3):
        folder.write(*folder.spans[n][:2], bytes(4096))
    state, found, damaged = open_and_read(folder.path)
    assert (state, found.keys()) == ((1, 5, False), {1, 4, 5})
    # Batches may begin on each sector.
    assert damaged == [(str(folder.path / "0.ring"), 512, 3 * 4096, (2, 3))]


def test_the_last_before_a_torn_one_is_damaged(folder):
    """Its successor had begun, hence it was committed; the next batch goes over the torn one."""
    for _ in range(3):
        data = folder.add()
    folder.write(*folder.spans[2][:2], bytes(64))
    folder.write(*folder.spans[3][:2], data[:100].ljust(4096, b"\0"))
    ring = OpenRing(str(folder.path), 0)
    assert (ring.first, ring.last, ring.is_torn, ring.filling) == (1, 2, True, 3)
    assert [record[0] for record in ring.read()] == [1] * 4 + [2] * 4
    assert [each[3] for each in ring.damaged] == [(2, 2)] * len(ring.damaged)
    ring.append(b"third")
    assert ring.wait(3)
    ring.close()
    assert open_and_read(folder.path)[1] == {1: RECORDS, 2: RECORDS, 3: [(1, 0, 0, 0, b"third")]}


@pytest.mark.parametrize("is_header", [False, True])
def test_a_sector_that_went_elsewhere_in_its_batch(folder, is_header):
    """Each record knows its place: a copy is none."""
    records = [(1, 0, 0, n, b"%08d" % n * 14) for n in range(60)]  # 128 bytes each
    data = folder.add([(1, 0, 0, 99, b"p" * (512 - 64 - 16)), *records])
    folder.add()
    folder.write(0, 1024, data[512:1024])
    if is_header:
        folder.write(0, 0, bytes(64))
    state, found, damaged = open_and_read(folder.path)
    assert state == (1, 2, False)
    assert [record[3] for record in found[1]] == [99, *range(4), *range(8, 60)]
    assert covers(folder, damaged, 0, 1024)
    assert covers(folder, damaged, 0, 1535)


def test_numbers_beyond_32_bits(folder):
    """What is searched for is solved for, from 32 bits of a sum."""
    folder.sequence = (1 << 32) - 3
    for _ in range(6):
        folder.add(needed_from=(1 << 32) - 2)
    numbers = sorted(folder.spans)
    for before, number in pairwise(numbers[:-1]):
        assert number == before + 1
        folder.write(*folder.spans[number][:2], bytes(64))
    state, found, damaged = open_and_read(folder.path)
    assert state == (numbers[0], numbers[-1], False)
    assert found == dict.fromkeys(numbers, RECORDS)
    assert damaged


# Unreadable


def test_a_page_that_cannot_be_read(folder):
    records = [(1, 0, 0, n, b"r" * 1008) for n in range(8)]
    folder.add(records)
    folder.add()
    files = FaultyFiles()
    files.make_unreadable(0, 5000)
    state, found, damaged = open_and_read(folder.path, files)
    assert state == (1, 2, False)
    # 1,024 bytes each behind a header of 64: five of them are on that page, two in part.
    assert [record[3] for record in found[1]] == [0, 1, 2]
    assert damaged[0] == (str(folder.path / "0.ring"), 4096, 8192, (0, 0))
    assert covers(folder, damaged[1:], 0, 5000)
    assert damaged[1][3] == (1, 1)


def test_an_unreadable_block_of_the_head(folder):
    folder.add()
    files = FaultyFiles()
    files.make_unreadable(4, 4096)
    assert open_and_read(folder.path, files)[1] == {1: RECORDS}


# Torn


def test_nothing_of_a_torn_batch_comes_back(folder):
    """Its records would pass for those of the batch that gets its number, were that one damaged later."""
    folder.add()
    torn = folder.add([(66, 0, 0, n, b"never answered" * 20) for n in range(20)])
    assert len(torn) == 8192
    folder.write(0, 4096, bytes(512))  # its header was not written, the rest was
    ring = OpenRing(str(folder.path), 0)
    assert (ring.last, ring.is_torn, ring.damaged) == (1, False, [])
    ring.append(b"l" * (QUARTER - 80))  # to the next quarter
    assert ring.wait(2)
    ring.append(b"l" * (QUARTER - 80))
    assert ring.wait(3)
    ring.close()
    folder.write(1, 0, bytes(512))
    _, found, damaged = open_and_read(folder.path)
    assert found.keys() == {1, 3}
    assert {each[3] for each in damaged} == {(2, 2)}


def test_a_torn_batch_in_the_next_quarter(folder):
    folder.add()
    data = folder.add([(66, 0, 0, 0, b"t" * (QUARTER - 80))], quarter=1)
    folder.write(1, 0, data[:8192].ljust(QUARTER, b"\0"))
    ring = OpenRing(str(folder.path), 0)
    assert (ring.last, ring.is_torn) == (1, True)
    assert len(ring.read()) == 4
    ring.append(b"small")
    assert ring.wait(2)
    ring.close()
    assert open_and_read(folder.path) == (
        (1, 2, False),
        {1: RECORDS, 2: [(1, 0, 0, 0, b"small")]},
        [],
    )


def test_two_headers_of_one_number(folder):
    """A write that failed left one, whole; it was written again elsewhere, or not, and was not answered then."""
    folder.add()
    folder.add()
    folder.sequence = 1
    assert open_and_read(folder.path)[:2] == ((1, 2, False), {1: RECORDS, 2: RECORDS})
    folder.write_head(failed=(2, 0, 0, 0))
    assert open_and_read(folder.path)[:2] == ((1, 1, False), {1: RECORDS})
    folder.add(quarter=1, previous=int.from_bytes(folder.read(0, 0, 4), "little"))
    assert open_and_read(folder.path)[:2] == ((1, 2, False), {1: RECORDS, 2: RECORDS})
    folder.add()
    assert open_and_read(folder.path) == ((1, 3, False), dict.fromkeys((1, 2, 3), RECORDS), [])


def test_what_is_missing_behind_a_bad_quarter(folder):
    """A search that a bad quarter limits is limited there alone."""
    folder.add()
    folder.write_head(failed=(3, 0, 0, 0))
    folder.add()
    folder.write(*folder.spans[2][:2], bytes(64))
    folder.add(quarter=1)
    folder.write(1, 0, bytes(64))
    folder.add()
    state, found, damaged = open_and_read(folder.path)
    assert (state, found) == ((1, 4, False), dict.fromkeys(range(1, 5), RECORDS))
    assert covers(folder, damaged, 0, folder.spans[2][1])
    assert covers(folder, damaged, 1, 0)


# Stale


def test_what_an_earlier_lap_left_is_nothing(folder):
    for n in range(4):
        folder.add([(1, 0, 0, 0, b"o" * (QUARTER - 80))], quarter=n)
    first = folder.read(0, 0, QUARTER)
    folder.add(needed_from=4, quarter=0)
    folder.add(needed_from=4)
    assert open_and_read(folder.path)[:2] == (
        (4, 6, False),
        {4: [(1, 0, 0, 0, b"o" * (QUARTER - 80))], 5: RECORDS, 6: RECORDS},
    )
    # The write of 5 never happened, though it was answered.
    folder.write(0, 0, first[:4096])
    _, found, damaged = open_and_read(folder.path)
    assert found.keys() == {4, 6}
    assert damaged == [(str(folder.path / "0.ring"), 0, 4096, (5, 5))]


def test_another_ring_s_batches_are_nothing(folder):
    folder.add()
    foreign = commit_ring.encode_batch(bytes(16), 2, 4096, RECORDS)
    folder.write(0, 4096, foreign)
    misplaced = commit_ring.encode_batch(EPOCH, 2, 4096, RECORDS)
    folder.write(2, 8192, misplaced)
    assert open_and_read(folder.path) == ((1, 1, False), {1: RECORDS}, [])
