"""What is asked beside the poll: how much at a time, and what is kept of the answers; no sockets."""

import asyncio
import math
import re

import msgspec
import pytest

from nsqfast.nsqadmin.cluster.answers import NsqdStats
from nsqfast.nsqadmin.cluster.client import UpstreamError
from nsqfast.nsqadmin.cluster.model import NodeState
from nsqfast.nsqadmin.cluster.probes import (
    ASKED_PER_TICK,
    BOUNDS_MAX,
    WANTED_MAX,
    Disk,
    Probes,
    Vitals,
    read_vitals,
)
from nsqfast.nsqadmin.options import parse
from nsqfast.nsqadmin.problems.report import Problems
from support.admin_cluster import make_channel, make_cluster, make_node, make_topic

METRICS = b"""# HELP nsqd_build_info x
nsqd_build_info{nsqfast_version="0.2.0",version="1.3.0"} 1.0
nsqd_loop_lag_seconds_bucket{le="0.001"} 4.0
nsqd_loop_lag_seconds_bucket{le="0.01"} 5.0
nsqd_loop_lag_seconds_bucket{le="+Inf"} 5.0
nsqd_fsync_duration_seconds_count 10.0
nsqd_fsync_duration_seconds_sum 0.5
nsqd_disk_size_bytes 1e+10
nsqd_disk_free_bytes 2.5e+09
process_open_fds 21.0
process_max_fds 20000.0
"""


class Upstream:
    """Answers at once; keeps what was asked."""

    def __init__(self, ready=0, metrics=METRICS):
        self.ready, self.metrics = ready, metrics
        self.stats_asked, self.metrics_asked = [], []

    async def read(self, address, path, kind):
        assert kind is NsqdStats
        self.stats_asked.append((address, path))
        if self.ready is None:
            raise UpstreamError("no answer in time")
        client = b'{"ready_count": %d}' % self.ready
        return msgspec.json.decode(
            b'{"topics":[{"topic_name":"t","channels":[{"channel_name":"c","clients":[%s,%s]}]}]}'
            % (client, client),
            type=NsqdStats,
        )

    async def get(self, address, path):
        assert path == "/metrics"
        self.metrics_asked.append(address)
        if isinstance(self.metrics, Exception):
            raise self.metrics
        return self.metrics


def node(key, **changes):
    return make_node(0, key=key, **changes)


async def ask(probes, *nodes):
    """And wait for the answers."""
    probes.ask(make_cluster(nodes=nodes))
    if probes._task is not None:
        await probes._task


async def test_few_channels_are_asked_for_at_a_tick_and_each_in_its_turn():
    upstream = Upstream(ready=2)
    probes = Probes(upstream)
    names = [("t", f"c{number}", "a:1") for number in range(10)]
    for tick in range(3):
        for one in names:
            probes.ready(one)
        await ask(probes)
        assert len(upstream.stats_asked) == min(10, ASKED_PER_TICK * (tick + 1))
    assert [probes.ready(one).count for one in names] == [4] * 10
    assert len({path for _, path in upstream.stats_asked}) == 10
    probes.ask(make_cluster(nodes=[]))
    assert len(upstream.stats_asked) == 10  # they are known, for a while


async def test_what_is_not_suspicious_any_more_is_forgotten():
    probes = Probes(Upstream(ready=2))
    probes.ready(("t", "c", "a:1"))
    await ask(probes)
    assert probes.ready(("t", "c", "a:1")).count == 4
    probes.ask(make_cluster(nodes=[]))
    probes.ask(make_cluster(nodes=[]))
    assert probes._ready == {}
    assert probes.ready(("t", "c", "a:1")).count is None


async def test_a_node_that_does_not_answer_leaves_it_unknown_and_names_are_quoted():
    upstream = Upstream(ready=None)
    probes = Probes(upstream)
    names = ("t&x=1", "c#ephemeral", "a:1")
    probes.ready(names)
    await ask(probes)
    assert probes.ready(names).count is None
    [(address, path)] = upstream.stats_asked
    assert address == "a:1"
    assert path.endswith("&topic=t%26x%3D1&channel=c%23ephemeral")


def test_what_waits_for_a_question_is_bounded():
    probes = Probes(None)
    for number in range(WANTED_MAX + 50):
        probes.ready(("t", str(number), "a:1"))
    probes.ask(make_cluster(nodes=[]))
    assert len(probes._ready) == WANTED_MAX


async def test_each_node_tells_of_itself_one_at_a_time():
    upstream = Upstream()
    probes = Probes(upstream)
    nodes = node("a:1"), node("b:1"), node("c:1", state=NodeState.DOWN)
    for expected in (["a:1"], ["a:1", "b:1"], ["a:1", "b:1"]):
        probes._vitals_asked_s = 0.0
        await ask(probes, *nodes)
        assert sorted(upstream.metrics_asked) == expected
    assert probes.vitals("a:1").disk == Disk(2.5e9, 1e10)
    assert probes.vitals("c:1") is None
    probes.ask(make_cluster(nodes=[node("b:1")]))
    assert probes.vitals("a:1") is None


