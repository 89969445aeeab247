"""Filling, committing, room, errors of the disk, the thread."""

import errno
import os
import random
import select

import pytest
from nsqfast._ext.core.memory import Memory
from nsqfast._ext.dev.commit_rings import FaultyFiles, OpenRing

from models import commit_ring
from nsqfast.errors import OptionsError
from support.seeds import seeds

QUARTER = 64 * 1024
SIZE = 4 * QUARTER
PAYLOAD_MAX = QUARTER - 64 - 16


def commit(ring, *payloads):
    for payload in payloads:
        ring.append(payload)
    filling = ring.filling
    assert ring.wait(filling)
    return filling


def payloads(ring):
    return [record[-1] for record in ring.read()]


def wait_for_end(ring):
    while not ring.end_write():
        assert select.select([ring.fileno()], [], [], 30)[0]


# Format


@pytest.mark.parametrize("align", [512, 4096])
def test_bytes_of_a_ring(tmp_path, open_ring, align):
    """Whole, as docs/DURABILITY.md says."""
    ring = open_ring(align=align, is_stepped=True)
    assert (ring.first, ring.last, ring.is_torn, ring.read()) == (1, 0, False, [])
    first = [(7, 8, 9, 10, b"payload"), (255, 0, 0, 0, b""), (1, 255, 65535, 2**32 - 1, b"x" * 700)]
    for kind, flags, extra, subject, payload in first:
        assert ring.append(payload, kind, flags, extra, subject) == 1
    assert ring.commit(-5)
    ring.append(b"second")
    assert ring.step()
    assert ring.end_write()
    ring.checkpoint(2)
    assert ring.commit(1234567890123456789)
    assert ring.step()
    assert ring.end_write()
    ring.close()
    epoch, quarter_size = commit_ring.read_epoch(tmp_path / "log")
    assert quarter_size == QUARTER
    heads = b"".join(commit_ring.encode_head(epoch, QUARTER, generation) for generation in (0, 1))
    assert (tmp_path / "log" / "head").read_bytes() == heads
    one = commit_ring.encode_batch(epoch, 1, 0, first, wall_ns=-5, align=align)
    previous = int.from_bytes(one[:4], "little")
    records = [(1, 0, 0, 0, b"second")]
    options = {"needed_from": 2, "previous": previous, "align": align}
    two = commit_ring.encode_batch(
        epoch, 2, len(one), records, wall_ns=1234567890123456789, **options
    )
    assert (tmp_path / "log" / "0.ring").read_bytes() == (one + two).ljust(QUARTER, b"\0")
    for quarter in (1, 2, 3):
        assert (tmp_path / "log" / f"{quarter}.ring").read_bytes() == bytes(QUARTER)
    assert sorted(os.listdir(tmp_path / "log")) == ["0.ring", "1.ring", "2.ring", "3.ring", "head"]


def test_epochs_differ(tmp_path):
    for name in ("a", "b"):
        OpenRing(str(tmp_path / name), SIZE).close()
    epochs = [commit_ring.read_epoch(tmp_path / name)[0] for name in ("a", "b")]
    assert epochs[0] != epochs[1]


# Laps and room


@pytest.mark.parametrize("seed", seeds("laps", 5))
@pytest.mark.parametrize("is_stepped", [False, True])
def test_laps(open_ring, seed, is_stepped):
    """Batches of every size up to a quarter, several times round, with a restart now and then."""
    dice = random.Random(seed)
    kept, ring = {}, open_ring(is_stepped=is_stepped)
    written = 0
    while written < 12 * SIZE:
        for _ in range(dice.choice([1, 1, 5, 50])):
            size = min(dice.choice([0, 7, 100, 5000, PAYLOAD_MAX]), ring.room())
            kept.setdefault(ring.filling, []).append(dice.randbytes(dice.randint(0, size)))
            assert ring.append(kept[ring.filling][-1]) == ring.filling
            written += size
            if ring.room() < 100:
                break
        filling = ring.filling
        if not ring.wait(filling):
            assert ring.is_full()
            ring.checkpoint(filling - 1)
            assert not ring.is_full()
            assert ring.wait(filling)
        if dice.random() < 0.05:
            ring.close()
            ring = open_ring(is_stepped=is_stepped)
            assert (ring.last, ring.filling, ring.damaged) == (filling, filling + 1, [])
            expected = [each for n in range(ring.first, filling + 1) for each in kept[n]]
            assert payloads(ring) == expected
    assert ring.figures()[3] == 0


