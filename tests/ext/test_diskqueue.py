"""The disk queue against its model, over reopening, kill -9, rolls and full disks."""

import contextlib
import gc
import mmap
import os
import random
import re
import resource
import signal
import struct
from functools import partial

import pytest
from nsqfast._ext.dev.probes import used_bytes
from nsqfast._ext.storage.diskqueue.queue import DiskQueue
from nsqfast._ext.storage.diskqueue.syncer import Syncer

from models.diskqueue import DiskQueueModel
from support.core import counted_bytes
from support.seeds import seeds

pytestmark = pytest.mark.usefixtures("quick_disk")

# The worked example of the format's description, to the byte.
EXAMPLE_RECORDS = [
    (0x18E9EA03547948A8, 0x18A284CCBDC05000, b"hello"),
    (0x18E9EA0354C3B519, 0x18A284CCBF005000, b"nsq"),
    (0x18E9EA0354C7976B, 0x18A284CCBF005001, b"\x00\x01\xfe\xff"),
]
EXAMPLE = (
    bytes.fromhex("0000001f18e9ea03547948a80000")
    + b"18a284ccbdc05000hello"
    + bytes.fromhex("0000001d18e9ea0354c3b5190000")
    + b"18a284ccbf005000nsq"
    + bytes.fromhex("0000001e18e9ea0354c7976b0000")
    + b"18a284ccbf005001\x00\x01\xfe\xff"
)
BIG = 1 << 30


@pytest.fixture
def queue_at(tmp_path, syncer):
    def make(file_size_max=BIG, sync_every=2500, name="orders"):
        return DiskQueue(str(tmp_path), name, syncer, file_size_max, sync_every)

    return make


def data_path(folder, number=0, name="orders"):
    return folder / f"{name}.diskqueue.{number:06d}.dat"


def meta_path(folder, name="orders"):
    return folder / f"{name}.diskqueue.meta.dat"


def drain(queue):
    return list(iter(queue.get, None))


def bodies(queue):
    return [body for _, _, body, _ in drain(queue)]


def names(folder):
    return sorted(path.name.removeprefix("orders.diskqueue.") for path in folder.iterdir())


def test_worked_example(tmp_path, queue_at):
    queue = queue_at()
    for timestamp_ns, number, body in EXAMPLE_RECORDS:
        queue.put(body, id=number, timestamp_ns=timestamp_ns)
    queue.close()
    assert data_path(tmp_path).read_bytes() == EXAMPLE
    assert meta_path(tmp_path).read_bytes() == b"3\n0,0\n0,102\n"
    assert data_path(tmp_path).stat().st_mode & 0o777 == 0o600

    queue = queue_at()
    found = drain(queue)
    assert [(body, number) for _, _, body, number in found] == [
        (b, n) for _, n, b in EXAMPLE_RECORDS
    ]
    queue.finish(found[0][0])
    queue.close()
    assert meta_path(tmp_path).read_bytes() == b"2\n0,35\n0,102\n"


def test_a_queue_that_was_never_used_leaves_nothing(tmp_path, queue_at):
    """Go leaves metadata full of zeros, which means the same; an fsync for each makes a stop slow."""
    queue_at().close()
    assert names(tmp_path) == []


def test_drained_queue_keeps_its_file(tmp_path, queue_at):
    queue = queue_at()
    queue.put(b"x")
    queue.finish(queue.get()[0])
    queue.close()
    assert names(tmp_path) == ["000000.dat", "meta.dat"]
    assert meta_path(tmp_path).read_bytes() == b"0\n0,31\n0,31\n"


