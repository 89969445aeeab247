"""The nsqd of the cluster: each is asked for its numbers, and keeps the last ones it reported."""

import asyncio
import time
from dataclasses import dataclass, field

import msgspec

from nsqfast.nsqadmin.live.figures import (
    DrainFigures,
    Figures,
    NodeFigures,
    UncleanStartFigures,
    join_figures,
    read,
)
from nsqfast.nsqadmin.live.model import Counts, Node, NodeState, Rates
from nsqfast.nsqadmin.live.question import Question
from nsqfast.nsqadmin.live.samples import Layouts, Sample, make_sample
from nsqfast.nsqadmin.live.slices import Slices
from nsqfast.nsqadmin.upstream.client import Upstream, UpstreamError
from nsqfast.wire.gotext import join_host_port

STATS = "/stats?format=json&include_clients=false&include_mem="
MEMORY_TICKS = 30  # nsqd stops for a moment to count its memory
# An answer under way while a channel was emptied may show the state before or after.
EMPTIED_MARGIN_S = 1.0


@dataclass(slots=True)
class Identity:
    """The identity of an nsqd, from /info or nsqlookupd."""

    hostname: str
    broadcast_address: str
    tcp_port: int
    http_port: int
    version: str = ""
    topology_zone: str = ""
    topology_region: str = ""

    @property
    def key(self) -> str:
        """The address at which it is asked."""
        return join_host_port(self.broadcast_address, self.http_port)


@dataclass(slots=True)
class Listing:
    """What nsqlookupd report about one nsqd; empty in direct mode."""

    lookupds: list[str] = field(default_factory=list)
    remote_addresses: list[str] = field(default_factory=list)
    tombstones: set[str] = field(default_factory=set)


class KeptNode(msgspec.Struct):
    """What the next nsqadmin has to know of an nsqd."""

    identity: Identity
    state: NodeState
    since: float
    answered_at: float | None
    error: str
    given: str = ""  # the address of --nsqd-http-address at which it answered
    listed_by: list[str] = []
    drain_since: int = 0

    @property
    def essence(self) -> tuple[object, ...]:
        """It is written when this changes."""
        return self.identity.key, self.state, self.since, self.drain_since


