"""The spool itself: segments, numbers, locks, release, damage. No broker, no Spark."""

import json
import os
import signal
import subprocess
import sys
import time

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from nsqfast.spark.spool.identity import (
    QUERY,
    Lock,
    SpoolError,
    list_subscription,
    open_spool,
    read_identity,
)
from nsqfast.spark.spool.reading import read_batches
from nsqfast.spark.spool.release import read_released, release_segments, remove_done
from nsqfast.spark.spool.schema import DEATH, SCHEMA, SCHEMA_WITH_DEATHS
from nsqfast.spark.spool.segments import (
    ARROW,
    FORMATS,
    PARQUET,
    check_receiver,
    list_done,
    list_receivers,
    list_segments,
)
from nsqfast.spark.spool.writer import NotSyncedError, SegmentWriter
from support.server import ROOT
from support.spool import fail, make_rows, read_spool

HOUR_S = 3600.0
MUCH = 1 << 40


@pytest.fixture(params=FORMATS)
def kind(request):
    """Of segments."""
    return request.param


@pytest.fixture
def writer(spool, kind):
    made = SegmentWriter.open(spool, "r0", kind)
    yield made
    made.close()


def draft_name(writer, number):
    return f".tmp-{number}{writer._ending}"


def reopen(writer, kind=ARROW):
    writer.close()
    return SegmentWriter.open(writer.folder.parent, writer.folder.name, kind)


# -- identity


def test_a_spool_keeps_its_identity(tmp_path):
    folder = tmp_path / "a" / "spool"
    assert read_identity(folder) is None
    made = open_spool(folder, list_subscription(["b", "a", "b"]), "c")
    assert (made.subscription, made.channel) == ("a,b", "c")
    assert open_spool(folder, "a,b", "c") == made == read_identity(folder)
    assert os.listdir(folder) == ["SPOOL.json"]


def test_another_spool_has_another_epoch(tmp_path):
    assert open_spool(tmp_path / "1", "t", "c").epoch != open_spool(tmp_path / "2", "t", "c").epoch


@pytest.mark.parametrize(("subscription", "channel"), [("u", "c"), ("t", "d")])
def test_a_spool_of_another_subscription_is_refused(spool, subscription, channel):
    with pytest.raises(SpoolError, match="holds t of channel c, not"):
        open_spool(spool, subscription, channel)


@pytest.mark.parametrize("name", ["", "..", "a/b", "-a", "a" * 65])
def test_a_name_that_is_none_is_refused(spool, name):
    with pytest.raises(SpoolError, match="is no name for a receiver"):
        SegmentWriter.open(spool, name)


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", "no json", '{"version": 1}', '{"version": 1, "epoch": 1}']
)
def test_an_identity_that_cannot_be_read_is_named(spool, text):
    (spool / "SPOOL.json").write_text(text)
    with pytest.raises(SpoolError, match=r"SPOOL\.json cannot be read"):
        open_spool(spool, "t", "c")


def test_a_spool_of_a_later_version_is_refused(spool):
    fields = json.loads((spool / "SPOOL.json").read_text())
    (spool / "SPOOL.json").write_text(json.dumps(fields | {"version": 2}))
    with pytest.raises(SpoolError, match="another version"):
        open_spool(spool, "t", "c")


def test_a_file_is_no_spool(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(SpoolError, match="file"):
        open_spool(tmp_path / "file", "t", "c")


def test_many_who_make_it_at_once_have_the_same(tmp_path):
    code = (
        "import sys; from pathlib import Path; from nsqfast.spark.spool.identity import open_spool\n"
        "print(open_spool(Path(sys.argv[1]), 't', 'c').epoch)"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "spool")]
    several = [subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT) for _ in range(4)]
    said = {one.communicate(timeout=30)[0] for one in several}
    assert len(said) == 1
    assert all(one.returncode == 0 for one in several)


# -- segments


def test_what_was_sealed_is_read(spool, writer):
    first, second = make_rows(range(10)), make_rows(range(10, 15))
    segment = writer.seal([first, second])
    assert (segment.number, segment.row_count) == (1, 15)
    assert segment.path.stat().st_size == segment.size
    found = pa.Table.from_batches(read_batches(segment, fail))
    assert found == pa.Table.from_batches([first, second])
    assert list_segments(writer.folder) == [segment]
    assert list_receivers(spool) == ["r0"]


