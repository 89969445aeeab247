"""Offsets, what waits behind one, what a batch takes of it, and how that is divided into tasks."""

import itertools
import os
import random
import shutil

import pytest

from nsqfast.spark.source import listing as listing_module
from nsqfast.spark.source.listing import Listing
from nsqfast.spark.source.offsets import (
    TASK_SIZE_MIN,
    Limit,
    LossPolicy,
    Offset,
    admit,
    divide,
    find_waiting,
    segments_between,
)
from nsqfast.spark.spool.identity import Identity, SpoolError, read_identity
from nsqfast.spark.spool.release import release_segments, remove_done
from nsqfast.spark.spool.segments import Segment
from nsqfast.spark.spool.writer import SegmentWriter
from support.seeds import seeds
from support.segments import make_batch, seal

STRICT = LossPolicy(is_strict=True)


@pytest.fixture
def spool(tmp_path):
    return tmp_path / "spool"


@pytest.fixture
def lenient(caplog):
    return LossPolicy(is_strict=False)


def offset(spool, **numbers):
    return Offset(read_identity(spool), numbers)


def waiting_numbers(spool, start, loss=STRICT, listing=None):
    begin, waiting = find_waiting(spool, listing or Listing(spool), start, loss)
    return dict(begin.numbers), {
        name: [segment.number for segment in segments] for name, segments in waiting.items()
    }


# -- offsets


def test_an_offset_survives_the_checkpoint():
    given = Offset(Identity("a,b", "spark", "e"), {"r1": 15, "r0": 46})
    fields = given.to_json()
    assert fields == {
        "v": 1,
        "epoch": "e",
        "subscription": "a,b",
        "channel": "spark",
        "spools": {"r0": 46, "r1": 15},
    }
    assert list(fields["spools"]) == ["r0", "r1"]
    assert Offset.from_json(fields) == given


@pytest.mark.parametrize("fields", [{}, {"v": 1}, {"v": 1, "spools": 3}, [], None])
def test_what_is_no_offset_of_ours(fields):
    with pytest.raises(SpoolError, match="the checkpoint is not one of the nsq source"):
        Offset.from_json(fields)


def test_an_offset_of_a_later_version():
    with pytest.raises(SpoolError, match="another version of nsqfast"):
        Offset.from_json({"v": 2})


def test_a_checkpoint_of_another_topic():
    given = Offset(Identity("orders", "spark", "e"), {})
    with pytest.raises(SpoolError, match="is of orders of channel spark, not of users of channel"):
        given.check_subscription("users", "spark")


# -- what waits


def test_what_waits_behind_an_offset(spool):
    seal(spool, [10] * 4)
    seal(spool, [10] * 2, "r1")
    assert waiting_numbers(spool, offset(spool)) == ({}, {"r0": [1, 2, 3, 4], "r1": [1, 2]})
    assert waiting_numbers(spool, offset(spool, r0=3, r1=2)) == (
        {"r0": 3, "r1": 2},
        {"r0": [4], "r1": []},
    )


def test_a_new_query_begins_behind_what_was_released(spool):
    seal(spool, [10] * 4)
    release_segments(spool / "r0", 3)
    assert waiting_numbers(spool, offset(spool)) == ({}, {"r0": [4]})


def test_a_checkpoint_that_was_set_back_finds_what_was_released(spool):
    seal(spool, [10] * 4)
    release_segments(spool / "r0", 3)
    assert waiting_numbers(spool, offset(spool, r0=1))[1] == {"r0": [2, 3, 4]}
    release_segments(spool / "r0", 4)
    assert waiting_numbers(spool, offset(spool, r0=1))[1] == {"r0": [2, 3, 4]}


def test_segments_before_a_gap_come_first(spool):
    segments = seal(spool, [10] * 5)
    segments[2].path.unlink()
    assert waiting_numbers(spool, offset(spool))[1] == {"r0": [1, 2]}
    with pytest.raises(SpoolError, match=r"segment 3 of \S+/r0 is gone.*failOnDataLoss=false"):
        waiting_numbers(spool, offset(spool, r0=2))


def test_a_gap_that_is_accepted(spool, lenient, caplog):
    segments = seal(spool, [10] * 5)
    segments[2].path.unlink()
    for _ in range(2):
        assert waiting_numbers(spool, offset(spool, r0=2), lenient)[1] == {"r0": [4, 5]}
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "segment 3 of" in caplog.text


def test_all_that_was_to_come_is_gone(spool, lenient):
    seal(spool, [10] * 5)
    release_segments(spool / "r0", 5)
    remove_done(spool / "r0", -1, 0)
    with pytest.raises(SpoolError, match="segments 3 to 4 of"):
        waiting_numbers(spool, offset(spool, r0=2))
    # The last one stays.
    assert waiting_numbers(spool, offset(spool, r0=2), lenient)[1] == {"r0": [5]}