def test_every_size_of_a_batch(open_ring):
    ring = open_ring(size=4 * 16384, is_stepped=True)
    for size in range(16384 - 64 - 16, 0, -37):
        ring.checkpoint(ring.filling)
        commit(ring, b"s" * size)
    assert ring.figures()[4] == 16384
    with pytest.raises(OSError, match="too long"):
        ring.append(b"s" * (16384 - 64 - 16 + 1))


def test_full_until_a_checkpoint(open_ring):
    ring = open_ring()
    large = b"l" * PAYLOAD_MAX
    for _ in range(4):
        commit(ring, large)
    assert ring.fill() == 1.0
    assert ring.append(b"one more") == 5
    assert ring.is_full()
    assert not ring.commit()
    assert not ring.wait(5, 1000)
    ring.checkpoint(1)
    assert ring.is_full()
    ring.checkpoint(2)
    assert ring.fill() == 0.75
    assert not ring.is_full()
    assert ring.wait(5)
    ring.close()
    ring = open_ring()
    assert payloads(ring) == [large] * 3 + [b"one more"]


def test_needed_from_is_on_disk_before_a_quarter_is_used_again(open_ring, tmp_path):
    """No batch says so when the first quarter is wanted, hence the head does."""
    files = FaultyFiles()
    ring = open_ring(files=files, is_stepped=True)
    for _ in range(4):
        commit(ring, b"l" * PAYLOAD_MAX)
    ring.checkpoint(3)
    head = files.counts()[4][0]
    commit(ring, b"fifth")
    assert files.counts()[4][0] == head + 1
    # Even where that batch is lost.
    with (tmp_path / "log" / "0.ring").open("r+b") as file:
        file.write(bytes(4096))
    ring.close()
    ring = open_ring()
    assert (ring.first, ring.last, ring.read()[0][0]) == (3, 4, 3)


def test_checkpoint_of_what_is_not_begun(open_ring):
    ring = open_ring()
    ring.checkpoint(1)
    with pytest.raises(ValueError, match="batch 2 is not begun"):
        ring.checkpoint(2)
    with pytest.raises(ValueError, match="batch 1 has no records yet"):
        ring.wait(1)


def test_memory_is_counted_and_given_back(open_ring, opened_rings):
    memory = Memory()
    ring = open_ring(size=4 << 24, memory=memory)
    commit(ring, b"small")
    small = memory.used_bytes()
    assert 0 < small <= 2 << 20
    commit(ring, b"l" * (12 << 20))
    assert small < memory.used_bytes() <= small + (4 << 20)
    commit(ring, *[b"again" * 1000] * 2000)
    ring.close()
    opened_rings.remove(ring)
    del ring, open_ring
    assert memory.used_bytes() <= 10 << 20


# Errors of the disk


@pytest.mark.parametrize("result", [errno.EIO, errno.ENOSPC, -4096, -1])
def test_a_write_that_fails_goes_elsewhere(open_ring, result):
    files = FaultyFiles()
    ring = open_ring(files=files)
    commit(ring, b"before")
    counts = files.counts()
    files.fail_writes(result)
    commit(ring, b"moved", b"m" * 5000)
    assert (ring.bad(), ring.failed, ring.figures()[3]) == ([0], 0, 1)
    # One attempt there, one elsewhere, and one write of the head.
    assert [now[0] - then[0] for now, then in zip(files.counts(), counts, strict=True)] == [
        1,
        1,
        0,
        0,
        1,
    ]
    commit(ring, b"after")
    ring.close()
    ring = open_ring()
    assert payloads(ring) == [b"before", b"moved", b"m" * 5000, b"after"]
    assert (ring.bad(), ring.damaged, ring.is_torn) == ([0], [], False)


def test_a_sync_that_fails_is_not_repeated(open_ring):
    files = FaultyFiles()
    files.refuse_direct(1)
    ring = open_ring(files=files)
    assert not ring.is_direct()
    commit(ring, b"before")
    counts = files.counts()
    files.fail_syncs(errno.EIO)
    commit(ring, b"moved")
    expected = [(1, 1), (1, 1), (0, 0), (0, 0), (1, 1)]
    now = files.counts()
    assert [(a - c, b - d) for (a, b), (c, d) in zip(now, counts, strict=True)] == expected
    ring.close()
    ring = open_ring()
    assert payloads(ring) == [b"before", b"moved"]
    assert ring.bad() == [0]


