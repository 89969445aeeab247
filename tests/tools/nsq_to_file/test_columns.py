"""Parquet and Arrow: what a file in progress leaves when its process dies, and what becomes of it."""

import gc
import os
import resource

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from nsqfast._ext.client.columns import Taken

from nsqfast.client.batch import ArrayBatch
from nsqfast.tools.nsq_to_file import column_file
from nsqfast.tools.nsq_to_file.column_file import SCHEMA, RowsFile, column_pieces
from nsqfast.tools.nsq_to_file.formats import make_archive
from nsqfast.tools.nsq_to_file.leftovers import Leftovers
from nsqfast.tools.nsq_to_file.options import parse
from nsqfast.tools.shared.program import ToolError
from support.archived import bodies_in, records_in

LARGE = 1 << 62


class Connection:
    address = "a:1"


def batch(*bodies, ids=None, sources=None, links=None):
    count = len(bodies)
    offsets = np.zeros(count + 1, np.int64)
    np.cumsum([len(body) for body in bodies], out=offsets[1:])
    return ArrayBatch(
        Taken(
            b"".join(bodies),
            offsets.tobytes(),
            np.arange(count, dtype=np.int64).tobytes(),
            np.ones(count, np.uint16).tobytes(),
            b"".join(ids or [b"%016x" % number for number in range(count)]),
            np.array(sources or [0] * count, np.uint16).tobytes(),
            links or [Connection()],
        )
    )


@pytest.fixture(params=["parquet", "arrow"])
def start(request, tmp_path):
    """An archive as a start of the program makes it; what was left behind is completed."""

    def begin(*flags, topic="t"):
        words = [
            "--nsqd-tcp-address=127.0.0.1:1",
            f"--topic={topic}",
            f"--format={request.param}",
            f"--output-dir={tmp_path}",
            "--filename-format=<TOPIC>/x<REV>",
            *flags,
        ]
        options = parse(words)
        archive, make_pieces = make_archive(options, topic)
        Leftovers(options).recover(topic)
        archive.add = lambda *bodies, deaths=None: archive.write(
            make_pieces(batch(*bodies), deaths)
        )
        return archive

    begin.format = request.param
    return begin


def names(folder):
    return sorted(path.name for path in folder.rglob("*") if path.is_file())


def die(archive):
    """What the kernel does with a process that is killed: its locks are gone."""
    os.close(archive._file._rows._fd)


def test_the_columns():
    class Other:
        address = "b:2"

    made = batch(
        *(b"x", b"", b"\0\xff"),
        ids=[b"a" * 16, b"\xff" * 16, b"c" * 16],
        sources=[1, 0, 1],
        links=[Connection(), Other()],
    )
    rows = column_pieces("t")(made).take(LARGE).rows
    assert rows.to_pylist() == [
        {"topic": "t", "id": "a" * 16, "timestamp_ns": 0, "attempts": 1, "nsqd": "b:2", "body": b"x"},
        {"topic": "t", "id": "ff" * 16, "timestamp_ns": 1, "attempts": 1, "nsqd": "a:1", "body": b""},
        {"topic": "t", "id": "c" * 16, "timestamp_ns": 2, "attempts": 1, "nsqd": "b:2", "body": b"\0\xff"},
    ]  # fmt: skip
    rows.validate(full=True)


def test_who_may_read_a_file(start, tmp_path):
    before = os.umask(0)
    try:
        archive = start()
        archive.add(b"a")
        archive._file._end_group()
        modes = {path.name: path.stat().st_mode & 0o777 for path in (tmp_path / "t").iterdir()}
        archive.close()
    finally:
        os.umask(before)
    name = f"x-000000.{start.format}"
    assert modes == {f"{name}.rows": 0o640, f"{name}.part": 0o640}
    assert (tmp_path / "t" / name).stat().st_mode & 0o777 == 0o640


def test_a_link_in_the_place_of_what_a_killed_run_left(start, tmp_path):
    (tmp_path / "t").mkdir()
    (tmp_path / "victim").touch()
    (tmp_path / "t" / f"x-000000.{start.format}.rows").symlink_to(tmp_path / "victim")
    with pytest.raises(ToolError, match="symbolic link"):
        start()


def test_what_runs_with_other_flags_left(start, tmp_path):
    """Its columns are those of its run."""
    death = dict.fromkeys(("reason", "topic", "channel", "client", "error", "first_id"), "x")
    death |= dict.fromkeys(("failures", "attempts", "published", "died"), 1)
    with_deaths = start("--deaths")
    with_deaths.add(b"a", b"b", deaths=[death, None])
    with_deaths.sync()
    die(with_deaths)
    plain = start()
    plain.add(b"c")
    plain.sync()
    die(plain)
    start("--deaths")
    found = {record["body"]: record.get("death", "no column") for record in records_in(tmp_path)}
    assert found == {b"a": death, b"b": None, b"c": "no column"}


def test_bodies_are_not_copied():
    made = batch(b"abc" * 100, b"def")
    rows = column_pieces("t")(made).take(LARGE).rows
    block = np.frombuffer(made.bodies, np.uint8).ctypes.data
    assert rows["body"].buffers()[2].address == block


def test_pieces_are_as_large_as_a_file_has_room():
    """As lines of one file: the row with which it is larger than the limit still belongs to it."""
    pieces = column_pieces("t")(batch(*[b"x" * 9] * 25))
    sizes = []
    while pieces.next < pieces.count:
        piece = pieces.take(100)
        sizes.append((piece.rows.num_rows, piece.size))
    assert sizes == [(11, 110), (11, 110), (3, 30)]