@pytest.mark.parametrize(
    ("size_max", "body_sizes", "sizes"),
    [
        (100, [20, 20], [100]),
        (99, [20, 20], [50, 50]),
        (100, [20, 300, 20], [50, 330, 50]),
        (1, [0, 0, 0], [30, 30, 30]),
    ],
)
@pytest.mark.parametrize("batch", [False, True])
def test_roll(tmp_path, queue_at, size_max, body_sizes, sizes, batch):
    queue = queue_at(size_max)
    if batch:
        queue.writer.begin_batch()
    for size in body_sizes:
        queue.put(b"x" * size)
    if batch:
        queue.writer.end_batch()
    assert [data_path(tmp_path, i).stat().st_size for i in range(len(sizes))] == sizes
    assert [len(body) for body in bodies(queue)] == body_sizes


def test_drained_roll_leaves_nothing_behind(tmp_path, queue_at):
    queue = queue_at(100)
    for _ in range(20):
        queue.put(b"x" * 50)
        queue.finish(queue.get()[0])
    assert names(tmp_path) == ["000019.dat", "acks.dat", "meta.dat"]
    assert queue.depth == 0


def test_files_go_when_all_in_front_is_finished(tmp_path, queue_at):
    queue = queue_at(100)
    ordinals = [queue.put(b"x" * 50) for _ in range(5)]
    drain(queue)
    for ordinal in ordinals[1:4]:
        queue.finish(ordinal)
    assert len([n for n in names(tmp_path) if n.startswith("0")]) == 5
    queue.finish(ordinals[0])
    assert names(tmp_path)[0] == "000004.dat"


def test_batch_gathers_acks_too(queue_at):
    queue = queue_at()
    queue.put(b"old")
    ordinal = queue.get()[0]
    queue.writer.begin_batch()
    queue.put(b"new")
    queue.finish(ordinal)
    assert queue.depth == 0
    assert queue.unacked == 1
    queue.writer.end_batch()
    assert queue.depth == 1
    assert queue.unacked == 1


def test_taken_never_comes_back_while_open(queue_at):
    queue = queue_at(100)
    first = queue.put(b"a")
    second = queue.put(b"b" * 80, taken=True)
    third = queue.put(b"c")
    assert queue.depth == 2
    assert [o for o, *_ in drain(queue)] == [first, third]
    del queue
    queue = queue_at(100)
    assert [body[:1] for body in bodies(queue)] == [b"a", b"b", b"c"]
    assert second == 2


def test_attempts_are_stored(queue_at):
    queue = queue_at()
    queue.put(b"x", attempts=7)
    assert queue.get()[1] == 7


def test_holes_are_closed_for_go(tmp_path, queue_at):
    queue = queue_at()
    for i in range(6):
        queue.put(b"%d" % i)
    ordinals = [o for o, *_ in (queue.get() for _ in range(4))]
    queue.finish(ordinals[1])
    queue.finish(ordinals[3])
    queue.close()
    assert meta_path(tmp_path).read_bytes() == b"4\n0,124\n0,248\n"
    assert bodies(queue_at()) == [b"4", b"5", b"0", b"2"]


def test_empty_then_crash(tmp_path, queue_at):
    queue = queue_at(100)
    old = [queue.put(b"x" * 50) for _ in range(4)]
    queue.get()
    queue.empty()
    assert queue.depth == queue.unacked == 0
    queue.put(b"new")
    for ordinal in old:
        queue.finish(ordinal)
    assert queue.unacked == 1
    del queue
    queue = queue_at(100)
    assert bodies(queue) == [b"new"]
    assert names(tmp_path) == ["000004.dat", "acks.dat", "meta.dat"]


def test_delete_leaves_nothing(tmp_path, queue_at):
    queue = queue_at(100)
    for _ in range(5):
        queue.put(b"x" * 50)
    queue.delete_files()
    assert names(tmp_path) == []
    with pytest.raises(OSError, match="exiting"):
        queue.put(b"x")


def test_record_larger_than_the_read_ahead(queue_at):
    queue = queue_at()
    sizes = [10, 1_000_000, 65_536, 0, 200_000]
    for size in sizes:
        queue.put(b"y" * size)
    assert [len(b) for b in bodies(queue)] == sizes