def test_a_bad_quarter_is_never_used_again(open_ring, tmp_path):
    files = FaultyFiles()
    ring = open_ring(files=files)
    files.fail_writes(errno.EIO)
    commit(ring, b"first")
    before = (tmp_path / "log" / "0.ring").read_bytes()
    for _ in range(3):
        for _ in range(5):
            ring.checkpoint(ring.filling)
            commit(ring, b"l" * PAYLOAD_MAX)
        assert ring.fill() <= 1 / 3
        ring.close()
        ring = open_ring(files=files)
    assert files.counts()[0][0] == 2  # when it was made, and the one that failed
    assert (tmp_path / "log" / "0.ring").read_bytes() == before


@pytest.mark.parametrize("results", [(errno.EIO, 0, errno.ENOSPC), (errno.EIO, errno.ENOSPC)])
def test_a_second_failure_is_final(open_ring, results):
    """Of the batch elsewhere, or of the head."""
    files = FaultyFiles()
    ring = open_ring(files=files)
    commit(ring, b"kept")
    files.fail_writes(*results)
    ring.append(b"lost")
    assert not ring.wait(2)
    assert (ring.failed, ring.committed) == (errno.ENOSPC, 1)
    with pytest.raises(OSError, match="No space left"):
        ring.append(b"more")
    assert not ring.commit()
    ring.close()
    ring = open_ring()
    assert payloads(ring) == [b"kept"]
    assert ring.bad() == ([0, 1] if len(results) == 3 else [])


def test_no_free_quarter_for_what_failed(open_ring):
    files = FaultyFiles()
    ring = open_ring(files=files)
    for _ in range(3):
        commit(ring, b"l" * PAYLOAD_MAX)
    commit(ring, b"small")
    files.fail_writes(errno.EIO)
    ring.append(b"lost")
    assert not ring.wait(5)
    assert ring.failed == errno.EIO
    ring.close()
    ring = open_ring()
    assert (ring.bad(), ring.last, len(ring.read())) == ([3], 4, 4)


def test_the_last_good_quarter_is_not_left(open_ring):
    files = FaultyFiles()
    ring = open_ring(files=files)
    for _ in range(3):
        files.fail_writes(errno.EIO)
        ring.checkpoint(ring.filling)
        commit(ring, b"moved")
    assert ring.bad() == [0, 1, 2]
    ring.checkpoint(ring.filling)
    ring.append(b"l" * PAYLOAD_MAX)
    assert not ring.wait(ring.filling)
    assert ring.failed == errno.EIO


def test_a_quarter_that_cannot_be_erased_at_a_start(open_ring):
    commit(open_ring(), b"kept")
    files = FaultyFiles()
    files.fail_writes(errno.EIO)
    ring = open_ring(files=files)
    assert ring.bad() == [0]
    assert payloads(ring) == [b"kept"]
    commit(ring, b"elsewhere")
    ring.close()
    ring = open_ring()
    assert (ring.bad(), payloads(ring)) == ([0], [b"kept", b"elsewhere"])


def test_a_start_without_direct_writes_syncs_what_it_believes(open_ring):
    """The last process may have been killed before its sync, and a page that is clean is not written by one."""
    files = FaultyFiles()
    files.refuse_direct(1)
    commit(open_ring(files=files), b"kept")
    before = files.counts()
    files.fail_syncs(0, errno.EIO)  # of the head, of the last batch
    with pytest.raises(OSError, match=r"Input/output error: .*log/0\.ring"):
        open_ring(files=files)
    # Each once; what is behind the batch is not touched.
    now = files.counts()
    assert [now[i][0] - before[i][0] for i in (0, 4)] == [1, 1]
    assert payloads(open_ring(files=files)) == [b"kept"]
    files.fail_syncs(errno.EIO)
    with pytest.raises(OSError, match=r"Input/output error: .*log/head"):
        open_ring(files=files)


@pytest.mark.parametrize("how", [1, 2])
def test_direct_writes_are_refused(open_ring, how):
    files = FaultyFiles()
    files.refuse_direct(how)
    ring = open_ring(files=files)
    assert not ring.is_direct()
    before = files.counts()[0]
    commit(ring, b"synced")
    assert files.counts()[0] == (before[0] + 1, before[1] + 1)


# The thread


def test_records_are_appended_while_a_write_is_in_flight(open_ring):
    reader, writer = os.pipe()
    files = FaultyFiles()
    ring = open_ring(files=files)
    files.hold_writes(reader)
    ring.append(b"first")
    assert ring.commit()
    for n in range(1000):
        assert ring.append(b"%d" % n) == 2
    assert ring.commit()  # still the first
    assert not ring.wait(1, 0)
    assert not ring.end_write()
    assert (ring.committed, ring.filling) == (0, 2)
    os.write(writer, b"x")
    wait_for_end(ring)
    assert ring.committed == 1
    os.write(writer, b"x")
    assert ring.wait(2)
    files.hold_writes(-1)
    ring.close()
    ring = open_ring()
    assert payloads(ring) == [b"first", *(b"%d" % n for n in range(1000))]
    os.close(reader)
    os.close(writer)


