"""The file of acknowledgements: what is stored is there for the next who opens it, without a close."""

import contextlib
import mmap
import os
import random
import re
import resource
import signal
import struct
from pathlib import Path

import pytest
from nsqfast._ext.dev.probes import count_mapped, limit_mapped
from nsqfast._ext.storage.diskqueue.ackfile import AckFile

from support.ack_files import list_finished, put_written
from support.seeds import seeds


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "q.diskqueue.acks.dat")


def test_fresh(path):
    acks = AckFile(path)
    assert acks.state() == ((1, 0, 0), (1, 0, 0))
    assert list_finished(acks) == []
    assert Path(path).stat().st_mode & 0o777 == 0o600
    assert Path(path).stat().st_size == 512 + acks.capacity // 8


def test_seen_by_others_at_once(path):
    acks = AckFile(path)
    put_written(acks, 10, 2, 300)
    acks.set_cursor(3, 1, 90)
    acks.mark(5)
    other = AckFile.load(path)
    assert other.trusted
    assert other.state() == ((3, 1, 90), (10, 2, 300))
    assert list_finished(other) == [5]


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
    put_written(acks, 10, 0, 300)
    acks.mark(3)
    before = Path(path).read_bytes()[BITS_CHECK]
    acks.mark(5)
    data = bytearray(Path(path).read_bytes())
    assert data[BITS_CHECK] != before
    data[BITS_CHECK] = before
    if not is_told:
        data[MARKED] = bytes(8)
    Path(path).write_bytes(data)
    other = AckFile.load(path)
    assert other.trusted is is_told
    if is_told:
        assert list_finished(other) == [3, 5]
        other.mark(4)
        assert AckFile.load(path).trusted


CLEARING, CLEARING_CHECK = slice(368, 376), slice(376, 384)


@pytest.mark.parametrize("is_told", [True, False])
@pytest.mark.parametrize("is_before", [True, False], ids=["before", "behind"])
def test_a_kill_while_bits_are_taken_away(path, is_told, is_before):
    """The check that will be true stands there before they are."""
    acks = AckFile(path)
    put_written(acks, 10, 0, 300)
    for index in (1, 2, 3, 5):
        acks.mark(index)
    acks.set_cursor(4, 0, 100)
    data = bytearray(Path(path).read_bytes())
    # As far as the ring goes: 1 and 2 are in the way.
    put_written(acks, 10 + acks.capacity - 7, 0, 900)
    after = Path(path).read_bytes()
    assert after[BITS_CHECK] != data[BITS_CHECK]
    assert after[CLEARING] == bytes(8)
    assert after[CLEARING_CHECK] == after[BITS_CHECK]
    data[CLEARING_CHECK] = after[CLEARING_CHECK]
    if is_told:
        data[CLEARING] = struct.pack("<Q", 1)
    if not is_before:
        data[512:] = after[512:]
    Path(path).write_bytes(data)
    other = AckFile.load(path)
    assert other.trusted is (is_told or is_before)
    if other.trusted:
        other.set_cursor(5, 0, 120)
        put_written(other, 10 + acks.capacity - 6, 0, 910)
        assert AckFile.load(path).trusted
        assert list_finished(other) == list_finished(AckFile.load(path)) == [5]


def test_nothing_there(path):
    assert AckFile.load(path) is None


def test_every_damaged_header_byte_is_survived(path):
    acks = AckFile(path)
    put_written(acks, 10, 2, 300)
    acks.close()
    whole = Path(path).read_bytes()
    for position in range(200):
        data = bytearray(whole)
        data[position] ^= 0xFF
        Path(path).write_bytes(data)
        loaded = AckFile.load(path)
        assert loaded is None or list_finished(loaded) == []


def test_a_full_disk_is_no_reason_not_to_start(tmp_path, caplog):
    acks = AckFile(str(tmp_path / "missing" / "q.acks.dat"))
    put_written(acks, 100_000, 0, 9)
    acks.mark(77)
    assert list_finished(acks) == [77]
    assert "memory only" in caplog.text


@pytest.fixture
def few_mapped():
    """Two at most."""
    limit_mapped(2)
    yield
    limit_mapped(0)


def test_a_loaded_one_is_mapped_with_its_first_store(path):
    acks = AckFile(path)
    put_written(acks, 10, 2, 300)
    acks.set_cursor(3, 1, 90)
    acks.mark(5)
    acks.close()
    before, data = count_mapped(), Path(path).read_bytes()
    acks = AckFile.load(path)
    acks.set_cursor(3, 1, 90)
    put_written(acks, 10, 2, 300)
    acks.mark(5)
    assert list_finished(acks) == [5]
    assert (count_mapped(), Path(path).read_bytes()) == (before, data)
    acks.mark(6)
    assert count_mapped() == before + 1
    assert list_finished(AckFile.load(path)) == [5, 6]
    acks.close()
    assert count_mapped() == before


CLEAN = slice(352, 360)


def test_what_is_never_changed_stays_clean(path):
    """It need not be synced again by the stop. From the first change on it is not clean until the stop says so."""
    AckFile(path).close()
    data = Path(path).read_bytes()
    assert data[CLEAN] == struct.pack("<Q", 1)
    acks = AckFile.load(path)
    acks.note_boot()
    assert acks.finish() is False
    assert Path(path).read_bytes() == data
    acks = AckFile.load(path)
    acks.note_boot()
    put_written(acks, 2, 0, 30)
    assert Path(path).read_bytes()[CLEAN] == bytes(8)
    assert acks.finish() is True
    assert Path(path).read_bytes()[CLEAN] == struct.pack("<Q", 1)


def test_what_a_kill_has_left_is_clean_after_the_stop(path):
    AckFile(path)
    acks = AckFile.load(path)
    acks.note_boot()
    assert acks.finish() is True
    assert Path(path).read_bytes()[CLEAN] == struct.pack("<Q", 1)