def test_a_folder_that_was_emptied(spool, lenient):
    seal(spool, [10] * 5)
    shutil.rmtree(spool / "r0")
    with pytest.raises(SpoolError, match="ends before segment 5, which the checkpoint has read"):
        waiting_numbers(spool, offset(spool, r0=5))
    seal(spool, [10, 10])
    assert waiting_numbers(spool, offset(spool, r0=5), lenient) == ({"r0": 0}, {"r0": [1, 2]})


def test_a_segment_that_a_listing_passed_over(spool, monkeypatch):
    """Folders may be listed while names are added: a later one may be seen, and an earlier one not."""
    seal(spool, [10] * 3)
    parse = listing_module.parse_segment
    monkeypatch.setattr(
        listing_module,
        "parse_segment",
        lambda folder, name: None if name.startswith("0000000000000002-") else parse(folder, name),
    )
    assert waiting_numbers(spool, offset(spool))[1] == {"r0": [1, 2, 3]}


# -- the listing


def test_a_listing_sees_what_changed_and_reads_nothing_else(spool, monkeypatch):
    seal(spool, [10] * 2)
    listing = Listing(spool)
    now_ns = (spool / "r0").stat().st_mtime_ns + 10 * listing_module.CLOCK_TICK_NS
    monkeypatch.setattr(listing_module.time, "time_ns", lambda: now_ns)
    assert [segment.number for segment in refreshed(listing).segments_after("r0", 0)] == [1, 2]
    with monkeypatch.context() as patch:
        patch.setattr(listing_module._Folder, "take_names", None)
        assert [segment.number for segment in refreshed(listing).segments_after("r0", 1)] == [2]
    seal(spool, [10])
    assert [segment.number for segment in refreshed(listing).segments_after("r0", 1)] == [2, 3]
    release_segments(spool / "r0", 2)
    assert refreshed(listing).released("r0") == 2
    assert [segment.number for segment in refreshed(listing).segments_after("r0", 2)] == [3]


def test_a_change_in_the_same_tick_of_the_clock_is_seen(spool):
    seal(spool, [10])
    listing = Listing(spool)
    stamp = (spool / "r0").stat().st_mtime_ns
    assert len(refreshed(listing).segments_after("r0", 0)) == 1
    seal(spool, [10])
    os.utime(spool / "r0", ns=(stamp, stamp))
    assert len(refreshed(listing).segments_after("r0", 0)) == 2


def test_a_folder_that_cannot_be_read(spool):
    seal(spool, [10])
    (spool / "r0" / "RELEASED").write_text("many")
    with pytest.raises(SpoolError, match="RELEASED does not hold a number"):
        refreshed(Listing(spool)).segments_after("r0", 0)
    with pytest.raises(SpoolError, match="no such file or directory"):
        Listing(spool / "nowhere").refresh()


# -- what a batch takes


def set_times(segments, times_s):
    for segment, time_s in zip(segments, times_s, strict=True):
        os.utime(segment.path, (time_s, time_s))


def test_everything_fits(spool):
    waiting = {"r0": seal(spool, [10] * 3), "r1": seal(spool, [10], "r1"), "r2": []}
    assert admit(waiting, Limit()) == {"r0": 3, "r1": 1}
    assert admit(waiting, Limit(40)) == {"r0": 3, "r1": 1}


def test_whole_segments_up_to_a_limit(spool):
    waiting = {"r0": seal(spool, [10] * 5)}
    sizes = [segment.size for segment in waiting["r0"]]
    assert admit(waiting, Limit(25)) == {"r0": 2}
    assert admit(waiting, Limit(30)) == {"r0": 3}
    assert admit(waiting, Limit(1)) == {"r0": 1}
    assert admit(waiting, Limit(None, sum(sizes[:2]))) == {"r0": 2}
    assert admit(waiting, Limit(49, sum(sizes[:3]))) == {"r0": 3}
    assert admit({"r0": []}, Limit(1)) == {}


def test_the_oldest_come_first_over_all_receivers(spool):
    waiting = {"r0": seal(spool, [10] * 4), "r1": seal(spool, [10] * 4, "r1")}
    set_times(waiting["r0"], [100, 110, 120, 130])
    set_times(waiting["r1"], [105, 106, 107, 125])
    assert admit(waiting, Limit(10)) == {"r0": 1}
    assert admit(waiting, Limit(50)) == {"r0": 2, "r1": 3}
    assert admit(waiting, Limit(70)) == {"r0": 3, "r1": 4}


def test_a_segment_that_vanished_stops_nobody(spool):
    waiting = {"r0": seal(spool, [10] * 2), "r1": seal(spool, [10] * 2, "r1")}
    waiting["r1"][0].path.unlink()
    assert admit(waiting, Limit(10)) == {"r1": 1}


# -- segments between two offsets


def refreshed(listing):
    listing.refresh()
    return listing


def numbers_between(spool, start, end, loss=STRICT):
    return [
        (segment.folder.name, segment.number)
        for segment in segments_between(spool, Listing(spool), start, end, loss)
    ]


