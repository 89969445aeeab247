"""A ring whose batches are synced by time: written, committed, errors of the disk, what a start finds."""

import errno
import select
from functools import partial

import pytest
from nsqfast._ext.dev.commit_rings import FaultyFiles, OpenRing

from models import commit_ring

QUARTER = 64 * 1024
SIZE = 4 * QUARTER
EPOCH = bytes(range(16))
LARGE = b"l" * (QUARTER - 64 - 16)


@pytest.fixture
def open_ring(open_ring):
    return partial(open_ring, align=512, is_stepped=True, is_interval=True)


def write(ring, *payloads):
    for payload in payloads:
        ring.append(payload)
    return ring.write()


def sync(ring):
    assert ring.sync()
    assert ring.step()
    assert ring.end_write()


def payloads(ring):
    return [record[-1] for record in ring.read()]


def moved(now, before):
    """(writes, syncs) of each quarter and the head between two counts."""
    return [(a - c, b - d) for (a, b), (c, d) in zip(now, before, strict=True)]


# Writing


def test_bytes_of_a_ring(tmp_path, open_ring):
    ring = open_ring()
    assert write(ring, b"first")
    assert write(ring, b"second")
    sync(ring)
    assert write(ring, b"third")
    ring.close()
    epoch, _ = commit_ring.read_epoch(tmp_path / "log")
    expected = b""
    for sequence, payload, unsynced in ((1, b"first", 0), (2, b"second", 1), (3, b"third", 0)):
        options = {"align": 512, "unsynced": unsynced}
        if expected:
            options["previous"] = int.from_bytes(expected[-512:][:4], "little")
        records = [(1, 0, 0, 0, payload)]
        expected += commit_ring.encode_batch(epoch, sequence, len(expected), records, **options)
    assert (tmp_path / "log" / "0.ring").read_bytes() == expected.ljust(QUARTER, b"\0")
    # One when it was opened, one with the sync.
    heads = [commit_ring.encode_head(epoch, QUARTER, n, interval_from=n - 1) for n in (2, 3)]
    assert (tmp_path / "log" / "head").read_bytes() == heads[0] + commit_ring.encode_head(
        epoch, QUARTER, 3, interval_from=3
    )


def test_committed_is_what_was_written_before_the_sync(open_ring):
    ring = open_ring()
    assert not ring.write()
    assert not ring.sync()
    assert write(ring, b"first")
    assert write(ring, b"second")
    assert (ring.written, ring.committed, ring.filling) == (2, 0, 3)
    assert ring.sync()
    assert write(ring, b"meanwhile")
    assert ring.sync()  # still the first one
    assert (ring.written, ring.committed) == (3, 0)
    assert ring.step()
    assert ring.end_write()
    assert (ring.written, ring.committed) == (3, 2)
    sync(ring)
    assert ring.committed == 3
    assert not ring.sync()


def test_the_thread_syncs(open_ring):
    ring = open_ring(is_stepped=False)
    assert write(ring, b"first")
    assert ring.sync()
    while not ring.end_write():
        assert select.select([ring.fileno()], [], [], 30)[0]
    assert ring.committed == 1
    ring.append(b"second")
    assert ring.wait(2)
    assert (ring.written, ring.committed) == (2, 2)


def test_what_was_written_is_there_without_a_sync(open_ring):
    ring = open_ring()
    for n in range(100):
        assert write(ring, b"%d" % n)
    ring.append(b"in memory alone")
    assert ring.committed == 0
    for is_interval in (True, False):
        other = open_ring(is_interval=is_interval, align=512 if is_interval else 4096)
        assert payloads(other) == [b"%d" % n for n in range(100)]
        assert (other.last, other.committed, other.damaged) == (100, 100, [])
        other.close()


def test_both_ways_by_turns(open_ring):
    kept = []
    for n in range(6):
        is_interval = n % 2 == 0
        ring = open_ring(is_interval=is_interval, align=512 if is_interval else 4096)
        assert payloads(ring) == kept
        for k in range(3):
            kept.append(b"%d %d" % (n, k))
            ring.append(kept[-1])
            assert ring.wait(len(kept))
        ring.close()


def test_unsynced_batches_are_in_two_quarters_at_most(open_ring):
    files = FaultyFiles()
    ring = open_ring(files=files)
    assert write(ring, LARGE)
    before = files.counts()
    assert write(ring, LARGE)  # which begins a sync
    assert not write(ring, LARGE)
    assert not ring.is_full()  # no checkpoint is missing
    assert ring.step()
    assert ring.end_write()
    assert moved(files.counts(), before) == [(0, 1), (1, 1), (0, 0), (0, 0), (1, 1)]
    assert ring.committed == 2
    assert ring.write()
    assert ring.written == 3