def test_what_is_read_ahead_and_where_records_start_counts_as_memory(queue_at):
    before = counted_bytes()
    queue = queue_at()
    for _ in range(5000):
        queue.put(b"x")
    assert used_bytes() < before + 1000
    ordinals = [ordinal for ordinal, *_ in iter(queue.get, None)]
    assert used_bytes() == before + 8192 * 16 + 65536
    for ordinal in ordinals:
        queue.finish(ordinal)
    queue.close()
    del queue
    assert used_bytes() == before


def test_ack_file_grows(queue_at):
    queue = queue_at()
    queue.writer.begin_batch()
    for i in range(40_000):
        queue.put(b"%d" % i)
    queue.writer.end_batch()
    for _ in range(20_000):
        queue.finish(queue.get()[0])
    del queue
    queue = queue_at()
    assert queue.depth == 20_000
    assert queue.get()[2] == b"20000"


@pytest.mark.parametrize("seed", seeds("diskqueue", 16))
def test_random_operations(tmp_path, queue_at, seed):
    print("seed", seed)
    rng = random.Random(seed)
    size_max = rng.choice([1, 100, 1000, BIG])
    queue, model = queue_at(size_max), DiskQueueModel()
    for step in range(400):
        action = rng.random()
        if action < 0.35:
            body, taken = b"%d" % step * rng.randrange(1, 9), rng.random() < 0.2
            model.put(queue.put(body, taken=taken), body, taken=taken)
        elif action < 0.45:
            queue.writer.begin_batch()
            added = []
            for i in range(rng.randrange(6)):
                body, taken = b"%d/%d" % (step, i), rng.random() < 0.2
                added.append((queue.put(body, taken=taken), body, taken))
            queue.writer.end_batch()
            for ordinal, body, taken in added:
                model.put(ordinal, body, taken=taken)
        elif action < 0.7:
            found = queue.get()
            assert model.get() == (found and (found[0], found[2]))
        elif action < 0.95:
            if model.read:
                ordinal = rng.choice(model.read)
                queue.finish(ordinal)
                model.finish(ordinal)
        elif action < 0.955:
            queue.empty()
            model.empty()
        elif action < 0.98:
            rng.choice([queue.position.sync_meta, queue.writer.request_sync])()
        else:
            clean = rng.random() < 0.5
            if clean:
                queue.close()
            del queue
            queue = queue_at(size_max)
            left, model = model.bodies_left(), DiskQueueModel()
            found = drain(queue)
            assert sorted(b for _, _, b, _ in found) == sorted(left)
            if not clean:
                assert [b for _, _, b, _ in found] == left
            for ordinal, _, body, _ in found:
                model.put(ordinal, body)
                model.get()
        assert queue.depth == model.depth
        assert queue.unacked == len(model.unfinished)
    assert not [name for name in names(tmp_path) if name.endswith(".bad")]


# Kill -9. What the child knows it writes into shared memory, a byte per message.
NOTHING, PUTTING, PUT, FINISHING, FINISHED = range(5)


def misuse(folder, states, first, seed, size_max, steps):
    """What the child does until it dies."""
    rng = random.Random(seed)
    queue = DiskQueue(folder, "orders", Syncer(), size_max, 10)
    held, number = [], first
    for _ in range(steps):
        action = rng.random()
        if action < 0.4:
            count = rng.randrange(1, 5)
            queue.writer.begin_batch()
            numbers = range(number, number + count)
            number += count
            for n in numbers:
                states[n] = PUTTING
                taken = rng.random() < 0.2
                ordinal = queue.put(b"%d" % n, taken=taken)
                if taken:
                    held.append((ordinal, n))
            queue.writer.end_batch()
            for n in numbers:
                states[n] = PUT
        elif action < 0.65:
            found = queue.get()
            if found:
                held.append((found[0], int(found[2])))
        elif action < 0.97 and held:
            ordinal, n = held.pop(rng.randrange(len(held)))
            states[n] = FINISHING
            queue.finish(ordinal)
            states[n] = FINISHED
        elif action < 0.99:
            queue.position.sync_meta()
        elif action < 0.995:
            for n in range(number):
                if states[n] == PUT:
                    states[n] = FINISHING
            queue.empty()
            for n in range(number):
                if states[n] == FINISHING:
                    states[n] = FINISHED
            held.clear()


