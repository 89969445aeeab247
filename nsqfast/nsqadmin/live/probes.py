"""Queries too expensive for the poll: a few at a time, beside it.

consumers           of channels with waiting messages whose consumers have nothing in flight: their RDY; and of those
                    with one that has held messages for long: who it is
vitals              of each nsqd that reports them on /metrics, as ours do; once a minute
"""

import asyncio
import contextlib
import logging
import time
from dataclasses import dataclass
from urllib.parse import quote

from nsqfast.nsqadmin.live.model import Cluster, NodeState
from nsqfast.nsqadmin.live.vitals import Vitals, read_look
from nsqfast.nsqadmin.upstream.client import Upstream, UpstreamError
from nsqfast.nsqadmin.upstream.messages import Client, NsqdStats

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
    """Of a channel's consumers on a node the sum of their RDY, and who holds messages for longest; None: unknown."""

    count: int | None
    asked_s: float  # monotonic; -inf: never
    holder: Client | None = None


class Probes:
    """Without `upstream` nothing is asked, and nothing known."""

    def __init__(self, upstream: Upstream | None) -> None:
        self._upstream = upstream
        self._ready: dict[Names, Ready] = {}
        self._wanted: dict[Names, Ready] = {}
        self._vitals: dict[str, Vitals] = {}
        self._silent: dict[str, int] = {}  # nsqd without vitals: when they were started
        self._task: asyncio.Task[None] | None = None
        self._vitals_asked_s = 0.0

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

    async def _ask_vitals(self, upstream: "Upstream", node: str, start_time: int) -> None:
        look = None
        try:
            look = read_look(await upstream.get(node, "/metrics"), time.monotonic())
        except UpstreamError as error:
            if not error.status:
                return  # it is asked again
        known = self._vitals.pop(node, None)
        self._silent.pop(node, None)
        if look is None:
            self._silent[node] = start_time
            return
        if known is None or known.start_time != start_time:
            known = Vitals(start_time)
        known.add(look)
        self._vitals[node] = known


def clients_of(stats: NsqdStats) -> list[Client]:
    """The consumers of the one requested channel."""
    return [
        client
        for topic in stats.topics or ()
        for channel in topic.channels or ()
        for client in channel.clients or ()
    ]