def test_a_quarter_is_used_again_once_the_head_says_so(open_ring):
    ring = open_ring()
    for _ in range(4):
        write(ring, LARGE)
        ring.wait(ring.written)
    assert not write(ring, b"fifth")
    assert ring.is_full()
    ring.checkpoint(3)
    assert not ring.write()
    assert not ring.is_full()
    assert ring.step()
    assert ring.end_write()
    other = open_ring()
    assert (other.first, other.last) == (3, 4)
    assert ring.write()
    assert ring.written == 5


# Errors of the disk


@pytest.mark.parametrize("result", [errno.EIO, errno.ENOSPC, -511, -1])
def test_a_write_that_fails_goes_elsewhere(open_ring, result):
    files = FaultyFiles()
    ring = open_ring(files=files)
    assert write(ring, b"before")
    files.fail_writes(result)
    assert not write(ring, b"moved")
    assert (ring.bad(), ring.written, ring.failed) == ([0], 1, 0)
    ring.append(b"with it")
    assert not ring.write()  # the head does not say so yet
    assert ring.step()
    assert ring.end_write()
    assert ring.committed == 1
    assert ring.write()
    assert write(ring, b"after")
    assert ring.figures()[3] == 1
    ring = open_ring()
    assert payloads(ring) == [b"before", b"moved", b"with it", b"after"]
    assert (ring.bad(), ring.damaged, ring.is_torn) == ([0], [], False)


def test_a_second_failure_is_final(open_ring):
    files = FaultyFiles()
    ring = open_ring(files=files)
    assert write(ring, b"kept")
    files.fail_writes(errno.EIO, 0, errno.ENOSPC)  # the second one is the head's
    ring.append(b"lost")
    assert not ring.wait(2)
    assert (ring.failed, ring.written, ring.committed) == (errno.ENOSPC, 1, 1)
    with pytest.raises(OSError, match="No space left"):
        ring.append(b"more")
    assert not ring.write()
    assert not ring.sync()
    ring = open_ring()
    assert (payloads(ring), ring.bad()) == ([b"kept"], [0, 1])


@pytest.mark.parametrize("results", [(errno.EIO,), (0, errno.EIO)])
def test_a_sync_that_fails_is_final(open_ring, results):
    """Of the quarter, or of the head. A start writes again what it finds, and syncs that, or refuses."""
    files = FaultyFiles()
    ring = open_ring(files=files)
    assert write(ring, b"first")
    sync(ring)
    assert write(ring, b"second")
    assert write(ring, b"third")
    before = files.counts()
    files.fail_syncs(*results)
    sync(ring)
    assert (ring.failed, ring.written, ring.committed) == (errno.EIO, 3, 1)
    assert moved(files.counts(), before)[0] == (0, 1)
    assert not ring.sync()
    files.fail_syncs(0, errno.EIO)
    with pytest.raises(OSError, match=r"Input/output error: .*log/0\.ring"):
        open_ring(files=files)
    before = files.counts()
    files.fail_syncs()
    ring = open_ring(files=files)
    assert payloads(ring) == [b"first", b"second", b"third"]
    # Two batches, or three, a sync for all; then the rest of the page, which is erased.
    assert moved(files.counts(), before)[0][0] >= 3
    assert ring.bad() == []


# What a start finds


class Folder:
    """A ring that the model wrote, each batch in 512 bytes."""

    def __init__(self, path):
        self.path, self.previous = path, 0
        path.mkdir()
        self.write_head(interval_from=1)
        for quarter in range(4):
            (path / f"{quarter}.ring").write_bytes(bytes(QUARTER))

    def write_head(self, **options):
        heads = [commit_ring.encode_head(EPOCH, QUARTER, n, **options) for n in (0, 1)]
        (self.path / "head").write_bytes(b"".join(heads))

    def add(self, sequence, quarter, start, *, unsynced):
        place = quarter << 48 | start
        options = {"previous": self.previous, "unsynced": unsynced, "align": 512}
        records = [(1, 0, 0, sequence, b"%d" % sequence * 100)]
        data = commit_ring.encode_batch(EPOCH, sequence, place, records, **options)
        self.previous = int.from_bytes(data[:4], "little")
        self.write(quarter, start, data)

    def write(self, quarter, start, data):
        with (self.path / f"{quarter}.ring").open("r+b") as file:
            file.seek(start)
            file.write(data)

    def open_and_read(self, **options):
        """(last, is_torn, records, batches that are damaged)."""
        ring = OpenRing(str(self.path), 0, FaultyFiles(), 512, True, **options)
        found = ring.last, ring.is_torn, [record[4] for record in ring.read()]
        ring.close()
        return *found, sorted({each[3] for each in ring.damaged})


