"""No room: in the spool, on its disk; RDY 0, nothing is lost, and it goes on by itself."""

import shutil
import subprocess

import pytest

from nsqfast.spark.receiver.room import Count, Room, count_spool, free_floor
from nsqfast.spark.spool.identity import open_spool
from nsqfast.spark.spool.release import release_segments
from nsqfast.spark.spool.segments import Segment, list_segments
from nsqfast.spark.spool.writer import SegmentWriter
from support.drain import address_of
from support.spool import (
    channel_state,
    make_rows,
    numbers,
    publish,
    read_spool,
    receiver_flags,
    row_count,
    run_receiver,
    segments,
    start_receiver,
    take_live,
)
from support.waiting import eventually

COUNT = 20_000
SIZE = 200
MUCH = 1 << 50


def is_empty(broker, topic):
    state = channel_state(broker, topic)
    return state["depth"] == state["in_flight_count"] == state["deferred_count"] == 0


class TestRoom:
    """The rule alone."""

    def make(self):
        self.said = []
        return Room(1000, 500, self.said.append)

    def segment(self, tmp_path, size):
        return Segment(tmp_path, 1, 1, size)

    def test_full_is_full_until_a_fifth_is_free(self, tmp_path):
        room = self.make()
        room.note_count(Count(0, 0, MUCH, 0.0))
        for size in (400, 599):
            room.note_sealed(self.segment(tmp_path, size))
            assert not room.is_full
        room.note_sealed(self.segment(tmp_path, 1))
        assert room.is_full
        room.begin_count()
        room.note_count(Count(3, 801, MUCH, 0.0))
        assert room.is_full
        room.note_count(Count(3, 799, MUCH, 0.0))
        assert self.said == [True, False]

    def test_what_is_sealed_during_a_count_is_not_forgotten(self, tmp_path):
        room = self.make()
        room.begin_count()
        room.note_sealed(self.segment(tmp_path, 300))
        room.note_count(Count(2, 600, MUCH, 0.0))
        assert (room.segments, room.size) == (3, 900)

    def test_a_disk_with_little_left(self, tmp_path):
        room = self.make()
        room.note_count(Count(0, 0, 600, 0.0))
        room.note_sealed(self.segment(tmp_path, 101))
        assert room.is_full
        assert room.is_disk_low
        room.begin_count()
        room.note_count(Count(1, 101, 599, 0.0))
        assert room.is_full
        room.note_count(Count(1, 101, 600, 0.0))
        assert self.said == [True, False]

    def test_a_failure_lasts_until_it_is_over(self):
        room = self.make()
        room.note_count(Count(0, 0, MUCH, 0.0))
        room.note_failure("no space left on device")
        room.note_failure("no space left on device")
        room.note_count(Count(0, 0, MUCH, 0.0))
        assert room.is_failing
        room.note_failure(None)
        assert self.said == [True, False]


def test_all_receivers_count(tmp_path):
    open_spool(tmp_path, "t", "c")
    sealed = []
    for name in ("r0", "r1"):
        writer = SegmentWriter.open(tmp_path, name)
        sealed += [writer.seal([make_rows([n])]) for n in range(2)]
        writer.close()
    release_segments(tmp_path / "r1", 1)
    count = count_spool(tmp_path)
    assert (count.segments, count.size) == (3, sum(one.size for one in sealed[:3]))
    assert count.free_size > 0


def test_the_floor_is_small_on_a_small_disk(tmp_path):
    assert free_floor(tmp_path, 77, 1 << 30, 0.05) == 77
    assert free_floor(tmp_path, 0, 10, 0.05) == 10
    assert 0 < free_floor(tmp_path, 0, MUCH, 0.05) < MUCH


# -- the receiver


