"""Questions too expensive for the poll: a few at a time, beside it."""

import asyncio
import contextlib
import logging
import re
import time
from collections import OrderedDict, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import inf

from nsqfast.nsqadmin.cluster.answers import ChannelStats, Client, NsqdStats, stats_path
from nsqfast.nsqadmin.cluster.client import Upstream, UpstreamError
from nsqfast.nsqadmin.cluster.model import Channel, Cluster, NodeState

FIGURE_MAX = float(1 << 63)
HEAD_SIZE = 64 << 10  # its own figures come first, those of topics follow
READINGS_MAX = 15
BOUNDS_MAX = 32  # of the histogram of delays: ours has half as many
SLOPE_S_MIN = 100.0  # two readings lie a minute apart
VERSION = re.compile(r'nsqd_build_info\{nsqfast_version="([\w.+-]{1,32})"')
LAG = re.compile(r'nsqd_loop_lag_seconds_bucket\{le="([\d.]+|\+Inf)"\}')


@dataclass(frozen=True, slots=True)
class Disk:
    """Space of the file system with nsqd's data path."""

    free_bytes: float
    size_bytes: float

    @property
    def used_bytes(self) -> float:
        return max(self.size_bytes - self.free_bytes, 0.0)


@dataclass(frozen=True, slots=True)
class Reading:
    """What was said once; None for what was not."""

    at_s: float  # monotonic
    version: str  # of nsqfast
    disk: Disk | None
    open_files: float | None
    files_max: float | None
    fsyncs: tuple[float, float]  # their number, and the seconds that they took
    # An upper bound in seconds, and how many timers were not later.
    lags: tuple[tuple[float, float], ...]


class Vitals:
    """Of one nsqd, since it was started."""

    def __init__(self, start_time: int) -> None:
        self.start_time = start_time
        self._readings: deque[Reading] = deque(maxlen=READINGS_MAX)

    def add(self, reading: Reading) -> None:
        self._readings.append(reading)

    @property
    def last(self) -> Reading:
        return self._readings[-1]

    @property
    def disk(self) -> Disk | None:
        return self.last.disk

    @property
    def free_change_s(self) -> float | None:
        """Bytes a second by which the free space has changed in the last minutes; None: not known yet."""
        points = [
            (reading.at_s, reading.disk.free_bytes) for reading in self._readings if reading.disk
        ]
        if not points or points[-1][0] - points[0][0] < SLOPE_S_MIN:
            return None
        (first_s, first), (last_s, last) = points[0], points[-1]
        return (last - first) / (last_s - first_s)

    @property
    def full_in_s(self) -> float | None:
        """When its disk is full at this rate; None: never, or not known."""
        change_s, disk = self.free_change_s, self.disk
        return disk.free_bytes / -change_s if disk and change_s and change_s < 0 else None

    @property
    def fsync_s(self) -> float | None:
        """Mean of the fsyncs since the reading before, or since the start; None: there was none."""
        count, took_s = self.last.fsyncs
        if len(self._readings) > 1:
            count_before, took_before_s = self._readings[-2].fsyncs
            count, took_s = count - count_before, took_s - took_before_s
        return took_s / count if count > 0 and took_s >= 0 else None

    @property
    def lag_s(self) -> float | None:
        """The upper bound of how late a timer was since the reading before; infinite above the last bound."""
        before = dict(self._readings[-2].lags) if len(self._readings) > 1 else {}
        since = [(bound, count - before.get(bound, 0.0)) for bound, count in self.last.lags]
        steps = pairwise([(0.0, 0.0), *since])
        return max((bound for (_, less), (bound, count) in steps if count > less), default=None)