def test_killed_once_behind_the_rename_of_the_metadata_and_once_before(tmp_path, queue_at):
    """What the ack file says of it names the new one and the old one: the one that is there must stay named."""
    queue = queue_at()
    for n in range(3):
        queue.put(b"%d" % n)
    _, second = queue.get(), queue.get()
    queue.finish(second[0])
    queue.position.sync_meta()
    del queue
    numbers = struct.pack(
        "<5q", *map(int, re.findall(rb"\d+", meta_path(tmp_path).read_bytes())[:5])
    )
    acks = tmp_path / "orders.diskqueue.acks.dat"
    for killed in ("before it was confirmed", "when the next one was announced"):
        data = bytearray(acks.read_bytes())
        at = data.find(numbers) if killed.startswith("before") else data.rfind(numbers)
        data[at : at + len(numbers)] = bytes(len(numbers))
        acks.write_bytes(data)
        assert bodies(queue_at()) == [b"0", b"2"]


@pytest.mark.parametrize("seed", seeds("diskqueue-kill", 8))
def test_kill(tmp_path, queue_at, seed):
    print("seed", seed)
    rng = random.Random(seed)
    size_max = rng.choice([60, 300, 3000])
    states = mmap.mmap(-1, 1 << 16)
    first = 0
    for _ in range(8):
        gc.collect()  # a child must not end the threads of what is garbage here
        pid = os.fork()
        if pid == 0:
            code = 1
            with contextlib.suppress(BaseException):
                # From within, at any instruction: the timer's signal is not handled.
                signal.signal(signal.SIGALRM, signal.SIG_DFL)
                signal.setitimer(signal.ITIMER_REAL, rng.uniform(0.0002, 0.02))
                misuse(str(tmp_path), states, first, rng.random(), size_max, 3000)
                code = 0
            os._exit(code)
        _, status = os.waitpid(pid, 0)
        assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0
        queue = queue_at(size_max)
        depth = queue.depth
        found = [int(body) for body in bodies(queue)]
        assert len(found) == depth
        assert len(set(found)) == len(found)
        assert not [n for n in found if states[n] == FINISHED]
        lost = {n for n in range(1 << 16) if states[n] == PUT} - set(found)
        assert not lost
        del queue
        for n in range(1 << 16):
            if states[n] != NOTHING:
                states[n] = PUT if n in found else FINISHED
                first = max(first, n + 1)
    assert not [name for name in names(tmp_path) if name.endswith(".bad")]


@contextlib.contextmanager
def file_size_limit(size):
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("batch", [False, True])
def test_no_room(tmp_path, queue_at, syncer, batch):
    queue = queue_at()
    queue.put(b"x" * 3000)
    with file_size_limit(4096):
        if batch:
            queue.writer.begin_batch()
            queue.put(b"y" * 100)
            queue.put(b"y" * 3000)
        write = queue.writer.end_batch if batch else partial(queue.put, b"y" * 3000)
        with pytest.raises(OSError, match=r"write .*000000\.dat: file too large"):
            write()
        assert queue.depth == 1
        assert data_path(tmp_path).stat().st_size == 3030
        assert syncer.health.text.startswith("NOK - write ")
        queue.put(b"small")
        assert syncer.health.text == "OK"
    queue.put(b"z" * 3000)
    assert [b[:5] for b in bodies(queue)] == [b"xxxxx", b"small", b"zzzzz"]
    del queue
    assert len(bodies(queue_at())) == 3