def test_nobody_else_may_read_a_spool(tmp_path):
    before = os.umask(0)
    try:
        folder = tmp_path / "spool"
        open_spool(folder, "t", "c")
        writer = SegmentWriter.open(folder, "r0")
        for _ in range(2):
            writer.seal([make_rows(range(3))])
        release_segments(writer.folder, 1)
        query = Lock.take(folder / QUERY, "")
    finally:
        os.umask(before)
    every = [folder, *folder.rglob("*")]
    assert {path.name for path in every if path.is_file()} >= {
        "SPOOL.json",
        "RELEASED",
        "LOCK",
        QUERY,
    }
    for path in every:
        assert path.stat().st_mode & 0o777 == (0o700 if path.is_dir() else 0o600), path
    query.release()
    writer.close()


def test_a_link_in_the_place_of_a_segment_is_not_followed(writer, tmp_path):
    (writer.folder / draft_name(writer, 1)).symlink_to(tmp_path / "victim")
    with pytest.raises(OSError, match="symbolic links"):
        writer.seal([make_rows(range(3))])
    assert not (tmp_path / "victim").exists()
    assert writer.seal([make_rows(range(3))]).number == 1


def test_a_segment_is_an_arrow_stream_or_a_parquet_file_for_everybody(writer, kind):
    rows = make_rows(range(10))
    path = writer.seal([rows]).path
    with pa.memory_map(str(path)) as file:
        table = pa.ipc.open_stream(file).read_all() if kind == ARROW else pq.read_table(file)
    assert table.schema == SCHEMA
    assert table == pa.Table.from_batches([rows])


def test_both_formats_in_one_spool(spool, writer, kind):
    """As when its receiver is started with another one: the numbers go on."""
    other = PARQUET if kind == ARROW else ARROW
    first = writer.seal([make_rows(range(3))])
    again = reopen(writer, other)
    second = again.seal([make_rows(range(3, 5))])
    again.close()
    assert [one.number for one in list_segments(writer.folder)] == [1, 2]
    release_segments(writer.folder, 2)
    assert list_done(writer.folder) == [first, second]
    assert read_spool(spool).num_rows == 5


def test_deaths_where_a_segment_has_them(writer):
    """It has the column only if its receiver asked for them; a reader may want it of any."""
    plain = make_rows([1])
    death = dict.fromkeys(("reason", "topic", "channel", "client", "error", "first_id"), "x")
    death |= dict.fromkeys(("failures", "attempts", "published", "died"), 7)
    column = pa.array([death, None], DEATH.type)
    known = pa.RecordBatch.from_arrays(
        [*make_rows([2, 3]).columns, column], schema=SCHEMA_WITH_DEATHS
    )
    without, with_deaths = writer.seal([plain]), writer.seal([known])
    assert list(read_batches(without, fail)) == [plain]
    assert list(read_batches(with_deaths, fail)) == [make_rows([2, 3])]
    every = SCHEMA_WITH_DEATHS.names
    assert list(read_batches(with_deaths, fail, every)) == [known]
    for names, expected in (
        (["death"], [{"death": None}]),
        (["death", "attempts"], [{"death": None, "attempts": 1}]),
    ):
        (rows,) = read_batches(without, fail, names)
        assert rows.to_pylist() == expected
        assert rows.schema.field("death").type == DEATH.type
    (rows,) = read_batches(with_deaths, fail, ["death"])
    assert rows.to_pylist() == [{"death": death}, {"death": None}]


def test_only_the_columns_that_are_wanted(writer):
    segment = writer.seal([make_rows([7])])
    (rows,) = read_batches(segment, fail, ["id", "attempts"])
    assert rows.to_pydict() == {"id": ["0000000000000007"], "attempts": [1]}


def test_an_empty_body_and_a_long_one(writer):
    row = make_rows([1]).to_pylist()[0]
    rows = pa.RecordBatch.from_pylist([row | {"body": b""}, row | {"body": bytes(1 << 20)}], SCHEMA)
    assert next(read_batches(writer.seal([rows]), fail)) == rows


def test_names_that_are_no_segments_are_left_alone(writer):
    for name in ("0001-r1-b1.arrow", "x.arrow", ".tmp-7", "0000000000000001-r1-b1.arrow.bak"):
        (writer.folder / name).write_text("")
    assert list_segments(writer.folder) == []


@pytest.mark.parametrize("name", ["", ".x", "-x", "a/b", "..", "a b", "x" * 65, "ä"])
def test_a_name_that_is_no_folder_is_refused(name):
    with pytest.raises(SpoolError, match="no name for a receiver"):
        check_receiver(name)


# -- numbers


def test_numbers_go_on_after_a_start(writer):
    assert [writer.seal([make_rows([n])]).number for n in range(3)] == [1, 2, 3]
    again = reopen(writer)
    assert again.seal([make_rows([3])]).number == 4
    again.close()