def read_vitals(metrics: bytes | bytearray, at_s: float) -> Reading | None:
    """None for anything that is not /metrics of our nsqd."""
    head = metrics[:HEAD_SIZE].decode("utf-8", "replace")
    lines = [line for line in head.split("\n")[:-1] if not line.startswith("#")]
    version = next((found[1] for line in lines if (found := VERSION.match(line))), None)
    if version is None:
        return None
    figures = dict(map(_read_figure, lines))
    lags = [(found[1], figures[name]) for name in figures if (found := LAG.fullmatch(name))]
    return Reading(
        at_s,
        version,
        _read_disk(figures),
        figures.get("process_open_fds"),
        figures.get("process_max_fds"),
        (
            figures.get("nsqd_fsync_duration_seconds_count", 0.0),
            figures.get("nsqd_fsync_duration_seconds_sum", 0.0),
        ),
        tuple((_bound(text), count) for text, count in lags[:BOUNDS_MAX]),
    )


def _bound(text: str) -> float:
    try:
        return inf if text == "+Inf" else float(text)
    except ValueError:  # 1.2.3
        return inf


def _read_figure(line: str) -> tuple[str, float]:
    name, _, text = line.rpartition(" ")
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    # None of them is below zero; one that is no number, or larger than any disk, is not known.
    return (name, value) if 0 <= value <= FIGURE_MAX else ("", 0.0)


def _read_disk(figures: Mapping[str, float]) -> Disk | None:
    size = figures.get("nsqd_disk_size_bytes")
    free = figures.get("nsqd_disk_free_bytes")
    return Disk(free, size) if size and free is not None else None


log = logging.getLogger("nsqadmin")

ASKED_PER_TICK = 4
WANTED_MAX = 1000
READY_AGE_S = 10.0  # after which it is asked again
VITALS_AGE_S = 60.0
# A broker with thousands of topics takes milliseconds to report its metrics.
VITALS_PAUSE_S = 1.0

Names = tuple[str, str, str]  # topic, channel, key of the node


@dataclass(slots=True)
class Ready:
    """Of a channel's consumers on a node the sum of their RDY, and who holds messages for longest; None: unknown.

    `letters` is the topic of its dead letters, and why that takes none; '' and '': unknown.
    """

    count: int | None
    asked_s: float  # monotonic; -inf: never
    holder: Client | None = None
    letters: tuple[str, str] = ("", "")