@pytest.fixture
def folder(tmp_path):
    return Folder(tmp_path / "log")


@pytest.mark.parametrize("is_interval", [False, True])
@pytest.mark.parametrize("hole", [4, 5, 6, 7])
def test_a_hole_cuts_off_what_nothing_proves(folder, hole, is_interval):
    """The header of 7 says that 3 was on disk; of what follows any may be lost in a power cut."""
    for n in range(1, 8):
        folder.add(n, 0, 512 * (n - 1), unsynced=max(0, n - 4))
    folder.write(0, 512 * (hole - 1) + 100, b"\xff" * 20)
    left = hole - 1, True, list(range(1, hole)), []
    assert folder.open_and_read(is_interval=is_interval) == left
    # Nothing of it is left.
    assert not any((folder.path / "0.ring").read_bytes()[512 * (hole - 1) :])
    assert folder.open_and_read(is_interval=is_interval) == (hole - 1, False, left[2], [])


@pytest.mark.parametrize("hole", [1, 2, 3])
def test_a_hole_before_is_damaged(folder, hole):
    for n in range(1, 8):
        folder.add(n, 0, 512 * (n - 1), unsynced=max(0, n - 4))
    folder.write(0, 512 * (hole - 1), bytes(512))
    expected = 7, False, [n for n in range(1, 8) if n != hole], [(hole, hole)]
    assert folder.open_and_read(is_interval=True) == expected
    assert folder.open_and_read(is_interval=True) == expected


def test_the_head_proves_what_was_synced(folder):
    for n in range(1, 8):
        folder.add(n, 0, 512 * (n - 1), unsynced=n - 1)
    folder.write_head(interval_from=6)
    folder.write(0, 512 * 2 + 100, b"\xff" * 20)
    assert folder.open_and_read() == (7, False, [1, 2, 4, 5, 6, 7], [(3, 3)])
    folder.write_head(interval_from=3)
    assert folder.open_and_read() == (2, True, [1, 2], [])


def test_a_batch_that_follows_another_one_is_cut_off(folder):
    """It was written behind a batch of this number that was cut off."""
    folder.add(1, 0, 0, unsynced=0)
    folder.add(2, 0, 512, unsynced=1)
    folder.previous = 12345
    folder.add(3, 0, 1024, unsynced=2)
    assert folder.open_and_read() == (2, True, [1, 2], [])


def test_what_is_cut_off_is_erased_in_two_quarters(folder):
    """Where batch 2 would stand nothing is; those behind it began the next quarters."""
    folder.add(1, 0, 0, unsynced=0)
    for n, quarter in ((2, 0), (3, 1), (4, 2)):
        folder.add(n, quarter, 512, unsynced=n - 2)
    folder.write(0, 512, bytes(512))
    folder.write(3, 0, b"of another ring")
    assert folder.open_and_read(is_interval=True) == (1, True, [1], [])
    for quarter in (1, 2):
        assert not any((folder.path / f"{quarter}.ring").read_bytes())


def test_the_end_of_a_page_is_erased(folder):
    """A batch of another alignment stands there."""
    folder.add(1, 0, 0, unsynced=0)
    folder.add(2, 0, 512, unsynced=1)
    folder.write(0, 600, b"\xff")
    ring = OpenRing(str(folder.path), 0)
    assert (ring.last, ring.is_torn) == (1, True)
    ring.append(b"on the next page")
    assert ring.wait(2)
    ring.close()
    data = (folder.path / "0.ring").read_bytes()
    assert not any(data[512:4096])
    assert any(data[4096:4608])


def test_a_head_that_proves_what_is_not_there(folder):
    """It is told as damaged, and no number of it is used again; what is torn behind it is not proven."""
    folder.add(1, 0, 0, unsynced=0)
    folder.write_head(interval_from=5)
    assert folder.open_and_read() == (4, False, [1], [(2, 4)])
    folder.add(5, 0, 512, unsynced=0)
    folder.write(0, 600, b"\xff")
    assert folder.open_and_read() == (4, True, [1], [(2, 4)])


def test_sizes_of_a_ring_that_exists(open_ring):
    open_ring().close()
    ring = open_ring(size=2 * SIZE)
    assert ring.size() == SIZE


def test_a_quarter_is_whole_pages(open_ring):
    assert open_ring(size=SIZE + 4096).size() == SIZE
