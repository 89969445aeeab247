"""Sectors that cannot be read, and data files that somebody cuts, removes or replaces: the rest is delivered."""

import errno
import json
import os
import shutil

import pytest
from nsqfast._ext.storage.diskqueue.queue import DiskQueue
from nsqfast._ext.storage.diskqueue.unreadable import parse_unread

from support.bad_sectors import BadSectors
from support.server import start_nsqd
from support.web import get, post, topic_stats
from support.wire import Client

SIZE = 200  # of a record
COUNT = 300
MiB = 1 << 20

WALK = """
import json, sys
from nsqfast._ext.storage.diskqueue.segment import Segment
segment = Segment(sys.argv[1])
records = segment.records()
data = segment.bytes(0, segment.size)
print(json.dumps([records, segment.unreadable, segment.error, data.hex(), segment.is_torn_at(records[-1][1])]))
"""

DRAIN = """
import json, sys
from nsqfast._ext.storage.diskqueue.queue import DiskQueue
from nsqfast._ext.storage.diskqueue.syncer import Syncer
from nsqfast._ext.storage.diskqueue.unreadable import set_read_retry
set_read_retry(0)
syncer = Syncer()
queue = DiskQueue(sys.argv[1], "q", syncer, 1 << 30, 2500)
depth = queue.depth
found = [int(body[:8]) for _, _, body, _ in iter(queue.get, None)]
left = queue.depth
text = syncer.health.text
queue.put(b"next")
print(json.dumps([depth, found, left, text, syncer.health.text, syncer.health.unreadable_bytes, len(queue.get()[2])]))
"""

HEALED = """
import json, os, sys
from nsqfast._ext.storage.diskqueue.queue import DiskQueue
from nsqfast._ext.storage.diskqueue.syncer import Syncer
queue = DiskQueue(sys.argv[1], "q", Syncer(), 1 << 30, 2500)
open(os.environ["NSQ_BAD_SECTORS"], "w").close()
print(json.dumps([[int(body[:8]) for _, _, body, _ in iter(queue.get, None)], queue.depth]))
"""

# What take() says again and again, until the list of bad sectors is empty, and what it has then.
RETRY = """
import json, os, sys
from nsqfast._ext.storage.diskqueue.queue import DiskQueue
from nsqfast._ext.storage.diskqueue.syncer import Syncer
from nsqfast._ext.storage.diskqueue.unreadable import set_read_retry
set_read_retry(int(sys.argv[2]))
queue = DiskQueue(sys.argv[1], "q", Syncer(), 1 << 30, 2500)
for number in range(20):
    queue.put(b"%08d" % number, id=number + 1)
errors = []
with open(os.environ["NSQ_BAD_SECTORS"], "w") as bad:
    print(sys.argv[3], file=bad)
for _ in range(5):
    try:
        queue.get()
    except OSError as error:
        errors.append(error.errno)
open(os.environ["NSQ_BAD_SECTORS"], "w").close()
print(json.dumps([errors, [int(body) for _, _, body, _ in iter(queue.get, None)], queue.depth]))
"""

pytestmark = pytest.mark.skipif(
    shutil.which("cc") is None or not os.path.exists("/proc/self/fd"),
    reason="needs a C compiler and Linux for the library that lets reads fail",
)


def body(number, size=SIZE):
    return (b"%08d" % number).ljust(size - 30, b"x")


def record(number, size=SIZE):
    header = (size - 4).to_bytes(4, "big") + (1_700_000_000_000_000_000).to_bytes(8, "big")
    return header + bytes(2) + b"%016x" % number + body(number, size)


def data_path(folder, number=0, name="q"):
    return folder / f"{name}.diskqueue.{number:06d}.dat"


def without(*ranges):
    """The records that none of the bytes belong to."""
    return [
        number
        for number in range(COUNT)
        if not any(start < (number + 1) * SIZE and number * SIZE < end for start, end in ranges)
    ]


@pytest.fixture(scope="module")
def preloaded(tmp_path_factory):
    return BadSectors(tmp_path_factory.mktemp("bad_sectors"))


@pytest.fixture
def bad(preloaded):
    preloaded.set()
    return preloaded


@pytest.fixture
def folder(tmp_path):
    path = tmp_path / "data"
    path.mkdir()
    return path