@pytest.mark.parametrize("way", ["removed", "replaced", "cut", "no descriptor"])
def test_one_that_cannot_be_mapped_again(path, caplog, way):
    """What is stored is there until the end of the process, and on disk as soon as that is possible again."""
    acks = AckFile(path)
    put_written(acks, 10, 0, 300)
    acks.mark(5)
    acks = AckFile.load(path)
    if way == "no descriptor":
        before = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (0, before[1]))
    elif way == "cut":
        os.truncate(path, 600)
    elif way == "removed":
        Path(path).unlink()
    else:
        Path(path + ".new").write_bytes(bytes(2560))
        Path(path + ".new").rename(path)
    acks.mark(6)
    if way == "no descriptor":
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    assert list_finished(acks) == [5, 6]
    assert not acks.is_kept()
    assert re.findall("memory only - (.*)", caplog.text) == [
        "Too many open files" if way == "no descriptor" else "No such file or directory"
    ]
    acks.mark(7)
    assert acks.keep()
    assert list_finished(AckFile.load(path)) == [5, 6, 7]


@pytest.mark.parametrize("seed", seeds("ackfile", 5))
def test_many_of_which_few_are_mapped(tmp_path, few_mapped, seed):
    print("seed", seed)
    rng = random.Random(seed)
    paths = [str(tmp_path / f"{number}.acks.dat") for number in range(150)]
    found = [[AckFile(path), set(), 1, 1] for path in paths]
    for _ in range(3000):
        number = rng.randrange(len(found))
        acks, finished, cursor, written = found[number]
        if rng.random() < 0.3:
            written += rng.choice([1, 63, 64, 65, 3000])
            put_written(acks, written, 0, written)
        if cursor < written:
            index = rng.randrange(cursor, written)
            finished.add(index)
            acks.mark(index)
            cursor = rng.randrange(cursor, min(written, cursor + rng.choice([2, 100, 5000])))
            acks.set_cursor(cursor, 0, cursor)
        if rng.random() < 0.1:
            acks = AckFile.load(paths[number])
            assert acks.trusted
        assert count_mapped() <= 64
        left = sorted(index for index in finished if index >= cursor)
        assert list_finished(acks) == left
        assert len(list_finished(acks)) == len(left)
        found[number] = [acks, set(left), cursor, written]


KILLED_COUNT = 3
ROUNDS_MAX = 100_000


def finish_some(paths, told, rng):
    """Of several queues, so that each is mapped and let go again and again; `told` has what was finished before."""
    limit_mapped(1)
    made = [AckFile.load(path) for path in paths]
    for round_number in range(ROUNDS_MAX):
        number = round_number % len(made)
        acks = made[number]
        (cursor, *_), (written, *_) = acks.state()
        written += rng.choice([1, 64, 1000])
        put_written(acks, written, 0, written)
        for _ in range(5):
            index = rng.randrange(cursor, written)
            acks.mark(index)
            told[number * ROUNDS_MAX + index % ROUNDS_MAX] = 1
        if written - cursor > 3000:
            acks.set_cursor(written - 100, 0, 7)
            for index in range(cursor, written - 100):
                told[number * ROUNDS_MAX + index % ROUNDS_MAX] = 0


@pytest.mark.parametrize("seed", seeds("ackfile kill", 3))
def test_killed_while_they_are_mapped_in_turn(tmp_path, seed):
    print("seed", seed)
    rng = random.Random(seed)
    told = mmap.mmap(-1, KILLED_COUNT * ROUNDS_MAX)
    paths = [str(tmp_path / f"{number}.acks.dat") for number in range(KILLED_COUNT)]
    for path in paths:
        AckFile(path)
    for _ in range(10):
        pid = os.fork()
        if pid == 0:
            with contextlib.suppress(BaseException):
                # At any instruction: the timer's signal is not handled.
                signal.signal(signal.SIGALRM, signal.SIG_DFL)
                signal.setitimer(signal.ITIMER_REAL, rng.uniform(0.001, 0.1))
                finish_some(paths, told, random.Random(rng.random()))
            os._exit(1)
        rng.random()
        _, status = os.waitpid(pid, 0)
        assert os.WIFSIGNALED(status)
        for number, path in enumerate(paths):
            acks = AckFile.load(path)
            assert acks.trusted
            (cursor, *_), (written, *_) = acks.state()
            finished = set(list_finished(acks))
            wanted = {
                n for n in range(cursor, written) if told[number * ROUNDS_MAX + n % ROUNDS_MAX]
            }
            assert wanted <= finished
            assert len(finished - wanted) <= 1  # the kill came before it was told
            told[number * ROUNDS_MAX : (number + 1) * ROUNDS_MAX] = bytes(ROUNDS_MAX)
            for index in finished:
                told[number * ROUNDS_MAX + index % ROUNDS_MAX] = 1


@pytest.mark.parametrize("seed", seeds("ackfile", 5))
def test_random(path, seed):
    print("seed", seed)
    rng = random.Random(seed)
    acks, finished, cursor, written = AckFile(path), set(), 1, 1
    for _ in range(60):
        written += rng.choice([1, 63, 64, 65, 3000])
        put_written(acks, written, 0, written)
        for _ in range(20):
            index = rng.randrange(cursor, written)
            finished.add(index)
            acks.mark(index)
        cursor = rng.randrange(cursor, min(written, cursor + rng.choice([2, 100, 5000])))
        acks.set_cursor(cursor, 0, cursor)
        if rng.random() < 0.2:
            acks = AckFile.load(path)
        left = sorted(index for index in finished if index >= cursor)
        assert list_finished(acks) == left
        assert len(list_finished(acks)) == len(left)