def test_a_file_appears_when_it_is_whole(start, tmp_path):
    archive = start("--rotate-size=50")
    archive.add(*[b"x" * 9] * 8)
    archive.sync()
    assert [name for name in names(tmp_path) if not name.endswith((".rows", ".part"))] == [
        f"x-000000.{names(tmp_path)[0].split('.')[1]}"
    ]
    archive.close()
    assert len(names(tmp_path)) == 2
    assert bodies_in(tmp_path) == [b"x" * 9] * 8


def test_rows_that_were_synced_outlive_a_kill(start, tmp_path):
    killed = start()
    killed.add(b"a", b"b")
    killed.add(b"c")
    killed.sync()
    die(killed)
    again = start()
    assert bodies_in(tmp_path) == [b"a", b"b", b"c"]
    assert len(names(tmp_path)) == 1
    again.add(b"d")
    again.close()
    assert bodies_in(tmp_path) == [b"a", b"b", b"c", b"d"]
    assert len(names(tmp_path)) == 2


@pytest.mark.parametrize("cut", [1, 100, 10_000])
def test_a_batch_that_is_torn_is_left_out(start, tmp_path, cut):
    killed = start()
    killed.add(b"a", b"b")
    whole_size = killed._file._rows.end
    killed.add(b"c" * 5000)
    die(killed)
    (rows,) = tmp_path.rglob("*.rows")
    with rows.open("r+b") as file:
        file.truncate(max(whole_size, rows.stat().st_size - cut))
    start()
    assert bodies_in(tmp_path) == [b"a", b"b"]
    assert len(names(tmp_path)) == 1


@pytest.mark.parametrize("size", [0, 1, 8, 200])
def test_rows_that_hardly_began(start, tmp_path, size):
    killed = start()
    killed.add(b"a")
    die(killed)
    (rows,) = tmp_path.rglob("*.rows")
    with rows.open("r+b") as file:
        file.truncate(size)
    start()
    assert bodies_in(tmp_path) == []
    assert not [name for name in names(tmp_path) if name.endswith((".rows", ".part"))]


def test_what_a_living_process_has_is_left_alone(start, tmp_path):
    living = start()
    living.add(b"a")
    other = start()
    other.add(b"b")
    other.close()
    living.close()
    assert sorted(bodies_in(tmp_path)) == [b"a", b"b"]
    assert [name[:8] for name in names(tmp_path)] == ["x-000000", "x-000001"]


def test_what_belongs_to_another_topic_is_left_alone(start, tmp_path):
    killed = start(topic="other")
    killed.add(b"a")
    die(killed)
    before = names(tmp_path)
    start()
    assert names(tmp_path) == before
    start(topic="other")
    assert bodies_in(tmp_path) == [b"a"]


def test_killed_between_its_name_and_the_end(start, tmp_path, monkeypatch):
    """The file has its name already; it must not be there twice."""

    class KilledError(Exception):
        pass

    def die_here(self):
        raise KilledError

    archive = start()
    archive.add(b"a")
    file = archive._file
    with monkeypatch.context() as patched:
        patched.setattr(column_file.ColumnFile, "forget", die_here)
        with pytest.raises(KilledError):
            archive.close()
    os.close(file._rows._fd)
    assert len(names(tmp_path)) == 3
    start()
    assert bodies_in(tmp_path) == [b"a"]
    assert len(names(tmp_path)) == 1


def test_groups_of_rows(start, tmp_path, monkeypatch):
    """Memory is bounded by what makes a group, however large the file is."""
    monkeypatch.setattr(column_file, "GROUP_SIZE", 1000)
    archive = start("--compression=zstd")
    expected = []
    for number in range(50):
        archive.add(*[b"%d" % number * 20] * 5)
        expected += [b"%d" % number * 20] * 5
        assert archive._file._group_size < 1000
    archive.close()
    assert bodies_in(tmp_path) == expected
    (path,) = tmp_path.rglob("x-*")
    if path.suffix == ".parquet":
        assert pq.ParquetFile(path).metadata.num_row_groups > 5
    else:
        assert pa.ipc.open_file(path).num_record_batches > 5


def test_a_name_that_is_taken(start, tmp_path):
    for _ in range(2):
        archive = start()
        archive.add(b"a")
        archive.close()
    assert [name[:8] for name in names(tmp_path)] == ["x-000000", "x-000001"]


def test_locks(tmp_path):
    path = tmp_path / "a.rows"
    rows = RowsFile.create(path, SCHEMA)
    assert RowsFile.take_over(path) is None
    with pytest.raises(FileExistsError):
        RowsFile.create(path, SCHEMA)
    rows.close()
    taken = RowsFile.take_over(path)
    assert taken is not None
    taken.close()


@pytest.mark.parametrize("size_max", [0, 20_000])
def test_a_disk_that_has_room_for_the_rows_only(start, tmp_path, monkeypatch, size_max):
    """What was synced is safe, and becomes a file once there is room; the failure is one error and nothing more."""
    bodies = [b"%d" % number * 5000 for number in range(8)]
    archive = start()
    archive.add(*bodies)
    archive.sync()
    monkeypatch.setattr(column_file.Layout, "open", limited(column_file.Layout.open, size_max))
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        with pytest.raises(OSError, match="too large"):
            archive.close()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    monkeypatch.undo()
    del archive
    gc.collect()
    assert names(tmp_path) == [f"x-000000.{start.format}.rows"]
    start()
    assert bodies_in(tmp_path) == bodies


def limited(open_writer, size_max):
    def begin(*arguments):
        resource.setrlimit(resource.RLIMIT_FSIZE, (size_max, resource.RLIM_INFINITY))
        return open_writer(*arguments)

    return begin