@pytest.mark.parametrize(
    "ranges",
    [
        [(8192, 12288)],
        [(0, 512)],
        [(1024, 1536), (30_720, 31_232)],
        [(8192, 20480), (53_248, 57_344)],
        [(57_344, 60_000)],
    ],
    ids=str,
)
def test_segment_knows_what_cannot_be_read(folder, bad, ranges):
    data = b"".join(map(record, range(COUNT)))
    data_path(folder).write_bytes(data)
    bad.set(*[(data_path(folder), *part) for part in ranges])
    records, unreadable, error, read, torn = json.loads(bad.run(WALK, str(data_path(folder))))
    assert [start // SIZE for start, _ in records] == without(*ranges)
    assert all(end == start + SIZE and start % SIZE == 0 for start, end in records)
    assert list(map(tuple, unreadable)) == ranges
    assert error == errno.EIO
    for start, end in ranges:
        data = data[:start] + bytes(end - start) + data[end:]
    assert bytes.fromhex(read) == data
    assert torn == (ranges[-1][1] < len(data))


@pytest.mark.parametrize(
    "ranges", [[(8192, 12288)], [(0, 4096), (4608, 5120)], [(57_344, 60_000)]], ids=str
)
def test_reader_goes_over_what_cannot_be_read(folder, bad, ranges):
    data_path(folder).write_bytes(b"".join(map(record, range(COUNT))))
    bad.set(*[(data_path(folder), *part) for part in ranges])
    found, left = json.loads(bad.run(DRAIN, str(folder)))[1:3]
    assert found == without(*ranges)
    assert left == 0


def test_a_body_that_cannot_be_read_does_not_hide_the_next_record(folder, bad):
    """Recovery jumps over large bodies; the reader finds out."""
    sizes = [SIZE, 2 * MiB, SIZE, SIZE]
    data_path(folder).write_bytes(b"".join(map(record, range(4), sizes)))
    bad.set((data_path(folder), MiB, MiB + 4096))
    depth, found, left, text, later, lost, _ = json.loads(bad.run(DRAIN, str(folder)))
    assert depth == 4
    assert found == [0, 2, 3]
    assert left == 0
    sector = f"{MiB}-{MiB + 4096}"
    assert text == f"NOK - read {data_path(folder)}: input/output error at {sector}"
    assert later == "OK"
    assert lost == 4096
    saved = (folder / "q.diskqueue.000000.dat.bad").read_bytes()
    assert saved[: MiB - SIZE] == record(1, 2 * MiB)[: MiB - SIZE]
    assert len(saved) == 2 * MiB


def test_without_hard_links_the_rest_is_delivered(folder, bad):
    data_path(folder).write_bytes(b"".join(map(record, range(COUNT))))
    bad.set((data_path(folder), 8192, 12_288))
    no_links = (
        "import os\ndef link(*_): raise OSError(1, 'Operation not permitted')\nos.link = link\n"
    )
    found = json.loads(bad.run(no_links + DRAIN, str(folder)))[1]
    assert found == without((8192, 12_288))
    assert not list(folder.glob("*.unread-*"))


@pytest.mark.parametrize(
    "name", ["q.dat", "q.dat.unread-", "q.dat.unread-7", "q.dat.unread-7-7", "q.dat.unread-x-9"]
)
def test_other_names_are_of_no_unread_bytes(name):
    assert parse_unread("/d/q.dat.unread-0-7") == ("/d/q.dat", 0, 7)
    with pytest.raises(ValueError, match="names no bytes"):
        parse_unread(name)


def consume(server, count):
    with Client(server.tcp) as client:
        client.sub("t", "c", ready_count=1)
        found = []
        for _ in range(count):
            message = client.read_message()
            found.append(int(message.body[:8]))
            client.fin(message)
        return found


def test_a_running_broker_goes_over_a_bad_sector(folder, bad):
    with bad.nsqd(folder, "--mem-queue-size=0", retry_ns=0) as server:
        with Client(server.tcp) as client:
            client.sub("t", "c", ready_count=0)
            client.mpub("t", map(body, range(COUNT)))
            client.barrier()
        path = data_path(folder, name="t:c")
        bad.set((path, 8192, 12288))
        left = without((8192, 12288))
        assert consume(server, len(left)) == left
        server.wait_for_line("input/output error at 8192-12288, going on at 12400")
        answer = get(server.http, "/ping")
        assert answer.status == 500
        assert answer.body.decode() == f"NOK - read {path}: input/output error at 8192-12288"
        assert server.stderr.count("reading at 8000 of") == 1
        with Client(server.tcp) as client:
            client.pub("t", body(COUNT))
        assert consume(server, 1) == [COUNT]
        assert get(server.http, "/ping").body == b"OK"
    assert path.with_suffix(".dat.bad").stat().st_size == 12400 - 8000


def test_a_broker_starts_on_a_bad_sector(folder, bad):
    data_path(folder, name="t:c").write_bytes(b"".join(map(record, range(COUNT))))
    topic = {"name": "t", "paused": False, "channels": [{"name": "c", "paused": False}]}
    (folder / "nsqd.dat").write_text(json.dumps({"topics": [topic], "version": "1.3.0"}))
    bad.set((data_path(folder, name="t:c"), 0, 4096))
    left = without((0, 4096))
    with bad.nsqd(folder, "--mem-queue-size=0", retry_ns=0) as server:
        assert consume(server, len(left)) == left


@pytest.mark.parametrize(
    ("retry_ns", "bad_files", "others"),
    [(0, ".dat", ()), (10**12, "000.dat", ("u.diskqueue.000000.dat",))],
    ids=["the device returns nothing", "it is too early"],
)
def test_nothing_is_given_up(folder, bad, retry_ns, bad_files, others):
    """However often it is tried: a device that returns nothing is no damage, nor is what has failed for a moment."""
    for name in others:
        (folder / name).write_bytes(bytes(4096))
    line = f"{bad_files} 0 {1 << 40} {errno.EIO}"
    errors, found, depth = json.loads(bad.run(RETRY, str(folder), str(retry_ns), line))
    assert errors == [errno.EIO] * 5
    assert found == list(range(20))
    assert depth == 0
    assert not list(folder.glob("*.bad"))
    assert not list(folder.glob("*.unread-*"))


def test_a_record_that_a_start_could_not_count_is_delivered(folder, bad):
    """It is read again, and one more than was counted is there."""
    data_path(folder).write_bytes(b"".join(map(record, range(COUNT))))
    bad.set((data_path(folder), 8192, 12_288))
    found, depth = json.loads(bad.run(HEALED, str(folder)))
    assert sorted(found) == list(range(COUNT))
    assert depth == 0


def fail_all(bad, folder, name="t:c"):
    """Nothing of the queue's files can be read; others can."""
    bad.set(*[(path, 0, 1 << 40) for path in sorted(folder.glob(f"{name}.diskqueue.0*.dat"))])


@pytest.mark.parametrize("is_cold", [False, True], ids=["cached", "cold"])
def test_reads_that_fail_for_a_while_lose_nothing(folder, bad, tmp_path, is_cold):
    """A queue of small files, none of which can be read for a time, while the device returns others."""
    flags = ("--mem-queue-size=0", "--max-bytes-per-file=4000")
    with bad.nsqd(folder, *flags, cold=tmp_path / "cold" if is_cold else None) as server:
        with Client(server.tcp) as client:
            client.sub("t", "c", ready_count=0)
            client.mpub("t", map(body, range(200)))
            client.barrier()
        assert len(list(folder.glob("t:c.diskqueue.0*.dat"))) >= 10
        fail_all(bad, folder)
        with Client(server.tcp) as client:
            client.sub("t", "c", ready_count=1)
            server.wait_for_line("dat: input/output error")
            assert get(server.http, "/ping").status == 500
            bad.set()
            for number in range(200):
                message = client.read_message()
                assert int(message.body[:8]) == number
                client.fin(message)
        assert get(server.http, "/ping").body == b"OK"
    assert not list(folder.glob("*.bad"))
    assert not list(folder.glob("*.unread-*"))


@pytest.mark.slow
@pytest.mark.parametrize("is_cold", [False, True], ids=["cached", "cold"])
def test_bad_sectors_in_two_files_are_given_up_in_time(folder, bad, tmp_path, is_cold):
    """What follows the first one cannot be counted before the second one has failed for as long."""
    flags = ("--mem-queue-size=0", "--max-bytes-per-file=20000")
    cold = tmp_path / "cold" if is_cold else None
    with bad.nsqd(folder, *flags, cold=cold, retry_ns=10**9) as server:
        with Client(server.tcp) as client:
            client.sub("t", "c", ready_count=0)
            client.mpub("t", map(body, range(COUNT)))
            client.barrier()
        paths = [data_path(folder, number, name="t:c") for number in (0, 2)]
        bad.set((paths[0], 8192, 12_288), (paths[1], 4096, 4608))
        left = without((8192, 12_288), (44_096, 44_608))
        assert consume(server, len(left)) == left
        assert server.stderr.count("input/output error at 8192-12288, going on at") == 1
        assert server.stderr.count("input/output error at 4096-4608, going on at") == 1
        assert topic_stats(server.http, "t")["channels"]["c"]["depth"] == 0


def write_topic(folder):
    topic = {"name": "t", "paused": False, "channels": [{"name": "c", "paused": False}]}
    (folder / "nsqd.dat").write_text(json.dumps({"topics": [topic], "version": "1.3.0"}))


def test_reads_that_fail_for_a_while_at_a_start_lose_nothing(folder, bad):
    """The start waits for them."""
    write_topic(folder)
    for number in range(11):
        records = map(record, range(number * 10, number * 10 + 10))
        data_path(folder, number, name="t:c").write_bytes(b"".join(records))
    fail_all(bad, folder)
    with bad.nsqd(folder, "--mem-queue-size=0", listeners=()) as server:
        server.wait_for_line("the start reads it again each second")
        bad.set()
        server.wait_for_line("HTTP: listening on")
        assert topic_stats(server.http, "t")["channels"]["c"]["depth"] == 110
        assert consume(server, 110) == list(range(110))
    assert not list(folder.glob("*.bad"))


def test_a_start_that_cannot_read_the_end_of_the_last_file_keeps_it(folder, bad):
    write_topic(folder)
    data_path(folder, name="t:c").write_bytes(b"".join(map(record, range(COUNT))))
    bad.set((data_path(folder, name="t:c"), 57_344, 1 << 40))
    with bad.nsqd(folder, "--mem-queue-size=0", retry_ns=0) as server:
        assert consume(server, 286) == list(range(286))
        bad.set()
        with Client(server.tcp) as client:
            client.pub("t", body(COUNT))
        assert sorted(consume(server, 15)) == list(range(286, COUNT + 1))
    assert not list(folder.glob("*.bad"))


@pytest.mark.parametrize("part", [(8192, 12288), (57_344, 60_000)], ids=["amid", "at the end"])
def test_what_was_given_up_is_read_at_the_next_start(folder, bad, part):
    path = data_path(folder, name="t:c")
    left = without(part)
    with bad.nsqd(folder, "--mem-queue-size=0", retry_ns=0) as server:
        with Client(server.tcp) as client:
            client.sub("t", "c", ready_count=0)
            client.mpub("t", map(body, range(COUNT)))
            client.barrier()
        bad.set((path, *part))
        with Client(server.tcp) as client:
            client.sub("t", "c", ready_count=1)
            for number in left:
                message = client.read_message()
                assert int(message.body[:8]) == number
                client.fin(message)
            server.wait_for_line(f"input/output error at {part[0]}-{part[1]}")
            client.barrier()
    link = next(iter(folder.glob("t:c.diskqueue.000000.dat.unread-*")))
    bad.set((link, *part))
    with bad.nsqd(folder, "--mem-queue-size=0", retry_ns=0) as server:
        server.wait_for_line(f"{link} - still input/output error, keeping it")
        assert topic_stats(server.http, "t")["channels"]["c"]["depth"] == 0
    assert link.exists()
    bad.set()
    with bad.nsqd(folder, "--mem-queue-size=0") as server:
        lost = [number for number in range(COUNT) if number not in left]
        server.wait_for_line(f"putting back {len(lost)} message(s)")
        assert consume(server, len(lost)) == lost
    assert not list(folder.glob("*.unread-*"))


@pytest.mark.parametrize("action", ["empty", "delete"])
def test_an_emptied_or_deleted_queue_keeps_nothing_unread(folder, bad, action):
    write_topic(folder)
    data_path(folder, name="t:c").write_bytes(b"".join(map(record, range(COUNT))))
    bad.set((data_path(folder, name="t:c"), 0, 4096))
    with bad.nsqd(folder, "--mem-queue-size=0", retry_ns=0) as server:
        assert consume(server, 1) == [21]
        assert list(folder.glob("*.unread-*"))
        assert post(server.http, f"/channel/{action}?topic=t&channel=c").status == 200
        assert not list(folder.glob("*.unread-*"))


def test_a_device_that_has_gone_away_loses_nothing(folder, bad):
    """More than a sector cannot be read: it is tried again until it can."""
    count, size = 20, 100_000
    with bad.nsqd(folder, "--mem-queue-size=0") as server:
        with Client(server.tcp) as client:
            client.sub("t", "c", ready_count=0)
            client.mpub("t", [body(number, size) for number in range(count)])
            client.barrier()
        path = data_path(folder, name="t:c")
        bad.set((path, 0, 1 << 40))
        with Client(server.tcp) as client:
            client.sub("t", "c", ready_count=1)
            server.wait_for_line("t:c.diskqueue.000000.dat: input/output error")
            assert get(server.http, "/ping").status == 500
            bad.set()
            for number in range(count):
                message = client.read_message()
                assert int(message.body[:8]) == number
                client.fin(message)
        assert get(server.http, "/ping").body == b"OK"
    assert not list(folder.glob("*.bad"))


@pytest.mark.parametrize("error", [errno.ESTALE, errno.ENOMEM])
def test_other_errors_are_no_damage(folder, bad, error):
    with bad.nsqd(folder, "--mem-queue-size=0") as server:
        with Client(server.tcp) as client:
            client.sub("t", "c", ready_count=0)
            client.mpub("t", map(body, range(3)))
            client.barrier()
        bad.set((data_path(folder, name="t:c"), 0, 1 << 40), error=error)
        with Client(server.tcp) as client:
            client.sub("t", "c", ready_count=3)
            server.wait_for_line(f"dat: {os.strerror(error)[:1].lower()}{os.strerror(error)[1:]}")
            bad.set()
            assert [int(m.body[:8]) for m in client.read_messages(3)] == [0, 1, 2]
    assert not list(folder.glob("*.bad"))


def test_files_are_removed_while_the_disk_is_busy(folder, bad):
    """Whoever empties a channel does not wait for what others sync."""
    flags = ("--mem-queue-size=0", "--sync-every=1", "--max-bytes-per-file=100")
    with bad.nsqd(folder, *flags) as server, Client(server.tcp) as client:
        client.sub("t", "c", ready_count=0)
        client.mpub("t", map(body, range(50)))
        client.barrier()
        bad.slow(data_path(folder, name="u"))
        client.command("PUB", "u", body=b"-")
        assert post(server.http, "/channel/empty?topic=t&channel=c").status == 200
        assert len(list(folder.glob("t:c.diskqueue.0*.dat"))) <= 1
        bad.set()
        assert client.read_response() == b"OK"


def test_a_file_that_is_cut_under_the_broker(folder):
    with start_nsqd("nsqfast", folder, "--mem-queue-size=0") as server:
        with Client(server.tcp) as client:
            client.sub("t", "c", ready_count=0)
            client.mpub("t", [body(number, 10_000) for number in range(100)])
            client.barrier()
        os.truncate(data_path(folder, name="t:c"), 405_000)
        assert consume(server, 40) == list(range(40))
        with Client(server.tcp) as client:
            client.pub("t", body(100))
        assert consume(server, 1) == [100]
        assert topic_stats(server.http, "t")["channels"]["c"]["depth"] == 0


def remove(path):
    path.unlink()


def replace_by_folder(path):
    path.unlink()
    path.mkdir()


def replace_by_pipe(path):
    path.unlink()
    os.mkfifo(path)


@pytest.mark.parametrize("change", [remove, replace_by_folder, replace_by_pipe])
@pytest.mark.parametrize("gone", [[1], [2], [1, 2]], ids=str)
@pytest.mark.parametrize("reopens", [False, True])
def test_a_file_that_is_no_more(folder, syncer, caplog, change, gone, reopens):
    """Five records in each. What the reader has in memory already, it gives."""
    queue = DiskQueue(str(folder), "q", syncer, 5 * SIZE, 2500)
    for number in range(20):
        queue.put(body(number))
    assert queue.get()[2] == body(0)
    if reopens:
        del queue
    for number in gone:
        change(data_path(folder, number))
    if reopens:
        queue = DiskQueue(str(folder), "q", syncer, 5 * SIZE, 2500)
    found = [int(text[:8]) for _, _, text, _ in iter(queue.get, None)]
    assert found == [n for n in range(0 if reopens else 1, 20) if n // 5 not in gone]
    assert queue.depth == 0
    reason = "no such file or directory" if change is remove else "not a regular file"
    expected = f"DISKQUEUE(q) reading at 0 of {data_path(folder, gone[0])} - {reason}"
    assert [line for line in caplog.messages if line.startswith(expected)] or reopens
    queue.put(body(20))
    assert queue.get()[2] == body(20)


@pytest.mark.parametrize("change", [remove, replace_by_folder, replace_by_pipe])
@pytest.mark.parametrize("number", [0, 3], ids=["read file", "write file"])
def test_the_file_that_is_to_be_read_is_no_more(folder, syncer, caplog, change, number):
    queue = DiskQueue(str(folder), "q", syncer, 5 * SIZE, 2500)
    for n in range(20):
        queue.put(body(n))
    change(data_path(folder, number))
    found = [int(text[:8]) for _, _, text, _ in iter(queue.get, None)]
    assert found == [n for n in range(20) if n // 5 != number]
    assert queue.depth == 0
    assert sum(str(data_path(folder, number)) in line for line in caplog.messages) == 1