def test_no_number_comes_twice_when_all_was_released_and_removed(writer):
    for n in range(3):
        writer.seal([make_rows([n])])
    release_segments(writer.folder, 3)
    remove_done(writer.folder, 0.0, 0)
    for segment in list_done(writer.folder):
        segment.done_path.unlink()
    again = reopen(writer)
    assert again.seal([make_rows([3])]).number == 4
    again.close()


def test_a_draft_that_is_not_whole_is_removed(writer):
    folder, draft = writer.folder, writer.folder / draft_name(writer, 2)
    whole = writer.seal([make_rows(range(100))]).path.read_bytes()
    for size in (0, 10, len(whole) // 2, len(whole) - 1):
        draft.write_bytes(whole[:size])
        writer = reopen(writer)
        assert writer.next_number == 2
        assert not list(folder.glob(".tmp-*"))
    damaged = bytearray(whole)
    damaged[whole.index(b"body 50")] ^= 1
    draft.write_bytes(damaged)
    (folder / ".tmp-check").write_bytes(whole)
    writer = reopen(writer)
    assert writer.next_number == 2
    assert not list(folder.glob(".tmp-*"))
    writer.close()


def test_a_draft_that_is_whole_gets_its_name(spool, writer, kind):
    """After a power failure it may be one that a reader has seen: its number must not come again."""
    segment = writer.seal([make_rows(range(10)), make_rows(range(10, 13))])
    # nsqfast 0.2 had Arrow only, and drafts without a suffix.
    segment.path.rename(writer.folder / (".tmp-1" if kind == ARROW else draft_name(writer, 1)))
    again = reopen(writer)
    assert again.next_number == 2
    assert list_segments(writer.folder) == [segment]
    assert read_spool(spool).num_rows == 13
    again.close()


KILLED = """
import os, signal, sys
from pathlib import Path
from nsqfast.spark.spool import writer as module
from nsqfast.spark.spool.writer import SegmentWriter
from support.spool import make_rows
name, count, kind = sys.argv[2], int(sys.argv[3]), sys.argv[4]
place = module if name == "sync_folder" else module.os if name != "rename" else Path
real = getattr(place, name)
def die(*words, **more):
    global count
    count -= 1
    if count == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return real(*words, **more)
writer = SegmentWriter.open(Path(sys.argv[1]), "r0", kind)
setattr(place, name, die)
for number in range(3):
    writer.seal([make_rows([number])])
    print(number, flush=True)
"""


@pytest.mark.parametrize(
    ("name", "count", "kind"),
    [
        ("write", 6, ARROW),
        ("write", 9, ARROW),
        ("write", 2, PARQUET),
        *[
            (name, count, kind)
            for name, count in (("fsync", 3), ("rename", 2), ("sync_folder", 2))
            for kind in FORMATS
        ],
    ],
)
def test_killed_within_a_seal(spool, name, count, kind):
    """What was reported as sealed is there; the one under way is there whole, or not at all."""
    done = subprocess.run(
        [sys.executable, "-c", KILLED, str(spool), name, str(count), kind],
        env=os.environ | {"PYTHONPATH": str(ROOT / "tests")},
        cwd=ROOT,
        capture_output=True,
        timeout=30,
        check=False,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    reported = [int(word) for word in done.stdout.split()]
    assert len(reported) < 3
    writer = SegmentWriter.open(spool, "r0")
    found = [n.as_py() // 1000 for n in read_spool(spool).column("timestamp_ns")]
    assert found in (reported, [*reported, len(reported)])
    assert writer.seal([make_rows([9])]).number == len(found) + 1
    writer.close()


# -- failures of the disk


def test_a_full_disk_leaves_no_segment_and_uses_no_number(spool, writer, monkeypatch):
    def refuse(_fd, _data):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", refuse)
        with pytest.raises(OSError, match="No space"):
            writer.seal([make_rows([1])])
        with pytest.raises(OSError, match="No space"):
            writer.check()
    assert sorted(os.listdir(writer.folder)) == ["LOCK", "_done", "done"]
    writer.check()
    assert writer.seal([make_rows([1])]).number == 1
    assert read_spool(spool).num_rows == 1


def test_a_write_that_takes_a_part_goes_on(spool, writer, monkeypatch):
    real = os.write
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", lambda fd, data: real(fd, data[:100]))
        writer.seal([make_rows(range(50))])
    assert read_spool(spool).num_rows == 50


def test_a_draft_that_could_not_be_removed_is_no_hindrance(spool, writer, monkeypatch):
    def refuse(*_, **__):
        raise OSError(30, "Read-only file system")

    with monkeypatch.context() as patch:
        patch.setattr("pathlib.Path.rename", refuse)
        patch.setattr("pathlib.Path.unlink", refuse)
        with pytest.raises(OSError, match="Read-only"):
            writer.seal([make_rows(range(100))])
    assert writer.seal([make_rows([5])]).number == 1
    assert read_spool(spool).num_rows == 1


def test_a_name_that_is_not_on_disk_is_used_all_the_same(spool, writer, monkeypatch):
    def refuse(_folder):
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr("nsqfast.spark.spool.writer.sync_folder", refuse)
        with pytest.raises(NotSyncedError, match="Input/output error") as caught:
            writer.seal([make_rows([1])])
        with pytest.raises(OSError, match="Input/output error"):
            writer.sync()
    writer.sync()
    assert caught.value.segment == list_segments(writer.folder)[0]
    assert writer.seal([make_rows([2])]).number == 2


# -- locks


def test_a_folder_has_one_writer(spool, writer):
    with pytest.raises(
        SpoolError, match=f"belongs to a receiver that runs .process {os.getpid()} on"
    ):
        SegmentWriter.open(spool, "r0")
    SegmentWriter.open(spool, "r1").close()
    writer.close()
    writer.close()
    SegmentWriter.open(spool, "r0").close()


def test_a_lock_ends_with_its_process(spool):
    code = (
        "import sys; from pathlib import Path; from nsqfast.spark.spool.identity import Lock\n"
        "lock = Lock.take(Path(sys.argv[1]), 'x'); print('held', flush=True); sys.stdin.read()"
    )
    path = spool / QUERY
    with subprocess.Popen(
        [sys.executable, "-c", code, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=ROOT,
    ) as holder:
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(SpoolError, match=f"^taken .process {holder.pid} on"):
            Lock.take(path, "taken")
        holder.kill()
    Lock.take(path, "taken").release()


# -- release


def test_released_segments_move_and_are_still_found(spool, writer):
    sealed = [writer.seal([make_rows([n])]) for n in range(4)]
    release_segments(writer.folder, 2)
    assert read_released(writer.folder) == 2
    assert list_done(writer.folder) == sealed[:2]
    assert list_segments(writer.folder) == sealed[2:]
    assert sealed[0].find() == sealed[0].done_path
    assert next(read_batches(sealed[0], fail)) == make_rows([0])
    release_segments(writer.folder, 1)
    assert read_released(writer.folder) == 2
    # What a kill between the number and the moves left undone.
    sealed[0].done_path.rename(sealed[0].path)
    release_segments(writer.folder, 3)
    assert list_segments(writer.folder) == sealed[3:]


def test_a_release_that_was_cut_off_is_completed(writer):
    """Killed behind the number, before the moves."""
    sealed = [writer.seal([make_rows([n])]) for n in range(3)]
    (writer.folder / "RELEASED").write_text("2\n")
    release_segments(writer.folder, 2)
    assert list_segments(writer.folder) == sealed[2:]


@pytest.mark.parametrize("text", ["", "x", "1 2"])
def test_a_number_that_cannot_be_read_is_named(spool, writer, text):
    (writer.folder / "RELEASED").write_text(text)
    writer.close()
    with pytest.raises(SpoolError, match="RELEASED does not hold a number"):
        SegmentWriter.open(spool, "r0")
    (writer.folder / "RELEASED").unlink()
    SegmentWriter.open(spool, "r0").close()  # the lock was given back


def test_released_segments_are_removed_by_age_and_size(writer, monkeypatch):
    """The time counts from the release, not from the seal."""
    sealed = [writer.seal([make_rows([n])]) for n in range(5)]
    for segment in sealed:
        os.utime(segment.path, (0, 0))
    release_segments(writer.folder, 5)
    assert remove_done(writer.folder, HOUR_S, MUCH) == 0
    assert remove_done(writer.folder, HOUR_S, 3 * sealed[0].size) == 2
    assert list_done(writer.folder) == sealed[2:]
    later_s = time.time() + HOUR_S + 60
    monkeypatch.setattr(time, "time", lambda: later_s)
    assert remove_done(writer.folder, HOUR_S, MUCH) == 2
    assert list_done(writer.folder) == sealed[4:], "the last one stays"
    assert remove_done(writer.folder, 0.0, 0) == 0


def test_two_may_remove_at_once(writer, monkeypatch):
    sealed = [writer.seal([make_rows([n])]) for n in range(4)]
    release_segments(writer.folder, 4)
    listed = list_done(writer.folder)
    sealed[0].done_path.unlink()
    monkeypatch.setattr("nsqfast.spark.spool.release.list_done", lambda _folder: listed)
    assert remove_done(writer.folder, 0.0, 0) == 2
    monkeypatch.undo()
    assert list_done(writer.folder) == sealed[3:]