class NodeWatch:
    """One nsqd: its last answer, and the outcome of recent queries."""

    def __init__(
        self,
        identity: Identity,
        upstream: Upstream,
        turn: asyncio.Lock,
        layouts: Layouts,
        index: int,
        planned_stop_s: float,
    ) -> None:
        self.identity = identity
        self.listing = Listing()
        self.listed_s = time.monotonic()  # when it was last listed
        self.listed_by: list[str] = []  # at that time
        self.question = Question()
        self.sample = Sample()
        self.counts = Counts()  # of all its topics and channels
        self.rates: Rates | None = None
        self.health = ""
        self.start_time = 0
        self.memory_bytes: int | None = None
        self.restarts = 0  # number of restarts seen
        self.drain: DrainFigures | None = None
        self.unclean_start: UncleanStartFigures | None = None
        self._upstream = upstream
        self._turn = turn
        self._layouts = layouts
        self._index = index
        self._planned_stop_s = planned_stop_s
        self._ticks = 0
        self._sampled_s = 0.0  # time.monotonic of the last answer
        self._emptied: list[tuple[float, str, str]] = []  # when, topic, channel

    @property
    def key(self) -> str:
        """See Identity."""
        return self.identity.key

    def believe(self, kept: KeptNode) -> None:
        """What the previous nsqadmin knew of it."""
        self.listed_by = kept.listed_by
        self.drain = DrainFigures(kept.drain_since) if kept.drain_since else None
        self.question.believe(kept.state, kept.since, kept.answered_at, kept.error)

    def kept(self, given: str) -> KeptNode:
        """For the next nsqadmin."""
        question = self.question
        return KeptNode(
            self.identity,
            question.state,
            question.since,
            question.answered_at,
            question.error.encode("utf-8", "replace").decode(),  # a lone surrogate is no JSON
            given,
            self.listed_by,
            self.drain.since if self.drain is not None else 0,
        )

    def note_emptied(self, topic: str, channel: str) -> None:
        """Emptied now, by us; '' is the topic's own queue."""
        self._emptied.append((time.monotonic(), topic, channel))

    async def ask(self) -> str:
        """Ask for its numbers; returns the error, or '' on success."""
        wants_memory = (self._ticks + self._index) % MEMORY_TICKS == 0 or not self._ticks
        self._ticks += 1
        began_s = time.monotonic()
        path = STATS + ("true" if wants_memory else "false")
        try:
            body = await self._upstream.get(self.key, path)
            sampled_s = (began_s + time.monotonic()) / 2
            # One at a time: the slices of many, one after another, would delay everybody else for long.
            async with self._turn:
                await self._take(body, sampled_s)
        except UpstreamError as error:
            return str(error).removeprefix(f"http://{self.key}{path}: ")
        except (msgspec.DecodeError, RecursionError) as error:
            return f"its answer is not what nsqd says: {error}"
        return ""

    async def _take(self, body: bytearray, sampled_s: float) -> None:
        slices = Slices()
        pieces: list[Figures] = []
        figures = NodeFigures()
        for said, piece in read(body):
            figures = said or figures
            pieces.append(piece)
            await slices.pause()
        if figures.version is None:
            raise msgspec.DecodeError("it has no version")
        is_comparable = self.start_time == figures.start_time and self._sampled_s > 0
        if self._sampled_s and not is_comparable:
            self.restarts += 1
        elapsed_s = max(sampled_s - self._sampled_s, 1e-3) if is_comparable else 0.0
        emptied = self._take_emptied(sampled_s)
        sample = await make_sample(
            join_figures(pieces), self.sample, self._layouts, elapsed_s, emptied, slices
        )
        await slices.pause()
        counts, rates = sample.counts(), sample.rates() if elapsed_s > 0 else None
        self.sample, self.counts, self.rates, self._sampled_s = sample, counts, rates, sampled_s
        self.health, self.start_time = figures.health, figures.start_time
        self.drain = figures.drain
        self.unclean_start = figures.unclean_start
        self.identity.version = figures.version
        if figures.memory is not None:
            self.memory_bytes = max(figures.memory.held_bytes, 0) or None

    def _take_emptied(self, sampled_s: float) -> dict[str, frozenset[str]]:
        """Take the names emptied since the previous answer; those emptied after this one stay for the next."""
        found: dict[str, frozenset[str]] = {}
        for at_s, topic, channel in self._emptied:
            if at_s >= self._sampled_s - EMPTIED_MARGIN_S:
                found[topic] = found.get(topic, frozenset()) | {channel}
        self._emptied = [n for n in self._emptied if n[0] >= sampled_s - EMPTIED_MARGIN_S]
        return found

    def note_result(self, now: float) -> None:
        """At the end of a tick."""
        if self.question.note_result(now) or self.question.state is not NodeState.DOWN:
            return
        if self.rates is not None:
            self.sample, self.rates = self.sample.without_rates(), None

    def view(self, version_max: tuple[int, ...]) -> Node:
        """Its state at this tick."""
        identity, question, listing = self.identity, self.question, self.listing
        is_planned = question.state is NodeState.DOWN and self.drain is not None
        return Node(
            key=identity.key,
            hostname=identity.hostname,
            broadcast_address=identity.broadcast_address,
            tcp_port=identity.tcp_port,
            http_port=identity.http_port,
            version=identity.version,
            state=question.state,
            since=question.since,
            answered_at=question.answered_at,
            error=question.error,
            health=self.health,
            start_time=self.start_time,
            is_out_of_date=parse_version(identity.version) < version_max,
            counts=self.counts,
            rates=self.rates if question.state is NodeState.UP else None,
            topic_count=len(self.sample.layout.topics),
            memory_bytes=self.memory_bytes,
            topology_zone=identity.topology_zone,
            topology_region=identity.topology_region,
            lookupds=tuple(listing.lookupds),
            remote_addresses=tuple(listing.remote_addresses),
            tombstones=frozenset(listing.tombstones),
            drain=self.drain,
            unclean_start=self.unclean_start,
            planned_until=question.since + self._planned_stop_s if is_planned else 0.0,
        )


def parse_version(text: str) -> tuple[int, ...]:
    """Three numbers to compare; zeros if it is not a version."""
    numbers = text.split("-", maxsplit=1)[0].split("+", maxsplit=1)[0].split(".")
    if len(numbers) != 3 or not all(part.isascii() and part.isdigit() for part in numbers):
        return (0, 0, 0)
    return tuple(int(part[:9]) for part in numbers)