def test_close_ends_the_write_in_flight(open_ring):
    ring = open_ring()
    ring.append(b"in flight")
    assert ring.commit()
    ring.append(b"not handed over")
    ring.close()
    assert ring.committed == 1
    ring.close()
    ring = open_ring()
    assert payloads(ring) == [b"in flight"]


def test_close_writes_elsewhere_what_fails(open_ring):
    files = FaultyFiles()
    ring = open_ring(files=files)
    files.fail_writes(errno.EIO)
    ring.append(b"in flight")
    assert ring.commit()
    ring.close()
    assert (ring.committed, ring.bad()) == (1, [0])


# Making and opening


def test_what_was_left_of_making_one_is_removed(open_ring, tmp_path):
    draft = tmp_path / "log.new"
    draft.mkdir()
    (draft / "0.ring").write_bytes(b"half")
    ring = open_ring()
    commit(ring, b"whole")
    assert not draft.exists()
    draft.mkdir()
    (draft / "head").write_bytes(b"")
    ring.close()
    assert payloads(open_ring()) == [b"whole"]
    assert not draft.exists()


@pytest.mark.parametrize("result", [errno.ENOSPC, -4096])
def test_a_ring_that_cannot_be_made(open_ring, tmp_path, result):
    files = FaultyFiles()
    files.fail_writes(0, 0, result)
    text = "No space left on device" if result > 0 else "Input/output error"
    with pytest.raises(OSError, match=rf"{text}: .*2\.ring"):
        open_ring(files=files)
    assert not (tmp_path / "log").exists()
    ring = open_ring(files=files)
    assert ring.size() == SIZE
    commit(ring, b"made")


@pytest.mark.parametrize("size", [0, 4 * 16384 - 1, 4 * ((1 << 30) + 4096)])
def test_sizes(open_ring, tmp_path, size):
    with pytest.raises(OptionsError, match="a commit log has between 65536 and 4294967296 bytes"):
        open_ring(size=size)
    assert not (tmp_path / "log").exists()


def test_a_ring_keeps_its_size(open_ring):
    open_ring().close()
    assert open_ring(size=2 * SIZE).size() == SIZE


def change(path, at, data):
    with path.open("r+b") as file:
        file.seek(at)
        file.write(data)


def test_one_block_of_the_head_is_enough(open_ring, tmp_path):
    commit(open_ring(), b"kept")
    for block in (0, 1):
        head = (tmp_path / "log" / "head").read_bytes()
        change(tmp_path / "log" / "head", 4096 * block + 20, b"\xff")
        assert payloads(open_ring()) == [b"kept"]
        (tmp_path / "log" / "head").write_bytes(head)


def damage_head(folder):
    for block in (0, 1):
        change(folder / "head", 4096 * block + 4000, b"x")


def make_newer(folder):
    change(folder / "head", 4096, commit_ring.encode_head(bytes(16), QUARTER, 9, version=2))


def make_all_bad(folder):
    change(
        folder / "head", 4096, commit_ring.encode_head(bytes(16), QUARTER, 9, failed=(1, 1, 1, 1))
    )


def make_odd(folder):
    change(folder / "head", 4096, commit_ring.encode_head(bytes(16), QUARTER + 1, 9))


@pytest.mark.parametrize(
    ("harm", "text"),
    [
        (damage_head, "log/head is damaged: restore the folder from a copy"),
        (lambda folder: (folder / "head").unlink(), "log/head is missing"),
        (lambda folder: (folder / "head").write_bytes(b"short"), "log/head is damaged"),
        (lambda folder: (folder / "2.ring").unlink(), "log/2.ring is missing"),
        (
            lambda folder: os.truncate(folder / "1.ring", 4096),
            "log/1.ring has 4096 bytes instead of 65536",
        ),
        (make_newer, r"a newer nsqfast wrote this commit log \(format 2\)"),
        (make_all_bad, "says that writing failed in every quarter"),
        (make_odd, "says that a quarter has 65537 bytes"),
    ],
)
def test_what_the_operator_is_told(open_ring, tmp_path, harm, text):
    open_ring().close()
    harm(tmp_path / "log")
    with pytest.raises(OptionsError, match=text) as caught:
        open_ring()
    assert "\n" not in str(caught.value)
