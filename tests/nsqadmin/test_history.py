"""Rings for charts: what they know of each entity, compared with a list that keeps everything."""

import asyncio
import io
import logging
import math
import random
import time
import zipfile
from dataclasses import replace

import numpy as np
import pytest

from nsqfast.net.slices import Slices
from nsqfast.nsqadmin.cluster import history_tables
from nsqfast.nsqadmin.cluster.answers import UncleanStartFigures
from nsqfast.nsqadmin.cluster.history import History
from nsqfast.nsqadmin.cluster.history_tables import BLOCK, HistoryTable, Steps
from nsqfast.nsqadmin.cluster.model import NodeState, Rates
from nsqfast.nsqadmin.options import Options
from support.admin_cluster import make_channel, make_cluster, make_node, make_topic
from support.admin_history import finish, take
from support.seeds import seeds

START = 1_800_000_000.0
NODE = "127.0.0.1:4151"


def channel(topic="t", name="c", rates=None, **counts):
    return make_channel(topic, name, nodes=[NODE], rates=rates, **counts)


def cluster(at, *channels, state=NodeState.UP, start_time=1):
    """Of one node; what comes into a topic is what comes into its last channel."""
    topics = {}
    for one in channels:
        topics.setdefault(one.topic, []).append(one)
    given = [
        make_topic(name, found, nodes=[NODE], rates=found[-1].rates or Rates(0.0))
        for name, found in topics.items()
    ]
    known = make_node(
        0, state, key=NODE, start_time=start_time, rates=Rates(0.0), memory_bytes=1000
    )
    made = make_cluster(given, [known], at=at)
    return replace(made, totals=replace(made.totals, in_s=1.0, out_s=2.0))


def size_bytes(history):
    """Of all rings."""
    rings = [ring for table in history.tables for ring in (table.fine, table.coarse)]
    arrays = [array for ring in rings for array in (*ring.blocks, ring.counts)]
    return sum(array.nbytes for array in arrays if array is not None)


def run(history, seconds, make, step=2.0, start=START):
    """Ticks of a channel whose state at each second `make` says; the last channel."""
    for at in np.arange(start, start + seconds + step / 2, step).tolist():
        last = make(at - start)
        tick = take(history, cluster(at, last))
    return tick.channel(last.topic, last.name)


def test_a_series_has_the_means_of_its_steps_and_what_is_now():
    history = History(Options())
    run(history, 60, lambda s: channel(rates=Rates(s, 2.0, 3.0, 4.0), depth=10, backend_depth=4))
    series = history.series(("channel", "t", "c"), 900)
    assert series.step_s == 10
    assert series.times.tolist() == [START + s for s in (10, 20, 30, 40, 50, 60, 60)]
    assert series.columns["in_s"].tolist() == [4, 14, 24, 34, 44, 54, 60]
    assert set(series.columns["memory_depth"].tolist()) == {6}
    assert set(series.columns["backend_depth"].tolist()) == {4}
    assert series.columns["out_s"].dtype == np.float32
    assert history.series((), 900).columns["out_s"].tolist() == [2.0] * 7
    assert history.series(("node", NODE), 900).columns["memory"].tolist() == [1000.0] * 7


def test_what_is_not_known_is_a_gap_and_no_zero():
    history = History(Options())
    for s in range(0, 62, 2):
        state = NodeState.STALE if 20 <= s < 40 else NodeState.UP
        take(history, cluster(START + s, channel(rates=Rates(5.0), depth=1), state=state))
    for key in ((), ("topic", "t"), ("channel", "t", "c"), ("node", NODE)):
        rates = history.series(key, 900).columns["in_s"]
        assert [math.isnan(value) for value in rates] == [False] * 2 + [True] * 2 + [False] * 3
    assert history.series(("channel", "t", "other"), 900).times.tolist() == []


def test_a_long_pause_is_a_gap_and_a_short_one_is_not():
    history = History(Options())
    for at in (0, 2, 25, 27, 90, 92, 101):
        take(history, cluster(START + at, channel(rates=Rates(1.0), depth=1)))
    rates = history.series(("channel", "t", "c"), 900).columns["in_s"]
    expected = [1, 1, 1, None, None, None, None, None, None, 1, 1]
    assert [None if math.isnan(value) else value for value in rates] == expected