def test_no_room_in_the_middle_of_a_rolling_batch(tmp_path, queue_at):
    queue = queue_at(4000)
    queue.put(b"a" * 3000)
    with file_size_limit(5000):
        queue.writer.begin_batch()
        for size in (500, 1000, 2000, 6000):
            queue.put(b"b" * size)
        with pytest.raises(OSError, match="file too large"):
            queue.writer.end_batch()
    assert names(tmp_path) == ["000000.dat", "acks.dat", "meta.dat"]
    assert data_path(tmp_path).stat().st_size == 3030
    queue.put(b"c" * 3000)
    assert [b[:1] for b in bodies(queue)] == [b"a", b"c"]
    queue.close()
    assert [b[:1] for b in bodies(queue_at())] == [b"a", b"c"]


def test_failing_roll_leaves_all_usable(tmp_path, queue_at):
    queue = queue_at(120)
    queue.put(b"a" * 50)
    data_path(tmp_path, 1).mkdir()
    with pytest.raises(OSError, match=r"open .*000001"):
        queue.put(b"b" * 50)
    queue.put(b"c")
    data_path(tmp_path, 1).rmdir()
    queue.put(b"d" * 50)
    assert [b[:1] for b in bodies(queue)] == [b"a", b"c", b"d"]


def deleted_files():
    """Of this process: removed, but still open."""
    gc.collect()  # queues of other tests that nobody closed
    found = []
    for number in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):
            found.append(os.readlink(f"/proc/self/fd/{number}"))
    return [path for path in found if path.endswith(".dat (deleted)")]


@pytest.fixture
def closed_here(monkeypatch):
    """Removed files that were closed by this thread, and not by the one that may take its time."""
    gc.collect()  # queues of other tests would close theirs meanwhile
    found, close = [], os.close

    def note(fd):
        path = os.readlink(f"/proc/self/fd/{fd}")
        if path.endswith("(deleted)"):
            found.append(path)
        close(fd)

    monkeypatch.setattr(os, "close", note)
    return found


@pytest.mark.parametrize("size", [400, 1 << 20])
def test_the_blocks_of_removed_files_are_freed_by_the_thread(
    tmp_path, queue_at, syncer, closed_here, size
):
    queue = queue_at(file_size_max=6 * size + 200)
    for _ in range(13):
        queue.put(b"x" * size)
    syncer.wait(queue.writer.request_sync())
    while (record := queue.get()) is not None:
        queue.finish(record[0])
    assert not data_path(tmp_path, 0).exists()
    assert not data_path(tmp_path, 1).exists()
    assert data_path(tmp_path, 2).exists()
    syncer.close()
    assert deleted_files() == []
    assert closed_here == []


def test_the_blocks_of_old_metadata_are_freed_by_the_thread(queue_at, syncer, closed_here):
    queue = queue_at()
    for number in range(10):
        queue.put(b"%d" % number)
        queue.position.sync_meta()
    syncer.close()
    assert deleted_files() == []
    assert closed_here == []


def test_the_thread_is_given_so_many_files_at_most(tmp_path, queue_at, syncer):
    """Descriptors are for connections; a disk that frees nothing must not eat them."""
    queue = queue_at(file_size_max=100)
    for _ in range(300):
        queue.put(b"x" * 90)
    before = len(os.listdir("/proc/self/fd"))
    most, unlink = 0, os.unlink

    def count(path):
        nonlocal most
        most = max(most, len(os.listdir("/proc/self/fd")))
        unlink(path)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "unlink", count)
        queue.empty()
    assert not data_path(tmp_path, 299).exists()
    assert most - before <= 12
    syncer.close()
    assert deleted_files() == []


def test_a_drained_file_is_closed_by_the_thread(tmp_path, queue_at, syncer, closed_here):
    queue = queue_at(file_size_max=5 << 20)
    for _ in range(6):
        queue.put(b"x" * (1 << 20))
    for ordinal, *_ in drain(queue):
        queue.finish(ordinal)
    assert not data_path(tmp_path).exists()
    syncer.close()
    assert deleted_files() == []
    assert closed_here == []