async def test_a_node_without_figures_is_asked_again_only_after_it_began_anew():
    upstream = Upstream(metrics=UpstreamError("got response 404", 404))
    probes = Probes(upstream)
    for start_time, expected in ((1, 1), (1, 1), (2, 2), (2, 2)):
        probes._vitals_asked_s = 0.0
        await ask(probes, node("a:1", start_time=start_time))
        assert len(upstream.metrics_asked) == expected


def looks(*pairs):
    """Of an nsqd, with a minute in between; what is replaced in METRICS each time."""
    vitals = Vitals(1)
    for number, changes in enumerate(pairs):
        metrics = METRICS
        for name, value in changes.items():
            metrics = re.sub(b"(?m)^%s .*" % re.escape(name), b"%s %b" % (name, value), metrics)
        vitals.add(read_vitals(metrics, 60.0 * number))
    return vitals


FREE, COUNT, SUM = (
    b"nsqd_disk_free_bytes",
    b"nsqd_fsync_duration_seconds_count",
    b"nsqd_fsync_duration_seconds_sum",
)
BUCKET = b'nsqd_loop_lag_seconds_bucket{le="%b"}'


def test_what_a_node_says_at_first():
    vitals = looks({})
    look = vitals.last
    assert (look.version, look.open_files, look.files_max) == ("0.2.0", 21, 20000)
    assert vitals.disk.used_bytes == 7.5e9
    assert vitals.fsync_s == 0.05
    assert vitals.lag_s == 0.01
    assert (vitals.free_change_s, vitals.full_in_s) == (None, None)


def test_what_has_changed_since_the_look_before():
    vitals = looks({}, {FREE: b"2.2e9"}, {FREE: b"1.3e9", COUNT: b"14", SUM: b"0.6"})
    assert vitals.free_change_s == -1e7
    assert vitals.full_in_s == 130
    assert vitals.fsync_s == pytest.approx(0.025)
    assert vitals.lag_s is None
    more = {BUCKET % b"+Inf": b"6"}
    assert looks({}, more).lag_s == math.inf
    assert looks({}, {BUCKET % b"0.001": b"5", BUCKET % b"0.01": b"6", **more}).lag_s == 0.001
    assert looks({}, {}).fsync_s is None
    full = looks({}, {}, {FREE: b"2.6e9"})
    assert (full.free_change_s > 0, full.full_in_s) == (True, None)


def test_what_a_node_cannot_have():
    for free, size in (
        (b"NaN", b"NaN"),
        (b"1", b"0"),
        (b"-1", b"9"),
        (b"x", b"9"),
        (b"1", b"Inf"),
        (b"1", b"1e300"),
    ):
        vitals = looks({FREE: free, b"nsqd_disk_size_bytes": size})
        assert vitals.disk is None, (free, size)
    assert looks({COUNT: b"-5", SUM: b"nan"}, {}).fsync_s == 0.05
    assert looks({}, {COUNT: b"3"}).fsync_s is None  # it went back
    assert looks({}, {FREE: b"x"}, {FREE: b"9e9"}).free_change_s is not None


def test_no_more_of_a_node_is_kept_than_one_of_ours_says():
    lines = [b'nsqd_loop_lag_seconds_bucket{le="%d"} 1' % number for number in range(1000)]
    odd = b'nsqd_loop_lag_seconds_bucket{le="1.2.3"} 1'
    look = read_vitals(b"\n".join([METRICS.splitlines()[1], odd, *lines, b""]), 0.0)
    assert len(look.lags) == BOUNDS_MAX
    assert look.lags[0] == (math.inf, 1)


def test_what_is_no_answer_of_ours():
    for metrics in (b"", b"404 page not found\n", b"\nnsqd_disk_free_bytes 1\n", b"\xff" * 99):
        assert read_vitals(metrics, 0.0) is None, metrics
    for version in (b"x" * 33, b"<b>", b""):
        assert read_vitals(METRICS.replace(b"0.2.0", version), 0.0) is None, version
    assert read_vitals(b"#" * (64 << 10) + b"\n" + METRICS, 0.0) is None  # its own come first


def crowd(tick, count=5000):
    channels = [make_channel("t", f"c{number}", nodes=["a:1"], depth=1) for number in range(count)]
    topic = make_topic("t", channels, nodes=["a:1"])
    return make_cluster([topic], [node("a:1")], tick=tick, at=1e9 + tick)


async def test_a_large_cluster_is_judged_while_others_run_and_the_newest_tick_is_next():
    problems = Problems(parse(["--problem-no-consumers=0s"]))
    problems.take(crowd(1))
    await problems.stop()  # in the middle
    assert problems.tick == 0
    problems = Problems(parse(["--problem-no-consumers=0s"]))
    problems.take(crowd(1))
    assert problems.tick == 0
    for tick in (2, 3):
        problems.take(crowd(tick))
    turns, ticks = 0, set()
    async with asyncio.timeout(50):
        while problems.tick < 3:
            await asyncio.sleep(0)
            turns += 1
            ticks.add(problems.tick)
    assert turns > 3
    assert ticks == {0, 1, 3}
    assert problems.total == 5000
    await problems.stop()
