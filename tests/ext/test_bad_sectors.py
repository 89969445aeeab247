"""Sectors that cannot be read, and data files that somebody cuts, removes or replaces: the rest is delivered."""

import errno
import json
import os
import shutil

import pytest
from nsqfast._ext.storage.diskqueue.queue import DiskQueue

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
syncer = Syncer()
queue = DiskQueue(sys.argv[1], "q", syncer, 1 << 30, 2500)
depth = queue.depth
found = [int(body[:8]) for _, _, body, _ in iter(queue.get, None)]
left = queue.depth
text = syncer.health.text
queue.put(b"next")
print(json.dumps([depth, found, left, text, syncer.health.text, syncer.health.unreadable_bytes, len(queue.get()[2])]))
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
    assert text == f"NOK - read {data_path(folder)}: input/output error"
    assert later == "OK"
    assert lost == 4096
    saved = (folder / "q.diskqueue.000000.dat.bad").read_bytes()
    assert saved[: MiB - SIZE] == record(1, 2 * MiB)[: MiB - SIZE]
    assert len(saved) == 2 * MiB


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
    with bad.nsqd(folder, "--mem-queue-size=0") as server:
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
        assert answer.body.decode() == f"NOK - read {path}: input/output error"
        assert server.stderr.count("input/output error") == 1
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
    with bad.nsqd(folder, "--mem-queue-size=0") as server:
        assert consume(server, len(left)) == left


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