class Probes:
    """The RDY of consumers that have nothing in flight while messages wait, who has held messages for long, why dead
    letters are not taken, and once a minute what each nsqd says of itself on /metrics, as ours do.

    Without `upstream` nothing is asked, and nothing known.
    """

    def __init__(self, upstream: Upstream | None) -> None:
        self._upstream = upstream
        self._ready: dict[Names, Ready] = {}
        self._wanted: dict[Names, Ready] = {}
        self._vitals: dict[str, Vitals] = {}
        self._silent: dict[str, int] = {}  # nsqd without vitals: when they were started
        self._task: asyncio.Task[None] | None = None
        self._vitals_asked_s = 0.0

    def ready(self, names: Names) -> Ready:
        """Request it; nothing is known until somebody was asked."""
        ready = self._ready.get(names) or Ready(None, float("-inf"))
        if len(self._wanted) < WANTED_MAX:
            self._wanted[names] = ready
        return ready

    def vitals(self, node: str) -> Vitals | None:
        """None: not reported, or not asked yet."""
        return self._vitals.get(node)

    def has_asked_vitals(self, node: str) -> bool:
        """Whether it has answered, be it that it does not report them."""
        return node in self._vitals or node in self._silent

    def ask(self, cluster: Cluster) -> None:
        """Call this at the end of a tick. Items not requested at this tick are dropped."""
        self._ready, self._wanted = self._wanted, {}
        for known in (self._vitals, self._silent):
            for key in known.keys() - cluster.nodes.keys():
                del known[key]
        if self._upstream is None or (self._task is not None and not self._task.done()):
            return
        names, node = self._due_ready(), self._due_vitals(cluster)
        if names or node:
            self._task = asyncio.get_running_loop().create_task(
                self._ask(self._upstream, names, node)
            )

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    def _due_ready(self) -> list[Names]:
        """The ones asked longest ago."""
        oldest_s = time.monotonic() - READY_AGE_S
        due = [
            (ready.asked_s, names)
            for names, ready in self._ready.items()
            if ready.asked_s < oldest_s
        ]
        return [names for _, names in sorted(due)[:ASKED_PER_TICK]]

    def _due_vitals(self, cluster: Cluster) -> tuple[str, int] | None:
        """The nsqd asked longest ago; one at a time, and none that has shown that it does not report them."""
        now_s = time.monotonic()
        if now_s - self._vitals_asked_s < VITALS_PAUSE_S:
            return None
        due = []
        for node in cluster.nodes.values():
            known = self._vitals.get(node.key)
            is_silent = self._silent.get(node.key) == node.start_time
            if node.state is not NodeState.UP or is_silent:
                continue
            if known is None or known.start_time != node.start_time:
                due.append((float("-inf"), node.key, node.start_time))
            elif now_s - known.last.at_s > VITALS_AGE_S:
                due.append((known.last.at_s, node.key, node.start_time))
        if not due:
            return None
        self._vitals_asked_s = now_s
        _, key, start_time = min(due)
        return key, start_time

    async def _ask(
        self, upstream: "Upstream", names: list[Names], node: tuple[str, int] | None
    ) -> None:
        questions = [self._ask_ready(upstream, one) for one in names]
        if node:
            questions.append(self._ask_vitals(upstream, *node))
        await asyncio.gather(*questions)

    async def _ask_ready(self, upstream: "Upstream", names: Names) -> None:
        topic, channel, node = names
        path = stats_path(topic, channel, with_clients=True)
        channels: list[ChannelStats] = []
        clients: list[Client] = []
        try:
            stats = await upstream.read(node, path, NsqdStats)
            channels = [each for found in stats.topics or () for each in found.channels or ()]
            clients = [client for each in channels for client in each.clients or ()]
        except UpstreamError as error:
            log.debug("consumers of %s/%s: %s", topic, channel, error)
        # Gone if nobody requests it any more.
        ready = Ready(
            sum(client.ready_count for client in clients) if clients else None,
            time.monotonic(),
            max(clients, key=lambda client: client.held_ms, default=None),
            next(
                ((each.dead_letter_topic, each.dead_letter_refusal) for each in channels), ("", "")
            ),
        )
        for known in (self._ready, self._wanted):
            if names in known:
                known[names] = ready

    async def _ask_vitals(self, upstream: "Upstream", node: str, start_time: int) -> None:
        reading = None
        try:
            reading = read_vitals(await upstream.get(node, "/metrics"), time.monotonic())
        except UpstreamError as error:
            if not error.status:
                return  # it is asked again
        known = self._vitals.pop(node, None)
        self._silent.pop(node, None)
        if reading is None:
            self._silent[node] = start_time
            return
        if known is None or known.start_time != start_time:
            known = Vitals(start_time)
        known.add(reading)
        self._vitals[node] = known


WAIT_S = 0.15
NODE_TIMEOUT_S = 3.0
NODES_AT_ONCE = 16
CHANNELS_MAX = 64  # that are looked at


@dataclass(frozen=True, slots=True)
class Consumer:
    """One connection. `finish_s` is None until its second observation."""

    node: str  # key of Cluster.nodes
    client: Client
    finish_s: float | None

    @property
    def key(self) -> str:
        """Constant as long as it is connected."""
        return f"{self.node} {self.client.remote_address} {self.client.connect_ts}"


@dataclass(frozen=True, slots=True)
class NodeAnswer:
    """A node's last answer about the channel."""

    at: float  # unix time
    stats: ChannelStats
    consumers: Sequence[Consumer]


