"""Queries too expensive for the poll: a few at a time, beside it.

consumers           of channels with waiting messages whose consumers have nothing in flight: their RDY; and of those
                    with one that has held messages for long: who it is
free disk space     of each nsqd that reports it on /metrics, as ours do; once a minute
"""

import asyncio
import contextlib
import logging
import time
from dataclasses import dataclass
from urllib.parse import quote

from nsqfast.nsqadmin.live.model import Cluster, NodeState
from nsqfast.nsqadmin.upstream.client import Upstream, UpstreamError
from nsqfast.nsqadmin.upstream.messages import Client, NsqdStats

log = logging.getLogger("nsqadmin")

ASKED_PER_TICK = 4
WANTED_MAX = 1000
READY_AGE_S = 10.0  # after which it is asked again
DISK_AGE_S = 60.0
# A broker with thousands of topics takes milliseconds to report its metrics.
DISK_PAUSE_S = 1.0

DISK_FREE, DISK_SIZE = b"\nnsqd_disk_free_bytes ", b"\nnsqd_disk_size_bytes "

Names = tuple[str, str, str]  # topic, channel, key of the node


@dataclass(slots=True)
class Ready:
    """Of a channel's consumers on a node the sum of their RDY, and who holds messages for longest; None: unknown."""

    count: int | None
    asked_s: float  # monotonic; -inf: never
    holder: Client | None = None


@dataclass(frozen=True, slots=True)
class Disk:
    """Free space of the file system with nsqd's data path."""

    free_bytes: float
    size_bytes: float


@dataclass(slots=True)
class _Measured:
    disk: Disk | None  # None: not reported
    start_time: int  # of the nsqd that was asked; another one may report something else
    asked_s: float


class Probes:
    """Without `upstream` nothing is asked, and nothing known."""

    def __init__(self, upstream: Upstream | None) -> None:
        self._upstream = upstream
        self._ready: dict[Names, Ready] = {}
        self._wanted: dict[Names, Ready] = {}
        self._disks: dict[str, _Measured] = {}
        self._task: asyncio.Task[None] | None = None
        self._disk_asked_s = 0.0

    def ready_count(self, topic: str, channel: str, node: str) -> int | None:
        """Request it; None until somebody was asked."""
        return self._request((topic, channel, node)).count

    def holder(self, topic: str, channel: str, node: str) -> Client | None:
        """Likewise."""
        return self._request((topic, channel, node)).holder

    def _request(self, names: Names) -> Ready:
        ready = self._ready.get(names) or Ready(None, float("-inf"))
        if len(self._wanted) < WANTED_MAX:
            self._wanted[names] = ready
        return ready

    def disk(self, node: str) -> Disk | None:
        """None: not reported, or not asked yet."""
        found = self._disks.get(node)
        return found.disk if found else None

    def has_asked_disk(self, node: str) -> bool:
        """Whether it has answered, be it that it does not report it."""
        return node in self._disks

    def ask(self, cluster: Cluster) -> None:
        """Call this at the end of a tick. Items not requested at this tick are dropped."""
        self._ready, self._wanted = self._wanted, {}
        for key in self._disks.keys() - cluster.nodes.keys():
            del self._disks[key]
        if self._upstream is None or (self._task is not None and not self._task.done()):
            return
        names, node = self._due_ready(), self._due_disk(cluster)
        if names or node:
            self._task = asyncio.get_running_loop().create_task(
                self._ask(self._upstream, names, node)
            )

    async def stop(self) -> None:
        """Asks no more."""
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

    def _due_disk(self, cluster: Cluster) -> tuple[str, int] | None:
        """The nsqd asked longest ago; one at a time, and none that has shown that it does not report it."""
        now_s = time.monotonic()
        if now_s - self._disk_asked_s < DISK_PAUSE_S:
            return None
        due = []
        for node in cluster.nodes.values():
            known = self._disks.get(node.key)
            if node.state is not NodeState.UP:
                continue
            if known is None or known.start_time != node.start_time:
                due.append((float("-inf"), node.key, node.start_time))
            elif known.disk is not None and now_s - known.asked_s > DISK_AGE_S:
                due.append((known.asked_s, node.key, node.start_time))
        if not due:
            return None
        self._disk_asked_s = now_s
        _, key, start_time = min(due)
        return key, start_time

    async def _ask(
        self, upstream: "Upstream", names: list[Names], node: tuple[str, int] | None
    ) -> None:
        questions = [self._ask_ready(upstream, one) for one in names]
        if node:
            questions.append(self._ask_disk(upstream, *node))
        await asyncio.gather(*questions)

    async def _ask_ready(self, upstream: "Upstream", names: Names) -> None:
        topic, channel, node = names
        path = (
            f"/stats?format=json&include_mem=false&topic={quote(topic, safe='')}"
            f"&channel={quote(channel, safe='')}"
        )
        clients: list[Client] = []
        try:
            clients = clients_of(await upstream.read(node, path, NsqdStats))
        except UpstreamError as error:
            log.debug("consumers of %s/%s: %s", topic, channel, error)
        # Gone if nobody requests it any more.
        ready = Ready(
            sum(client.ready_count for client in clients) if clients else None,
            time.monotonic(),
            max(clients, key=lambda client: client.held_ms, default=None),
        )
        for known in (self._ready, self._wanted):
            if names in known:
                known[names] = ready

    async def _ask_disk(self, upstream: "Upstream", node: str, start_time: int) -> None:
        disk = None
        try:
            disk = read_disk(await upstream.get(node, "/metrics"))
        except UpstreamError as error:
            if not error.status:
                return  # it is asked again
        self._disks[node] = _Measured(disk, start_time, time.monotonic())


def clients_of(stats: NsqdStats) -> list[Client]:
    """The consumers of the one requested channel."""
    return [
        client
        for topic in stats.topics or ()
        for channel in topic.channels or ()
        for client in channel.clients or ()
    ]


def read_disk(metrics: bytes | bytearray) -> Disk | None:
    """Parse /metrics of our nsqd; None for anything else."""
    free, whole = _sample(metrics, DISK_FREE), _sample(metrics, DISK_SIZE)
    return Disk(free, whole) if free is not None and whole else None


def _sample(metrics: bytes | bytearray, name: bytes) -> float | None:
    start = metrics.find(name)
    if start < 0:
        return None
    start += len(name)
    end = metrics.find(b"\n", start)
    try:
        value = float(metrics[start:end])
    except ValueError:
        return None
    return value if value >= 0 else None