def test_segments_between(spool):
    seal(spool, [10] * 4)
    seal(spool, [10] * 2, "r1")
    assert numbers_between(spool, offset(spool, r0=1), offset(spool, r0=3, r1=1)) == [
        ("r0", 2),
        ("r0", 3),
        ("r1", 1),
    ]
    assert numbers_between(spool, offset(spool, r0=3), offset(spool, r0=3)) == []


def test_a_first_batch_begins_behind_what_was_released(spool):
    seal(spool, [10] * 4)
    release_segments(spool / "r0", 2)
    assert numbers_between(spool, offset(spool), offset(spool, r0=4)) == [("r0", 3), ("r0", 4)]
    # A receiver that came later, in whose folder there is nothing new.
    seal(spool, [10], "r1")
    release_segments(spool / "r1", 1)
    assert numbers_between(spool, offset(spool, r0=3), offset(spool, r0=4, r1=1)) == [("r0", 4)]


def test_a_checkpoint_that_was_set_back_to_its_first_batch(spool):
    seal(spool, [10] * 4)
    release_segments(spool / "r0", 4)
    assert numbers_between(spool, offset(spool), offset(spool, r0=2)) == [("r0", 1), ("r0", 2)]


def test_missing_segments_are_named(spool, lenient, caplog):
    segments = seal(spool, [10] * 9)
    for number in (2, 5, 6, 7):
        segments[number - 1].path.unlink()
    with pytest.raises(SpoolError, match=r"segments 2, 5 to 7 of \S+/r0 are gone") as caught:
        numbers_between(spool, offset(spool), offset(spool, r0=9))
    assert "with failOnDataLoss=false what is there is read" in str(caught.value)
    found = numbers_between(spool, offset(spool), offset(spool, r0=9), lenient)
    assert [number for _, number in found] == [1, 3, 4, 8, 9]
    assert "segments 2, 5 to 7 of" in caplog.text


def test_the_name_of_many_gaps_is_short(spool):
    segments = seal(spool, [1] * 60)
    for segment in segments[::2]:
        segment.path.unlink()
    with pytest.raises(SpoolError, match="and 20 more ranges of"):
        numbers_between(spool, offset(spool), offset(spool, r0=60))


# -- tasks


def make_segments(tmp_path, sizes):
    return [Segment(tmp_path / "r0", number, 1, size) for number, size in enumerate(sizes, 1)]


@pytest.mark.parametrize("seed", seeds("tasks of the source", 50))
def test_tasks_have_about_the_same_size(tmp_path, seed):
    chance = random.Random(seed)
    sizes = [chance.randrange(1, 1 << 20) for _ in range(chance.randrange(1, 50))]
    count = chance.randrange(1, 10)
    tasks = divide(make_segments(tmp_path, sizes), count)
    assert len(tasks) == min(count, len(sizes))
    numbers = [[segment.number for segment in task] for task in tasks]
    assert all(each == sorted(each) for each in numbers)
    assert sorted(itertools.chain(*numbers)) == list(range(1, len(sizes) + 1))
    loads = [sum(segment.size for segment in task) for task in tasks]
    assert max(loads) - min(loads) <= max(sizes)


def test_small_segments_are_not_worth_many_tasks(tmp_path, monkeypatch):
    monkeypatch.setattr("nsqfast.spark.source.offsets.count_cores", lambda: 8)
    assert len(divide(make_segments(tmp_path, [100] * 50), None)) == 1
    assert len(divide(make_segments(tmp_path, [TASK_SIZE_MIN] * 3), None)) == 3
    assert len(divide(make_segments(tmp_path, [TASK_SIZE_MIN] * 30), None)) == 8
    assert len(divide(make_segments(tmp_path, [100] * 50), 4)) == 4
    assert divide([], None) == []


def test_thousands_of_segments(spool):
    """What a trigger does is some milliseconds of work, of which this allows half a second."""
    seal(spool, [1])
    for number in range(2, 3_001):
        (spool / "r0" / f"{number:016d}-r1-b100.arrow").touch()
    listing = Listing(spool)
    assert refreshed(listing).last("r0") == 3_000
    (spool / "r0" / "0000000000003001-r1-b100.arrow").touch()
    began = os.times().user + os.times().system
    _, waiting = find_waiting(spool, listing, offset(spool, r0=1), STRICT)
    assert admit(waiting, Limit(2_000)) == {"r0": 2_001}
    assert len(divide(waiting["r0"], 2)) == 2
    assert os.times().user + os.times().system - began < 0.5


def test_a_writer_goes_on_where_it_was(spool):
    """What this rests on: numbers rise by one, also after everything was released and removed."""
    seal(spool, [10] * 3)
    release_segments(spool / "r0", 3)
    remove_done(spool / "r0", -1, 0)
    writer = SegmentWriter.open(spool, "r0")
    assert writer.seal([make_batch(0, 1)]).number == 4
    writer.close()