@dataclass(frozen=True, slots=True)
class Consumers:
    """Of one channel. `errors` are those of the last question, by node; a node in neither was not asked yet."""

    answers: Mapping[str, NodeAnswer] = field(default_factory=dict)
    errors: Mapping[str, str] = field(default_factory=dict)

    def all(self) -> list[Consumer]:
        return [each for _, answer in sorted(self.answers.items()) for each in answer.consumers]


class ChannelWatch:
    """One channel at which somebody looks; all viewers share the answers of a tick.

    A node that does not answer in time keeps its last answer, and is not asked again before it answers.
    """

    def __init__(self, topic: str, channel: str, upstream: Upstream) -> None:
        self._path = stats_path(topic, channel, with_clients=True)
        self._names = (topic, channel)
        self._upstream = upstream
        self._slots = asyncio.Semaphore(NODES_AT_ONCE)
        self._answers: dict[str, NodeAnswer] = {}
        self._errors: dict[str, str] = {}
        self._asking: dict[str, asyncio.Task[None]] = {}
        self._tick = -1

    async def get(self, cluster: Cluster, channel: Channel) -> Consumers:
        """Returns within WAIT_S; nodes that are down are not asked, and their last answers are gone."""
        states = {key: node.state for key, node in cluster.nodes_of(channel.parts).items()}
        known = [key for key, state in states.items() if state is not NodeState.DOWN]
        for gone in self._answers.keys() - known:
            del self._answers[gone]
        if cluster.tick != self._tick:
            self._tick = cluster.tick
            self._errors = {}
            for key in known:
                if states[key] is NodeState.UP and key not in self._asking:
                    self._ask(key)
        if self._asking:
            await asyncio.wait(list(self._asking.values()), timeout=WAIT_S)
        return Consumers(dict(self._answers), dict(self._errors))

    def stop(self) -> None:
        for task in self._asking.values():
            task.cancel()

    def _ask(self, key: str) -> None:
        task = self._asking[key] = asyncio.get_running_loop().create_task(self._read(key))
        task.add_done_callback(lambda _: self._asking.pop(key, None))

    async def _read(self, key: str) -> None:
        try:
            async with self._slots, asyncio.timeout(NODE_TIMEOUT_S):
                stats = await self._upstream.read(key, self._path, NsqdStats)
        except UpstreamError as error:
            self._errors[key] = str(error)
        except TimeoutError:
            self._errors[key] = "no answer in time"
        else:
            self._take(key, stats)

    def _take(self, key: str, stats: NsqdStats) -> None:
        channels = stats.channels_named(*self._names)
        if not channels:
            self._answers.pop(key, None)
            return
        now, last = time.time(), self._answers.get(key)
        before = {each.key: each.client.finish_count for each in last.consumers} if last else {}
        elapsed_s = now - last.at if last else 0.0
        consumers = []
        for client in channels[0].clients or ():
            one = Consumer(key, client, None)
            finished = before.get(one.key)
            if finished is not None and elapsed_s > 0:
                rate = max(0, client.finish_count - finished) / elapsed_s
                one = Consumer(key, client, rate)
            consumers.append(one)
        self._answers[key] = NodeAnswer(now, channels[0], consumers)


class ConsumerWatch:
    """The channels with viewers, at most the last CHANNELS_MAX."""

    def __init__(self, upstream: Upstream) -> None:
        self._upstream = upstream
        self._channels: OrderedDict[tuple[str, str], ChannelWatch] = OrderedDict()

    async def get(self, cluster: Cluster, channel: Channel) -> Consumers:
        """The consumers of a channel, within WAIT_S; see ChannelWatch."""
        names = (channel.topic, channel.name)
        watch = self._channels.get(names)
        if watch is None:
            watch = self._channels[names] = ChannelWatch(*names, self._upstream)
        self._channels.move_to_end(names)
        while len(self._channels) > CHANNELS_MAX:
            self._channels.popitem(last=False)[1].stop()
        return await watch.get(cluster, channel)

    def stop(self) -> None:
        for watch in self._channels.values():
            watch.stop()