def test_a_day_is_read_from_the_coarse_ring():
    history = History(Options(history_ns=2 * 3600 * 10**9))
    run(history, 3 * 3600, lambda s: channel(rates=Rates(s // 60), depth=1), step=10.0)
    series = history.series(("channel", "t", "c"), 24 * 3600)
    assert series.step_s == 60
    assert len(series.times) == 121
    assert series.columns["in_s"][:3].tolist() == [59, 60, 61]


def test_the_slope_is_that_of_the_last_five_minutes():
    history = History(Options())
    last = run(history, 600, lambda s: channel(rates=Rates(9.0), depth=int(max(0, s - 200) * 3)))
    assert last.depth_slope == pytest.approx(3.0, rel=0.01)
    points = history.sparkline(("channel", "t", "c"))
    both = history.sparkline(("channel", "t", "c"), ("channel", "t", "c"), ("topic", "no"))
    assert both == [None if point is None else 2 * point for point in points]
    assert (len(points), points[:25]) == (30, [None] * 25)
    assert points[-1] == pytest.approx((540 - 200) * 3, abs=30)


def test_the_slope_is_right_over_a_gap_and_unknown_when_young():
    history = History(Options())
    young = run(history, 15, lambda s: channel(rates=Rates(9.0), depth=int(s * 3)))
    assert young.depth_slope is None
    later = run(
        history, 300, lambda s: channel(rates=Rates(9.0), depth=int(s + 120) * 3), start=START + 120
    )
    assert later.depth_slope == pytest.approx(3.0, rel=0.01)


def test_a_fall_that_is_a_loss_has_no_slope():
    """Nothing was finished: for five minutes nothing is said of how fast it drains, even if somebody knows by then."""
    history = History(Options())

    def slope_at(second, lost=None):
        made = channel(rates=Rates(9.0), depth=900 if second < 100 else 0)
        tick = cluster(START + second, made, start_time=int(START) + 100)
        node = replace(tick.nodes[NODE], unclean_start=lost)
        return take(history, replace(tick, nodes={NODE: node})).channel("t", "c").depth_slope

    assert [slope_at(second) for second in range(0, 100, 10)][-1] == 0
    assert slope_at(110, UncleanStartFigures(900)) is None
    assert {slope_at(second) for second in range(120, 400, 10)} == {None}
    assert slope_at(410) == 0


def test_the_oldest_age_of_a_stopped_consumer_is_within_one_step():
    history = History(Options())
    for stop in (100, 333, 1000, 3000):

        def make(s, stop=stop):
            count = int(7 * s)
            return channel(rates=Rates(7.0), message_count=count, depth=max(0, count - 7 * stop))

        history = History(Options())
        last = run(history, stop + 400, make)
        assert last.oldest_s == pytest.approx(400, abs=10)
        assert not last.oldest_is_minimum


@pytest.mark.soak
def test_the_oldest_age_beyond_the_fine_ring_comes_from_the_coarse_one():
    history = History(Options(history_ns=4 * 3600 * 10**9))

    def make(s):
        count = int(5 * s)
        return channel(rates=Rates(5.0), message_count=count, depth=max(0, count - 5 * 3600))

    last = run(history, 3 * 3600, make, step=5.0)
    assert last.oldest_s == pytest.approx(2 * 3600, abs=60)
    assert not last.oldest_is_minimum
    last = run(history, 6 * 3600, lambda s: make(s + 3 * 3600), step=5.0, start=START + 3 * 3600)
    assert last.oldest_is_minimum
    assert last.oldest_s == pytest.approx(4 * 3600, abs=120)


def test_what_waited_before_we_came_is_at_least_as_old_as_we_are():
    history = History(Options())
    flow = Rates(1.0)
    last = run(
        history, 100, lambda s: channel(rates=flow, message_count=int(s) + 5, depth=500 + int(s))
    )
    assert last.oldest_is_minimum
    assert last.oldest_s == pytest.approx(100, abs=10)
    empty = run(history, 2, lambda _: channel(rates=flow, message_count=200), start=START + 102)
    assert (empty.oldest_s, empty.oldest_is_minimum) == (None, False)


def test_counts_that_begin_anew_or_jump_do_not_spoil_the_age():
    history = History(Options())

    def make(s):
        count = 10 * int(s)
        jump = 1_000_000 if 100 < s <= 150 else -10 * 150 if s > 150 else 0
        return channel(rates=Rates(10.0), message_count=count + jump, depth=max(0, count - 500))

    last = run(history, 350, make)
    assert last.oldest_s == pytest.approx(300, abs=10)


def test_marks_belong_to_what_they_are_about():
    history = History(Options())
    at = time.time()
    for start_time in (7, 7, 8):
        take(history, cluster(at, channel(rates=Rates(1.0)), start_time=start_time))
    history.mark("empty by ana", ("channel", "t", "c"))
    assert [m.text for m in history.series(("channel", "t", "c"), 900).marks] == [
        f"nsqd w1 ({NODE}) restarted",
        "empty by ana",
    ]
    assert len(history.series(("topic", "t"), 900).marks) == 2
    assert len(history.series(("node", NODE), 900).marks) == 1
    assert len(history.series((), 900).marks) == 2


def test_steps_grow_until_everything_fits_and_what_was_known_stays():
    history = History(Options(history_memory=24 << 20))
    run(history, 120, lambda s: channel(rates=Rates(3.0), depth=2))
    assert history.channels.fine.step_s == 10
    sizes = []
    for at in range(122, 160, 2):
        many = [channel("t", f"c{n}", Rates(3.0), depth=2) for n in range(600)]
        take(history, cluster(START + at, channel(rates=Rates(3.0), depth=2), *many))
        sizes.append(size_bytes(history))
    assert history.channels.fine.step_s > 10
    assert max(sizes) <= 24 << 20
    series = history.series(("channel", "t", "c"), 900)
    assert series.times[0] <= START + 20
    assert set(series.columns["in_s"].tolist()) == {3.0}


def test_without_room_the_rest_has_no_history_and_one_line_says_so(caplog):
    history = History(Options(history_memory=2 << 20))
    many = [channel("t", f"c{n}", Rates(3.0), depth=2) for n in range(5 * BLOCK)]
    for at in range(0, 30, 2):
        take(history, cluster(START + at, *many))
    assert size_bytes(history) <= 2 << 20
    assert len([r for r in caplog.records if "--history-memory" in r.message]) == 1


def test_entities_that_come_and_go_reuse_slots_and_inherit_nothing():
    history = History(Options())
    sizes = []
    for turn in range(20):
        at = START + turn * 700
        for tick in range(3):
            fleeting = [
                channel("t", f"c{turn}-{n}", Rates(1.0 + turn), depth=turn) for n in range(200)
            ]
            take(history, cluster(at + tick * 10, *fleeting))
        sizes.append(size_bytes(history))
        series = history.series(("channel", "t", f"c{turn}-7"), 3600)
        known = series.columns["in_s"][~np.isnan(series.columns["in_s"])]
        assert set(known.tolist()) == {1.0 + turn}
    assert len(set(sizes[2:])) == 1
    assert history.channels.capacity <= 200 + BLOCK


@pytest.mark.parametrize("seed", seeds("history rings", 3))
def test_rings_know_what_a_list_of_all_ticks_knows(seed):
    print("seed", seed)
    rolls = random.Random(seed)
    table = HistoryTable(("a", "b"), Steps(10, 36, 60, 20), has_counts=False)
    slices = Slices()
    kept = {}
    now, steps = START, {}
    for _ in range(rolls.randrange(100, 600)):
        now += rolls.choice([1, 2, 2, 2, 5, 29, 31, 200])
        alive = sorted(rolls.sample(range(40), rolls.randrange(1, 40)))
        keys = [("topic", str(n)) for n in alive]
        values = np.array([[rolls.choice([1.0, 2.0, math.nan]), rolls.random()] for _ in keys])
        if finish(table.missing(keys, now, slices)):
            finish(table.grow(1, slices))
        previous = table.at
        finish(table.take(keys, values, None, now, slices))
        step = int(now // 10)
        if previous and now - previous <= 30:
            for missed in range(int(previous // 10) + 1, step):
                steps[missed] = [dict(zip(keys, values.tolist(), strict=True))]
        steps.setdefault(step, []).append(dict(zip(keys, values.tolist(), strict=True)))
        kept.update(dict.fromkeys(keys))
    last = int(now // 10)
    assert table.fine.last in {last - 1, max(s for s in steps if s < last)}
    for key in kept:
        found = table.fine.read(table.slots[key], 36)
        begin = table.fine.last - len(found) + 1
        for offset, row in enumerate(found.tolist()):
            ticks = [tick[key] for tick in steps.get(begin + offset, []) if key in tick]
            for column, value in enumerate(row):
                known = [tick[column] for tick in ticks if not math.isnan(tick[column])]
                expected = sum(known) / len(known) if known else math.nan
                assert value == pytest.approx(expected, nan_ok=True), (key, begin + offset)


def test_a_tick_of_many_is_taken_a_part_at_a_time(monkeypatch):
    sizes = []

    class Watched(HistoryTable):
        def _count(self, index, *more):
            sizes.append(len(index))
            super()._count(index, *more)

        def means(self, slots):
            found = super().means(slots)
            sizes.append(len(found))
            return found

    monkeypatch.setattr(history_tables, "KEYS_AT_ONCE", 50)
    table, slices = Watched(("in_s", "x"), Steps(10, 36, 60, 20), has_counts=True), Slices()
    keys = [("topic", str(number)) for number in range(4 * BLOCK)]
    finish(table.grow(4, slices))
    counts = np.arange(len(keys), dtype=np.float64)
    values = np.column_stack([np.ones(len(keys)), counts])
    for now in (START, START + 10, START + 20):
        finish(table.take(keys, values, counts, now, slices))
    assert set(sizes) == {50, len(keys) % 50, BLOCK}
    assert table.totals.tolist() == [counts[keys.index(key)] for key in table.slots]
    for number in (0, 49, 50, len(keys) - 1):
        assert table.fine.read(table.slots[keys[number]], 2).tolist() == [[1.0, number]] * 2


async def live_on(path, **settings):
    """What a history begins with."""
    history = History(Options(history_file=str(path), **settings))
    await history.start()
    await history.stop()
    return history


def test_the_file_brings_everything_back(tmp_path):
    path = tmp_path / "history"
    before = History(Options(history_file=str(path)))

    def make(s):
        return channel(rates=Rates(s), message_count=int(s), depth=30)

    run(before, 7200, make, step=10.0)
    before.mark("here")
    asyncio.run(before.save())
    after = asyncio.run(live_on(path))
    for key in (("channel", "t", "c"), ("topic", "t"), (), ("node", NODE)):
        for range_s in (3600, 86400):
            old, new = before.series(key, range_s), after.series(key, range_s)
            # The oldest rows may be written over while the file is.
            shared = min(len(old.times), len(new.times)) - 1
            assert shared >= len(old.times) - 6
            for name, column in old.columns.items():
                kept = new.columns[name][-shared - 1 : -1].tolist()
                assert kept == column[-shared - 1 : -1].tolist()
    assert [mark.text for mark in after.marks] == ["here"]

    # The total goes on where it was, so ages do, too.
    def go_on(s):
        return channel(rates=Rates(1.0), message_count=7201 + int(s), depth=100)

    assert run(after, 60, go_on, start=START + 7201).oldest_s == pytest.approx(100, abs=11)
    small = asyncio.run(live_on(path, history_memory=8 << 20))
    assert size_bytes(small) <= 8 << 20
    assert len(small.series(("channel", "t", "c"), 3600).times) > 10


def with_shape(path, shape):
    """The same, but an array's header, which numpy takes for a literal of Python, says this."""
    changed = io.BytesIO()
    with zipfile.ZipFile(path) as archive, zipfile.ZipFile(changed, "w") as other:
        for name in archive.namelist():
            data = archive.read(name)
            place, end = data.find(b"(") if name.endswith(".npy") else -1, data.find(b"}")
            if place >= 0:
                text = f"{shape}, }}".encode("latin-1")
                data = data[:place] + text.ljust(end + 1 - place) + data[end + 1 :]
            other.writestr(name, data)
    return changed.getvalue()


def test_a_damaged_or_foreign_file_is_one_warning(tmp_path, caplog):
    path = tmp_path / "history"
    first = History(Options(history_file=str(path)))
    run(first, 60, lambda s: channel(rates=Rates(1.0), depth=1))
    asyncio.run(first.save())
    whole = path.read_bytes()
    [seed] = seeds("history file", 1)
    print("seed", seed)
    rolls = random.Random(seed)
    damaged = [b"", b"hello", whole[: len(whole) // 2], b"PK\x05\x06" + bytes(18)]
    damaged += [with_shape(path, shape) for shape in ("\xd7", "(", "{[]: 0}", "1 + 'a'")]
    for _ in range(20):
        place = rolls.randrange(len(whole))
        damaged.append(whole[:place] + bytes([whole[place] ^ 0xFF]) + whole[place + 1 :])
    for data in damaged:
        path.write_bytes(data)
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            history = asyncio.run(live_on(path))
        lines = [record.getMessage() for record in caplog.records]
        if lines:
            assert len(lines) == 1
            assert str(path) in lines[0]
            assert history.channels.capacity == 0
        else:  # a byte that says nothing, a time stamp of zip for example
            assert history.channels.capacity == BLOCK


def test_a_file_that_is_something_else_is_not_written_over(tmp_path, caplog):
    path = tmp_path / "passwd"
    path.write_text("root:x:0:0")

    asyncio.run(live_on(path))
    assert path.read_text() == "root:x:0:0"
    assert len(caplog.records) == 1