def test_a_full_spool_stops_it_until_spark_releases(broker, topic, folder):
    address = address_of(broker)
    publish(address, topic, range(COUNT), SIZE)
    flags = receiver_flags(
        folder, address, "--max-spool-bytes=1000000", "--max-in-flight=1000", topic=topic
    )
    with start_receiver(*flags) as tool:
        tool.wait_for(lambda t: b"taking nothing more" in t.err)
        eventually(lambda: channel_state(broker, topic)["in_flight_count"] == 0)
        full = row_count(folder)
        assert full < COUNT // 2
        assert b"bytes wait for Spark, and --max-spool-bytes is 1000000" in tool.err
        status, said = run_receiver(*flags, "--drain", "--receiver=r1")
        assert status == 0
        assert "the drain ends before all has come: there is no room for more" in said
        assert row_count(folder) == full
        taken = []
        while len(taken) < COUNT:
            eventually(lambda: list_segments(folder / "r0"))
            taken += take_live(folder / "r0")
        assert tool.end() == 0, tool.text
    assert b"there is room again; going on" in tool.err
    assert sorted(taken) == list(range(COUNT))
    assert is_empty(broker, topic)
    # Waiting costs no message an attempt.
    assert set(read_spool(folder).column("attempts").to_pylist()) == {1}


@pytest.fixture
def small_disk(tmp_path):
    """Of 8 MiB, with a file that fills most of it."""
    place = tmp_path / "disk"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(place)]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("not allowed to mount a small file system")
    (place / "filler").write_bytes(bytes(6 << 20))
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def test_a_full_disk_stops_it_until_there_is_room(ours, topic, small_disk):
    """The floor is too low to prevent it: a segment does not fit."""
    folder = small_disk / "spool"
    address = address_of(ours)
    publish(address, topic, range(COUNT), SIZE)
    flags = receiver_flags(folder, address, "--min-free-bytes=1", "--msg-timeout=2s", topic=topic)
    with start_receiver(*flags) as tool:
        tool.wait_for(lambda t: b"messages are requeued: they could not be written" in t.err)
        eventually(lambda: channel_state(ours, topic)["in_flight_count"] == 0)
        assert tool.err.count(b"taking nothing more") == 1
        assert b"a segment cannot be written: no space left on device" in tool.err
        assert row_count(folder) < COUNT
        (small_disk / "filler").unlink()
        eventually(lambda: row_count(folder) == COUNT, 20)
        eventually(lambda: is_empty(ours, topic))
        assert tool.end() == 0, tool.text
    assert numbers(folder) == list(range(COUNT))


def test_a_disk_with_little_left_is_left_alone(ours, topic, small_disk):
    folder = small_disk / "spool"
    publish(address_of(ours), topic, range(COUNT), SIZE)
    flags = ("--min-free-bytes=1500000", "--max-in-flight=1000")
    flags = receiver_flags(folder, address_of(ours), *flags, topic=topic)
    with start_receiver(*flags) as tool:
        tool.wait_for(lambda t: b"taking nothing more: the disk has" in t.err)
        (small_disk / "filler").unlink()
        eventually(lambda: row_count(folder) >= 5000, 20)
        assert tool.end() == 0, tool.text


def test_a_spool_that_was_removed_ends_it(ours, topic, folder):
    publish(address_of(ours), topic, range(100))
    with start_receiver(*receiver_flags(folder, address_of(ours), topic=topic)) as tool:
        eventually(lambda: row_count(folder) == 100)
        shutil.rmtree(folder)
        assert tool.end(None) == 1
    assert tool.err.splitlines()[-1].endswith(
        b"spool %s was removed, or is another one by now" % str(folder).encode()
    )


def test_released_segments_are_removed_in_time(ours, topic, folder):
    publish(address_of(ours), topic, range(100))
    flags = receiver_flags(folder, address_of(ours), "--retention=0s", topic=topic)
    with start_receiver(*flags) as tool:
        eventually(lambda: row_count(folder) == 100)
        publish(address_of(ours), topic, [100])
        eventually(lambda: row_count(folder) == 101)
        assert tool.end() == 0
    release_segments(folder / "r0", max(segment.number for segment in segments(folder)))
    with start_receiver(*flags) as tool:
        eventually(lambda: len(segments(folder)) == 1)
        assert tool.end() == 0
