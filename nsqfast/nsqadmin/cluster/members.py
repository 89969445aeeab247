"""The nsqd and nsqlookupd of the cluster: who they are, how each is asked, and what it last answered.

The settings and the nsqlookupd say who they are; the settings may change at any time.

An nsqd that leaves the lists of all nsqlookupd stays: if it died, until somebody says that it may be forgotten,
otherwise a node that crashes would silently vanish from the pages. One that answers, and only left, goes after LEFT_S.
"""

import asyncio
import hashlib
import time
from collections.abc import Callable, Coroutine, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import compress
from typing import Any, TypeVar

import msgspec

from nsqfast.net.slices import Slices
from nsqfast.nsqadmin.cluster.answers import (
    DrainFigures,
    ListedProducer,
    NodeFigures,
    NodeIdentity,
    UncleanStartFigures,
    decode,
    stats_path,
)
from nsqfast.nsqadmin.cluster.client import Upstream, UpstreamError
from nsqfast.nsqadmin.cluster.commit_log import CommitLogWatch
from nsqfast.nsqadmin.cluster.discovery import (
    LookupdClient,
    Nsqd,
    Version,
    identify,
    node_of_producer,
    parse_version,
    read_topics,
)
from nsqfast.nsqadmin.cluster.model import Counts, Lookupd, Node, NodeState, Rates
from nsqfast.nsqadmin.cluster.samples import (
    Figures,
    Layouts,
    Sample,
    join_figures,
    make_sample,
    read,
)
from nsqfast.nsqadmin.options import Options

MISSES_MAX = 3


class Question:
    """One address that is asked repeatedly: at most one query at a time, and the outcome of the last ones."""

    def __init__(self) -> None:
        self.state = NodeState.DOWN
        self.since = time.time()
        self.answered_at: float | None = None
        self.error = ""
        self.misses = 0
        self._task: asyncio.Task[str] | None = None
        self._asked_s = 0.0  # time.monotonic

    @property
    def is_suspect(self) -> bool:
        """Whether it did not answer the last time."""
        return self.misses > 0

    def ask(self, coroutine: Callable[[], Coroutine[Any, Any, str]]) -> asyncio.Task[str]:
        """Begin, unless the last query is still under way; the result is an error, '' for an answer."""
        if self._task is None:
            self._asked_s = time.monotonic()
            self._task = asyncio.get_running_loop().create_task(coroutine())
        return self._task

    def note_result(self, now: float) -> bool:
        """At the end of a tick: whether an answer came since the last one."""
        task = self._task
        if task is None:
            return False
        if not task.done():
            late_s = time.monotonic() - self._asked_s
            self._miss(now, f"no answer for {late_s:.1f} s")
            return False
        self._task = None
        if error := _error_of(task):
            self._miss(now, error)
            return False
        self.misses, self.error, self.answered_at = 0, "", now
        self._become(NodeState.UP, now)
        return True

    def restore(
        self, state: NodeState, since: float, answered_at: float | None, error: str
    ) -> None:
        """As it was in the previous nsqadmin; the next answer, or three without one, say more."""
        self.state, self.since, self.answered_at, self.error = state, since, answered_at, error
        self.misses = MISSES_MAX if state is NodeState.DOWN else 0

    async def cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
            self._task = None

    def _miss(self, now: float, error: str) -> None:
        self.error = error
        self.misses += 1
        is_down = self.answered_at is None or self.misses >= MISSES_MAX
        self._become(NodeState.DOWN if is_down else NodeState.STALE, now)

    def _become(self, state: NodeState, now: float) -> None:
        if state is not self.state:
            self.state, self.since = state, now


def _error_of(task: asyncio.Task[str]) -> str:
    if task.cancelled():
        return "cancelled"
    error = task.exception()
    return task.result() if error is None else f"{type(error).__name__}: {error}"


MEMORY_TICKS = 30  # nsqd stops for a moment to count its memory
# An answer under way while a channel was emptied may show the state before or after.
EMPTIED_MARGIN_S = 1.0


@dataclass(slots=True)
class Listing:
    """What nsqlookupd report about one nsqd; empty in direct mode."""

    lookupds: list[str] = field(default_factory=list)
    remote_addresses: list[str] = field(default_factory=list)
    tombstones: set[str] = field(default_factory=set)


class KeptNode(msgspec.Struct):
    """What the next nsqadmin has to know of an nsqd."""

    identity: NodeIdentity
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
        identity: NodeIdentity,
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
        self.drain: DrainFigures | None = None
        self.unclean_start: UncleanStartFigures | None = None
        self.commit_log = CommitLogWatch()
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
        return self.identity.key

    def restore(self, kept: KeptNode) -> None:
        self.listed_by = kept.listed_by
        self.drain = DrainFigures(kept.drain_since) if kept.drain_since else None
        self.question.restore(kept.state, kept.since, kept.answered_at, kept.error)

    def kept(self, given: str) -> KeptNode:
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
        path = stats_path(with_memory=wants_memory)
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
        elapsed_s = max(sampled_s - self._sampled_s, 1e-3) if is_comparable else 0.0
        emptied = self._take_emptied(sampled_s)
        sample = await make_sample(
            join_figures(pieces), self.sample, self._layouts, elapsed_s, emptied, slices
        )
        await slices.pause()
        counts = sample.counts()
        await slices.pause()
        rates = sample.rates() if elapsed_s > 0 else None
        self.sample, self.counts, self.rates, self._sampled_s = sample, counts, rates, sampled_s
        self.health, self.start_time = figures.health, figures.start_time
        self.drain = figures.drain
        self.unclean_start = figures.unclean_start
        self.commit_log.note(figures.commit_log, sampled_s, is_same_life=is_comparable)
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

    def view(self, version_max: Version) -> Node:
        identity, question, listing = self.identity, self.question, self.listing
        is_planned = question.state is NodeState.DOWN and self.drain is not None
        return Node(
            key=identity.key,
            **msgspec.structs.asdict(identity),
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
            lookupds=tuple(listing.lookupds),
            remote_addresses=tuple(listing.remote_addresses),
            tombstones=frozenset(listing.tombstones),
            drain=self.drain,
            unclean_start=self.unclean_start,
            commit_log=self.commit_log.view(),
            planned_until=question.since + self._planned_stop_s if is_planned else 0.0,
        )


CHANNELS_KEPT_S = 30.0  # of an inactive topic; only manual actions change them
CHANNELS_ASKED_MAX = 100  # of one nsqlookupd in one tick
CHANNELS_AT_ONCE = 4


class _RawNodes(msgspec.Struct, gc=False):
    """/nodes, with its nodes still encoded: a million may come, and are decoded in slices."""

    producers: list[msgspec.Raw] | None = None


class LookupdWatch:
    """One nsqlookupd: its last answers, and the outcome of recent queries."""

    def __init__(self, address: str, upstream: Upstream) -> None:
        self.address = address
        self.question = Question()
        self.version = ""
        self.producers: dict[str, Nsqd] = {}  # by the key of the node
        self.topics: list[str] = []
        self._digest = b""  # of the last answer to /nodes
        self._listed: dict[str, Nsqd] = {}  # by it
        self.inactive: frozenset[str] = frozenset()  # topics whose channels are asked for
        self._channels: dict[str, tuple[float, list[str]]] = {}  # when, names
        self._client = LookupdClient(address, upstream)

    async def ask(self) -> str:
        """Ask for its nodes and topics; returns the error, or '' on success."""
        try:
            producers = await self._ask_producers()
            topics = await self._client.topics()
            if not self.version:
                self.version = await self._client.version()
            await self._ask_channels()
        except UpstreamError as error:
            self.version = ""  # after an outage it may be another one
            return str(error).removeprefix("http://").removeprefix(self.address)
        self.producers = producers
        self.topics = topics
        return ""

    async def _ask_producers(self) -> dict[str, Nsqd]:
        """By the key of the node; the same dict as long as the answer is the same."""
        body = await self._client.nodes()
        digest = hashlib.blake2b(body, digest_size=16).digest()
        if digest == self._digest:
            return self._listed
        slices, listed = Slices(), {}
        try:
            for raw in decode(body, _RawNodes).producers or ():
                one = decode(raw, ListedProducer)
                producer = node_of_producer(one, read_topics(one))
                listed[producer.key] = producer
                await slices.pause()
        except UpstreamError as error:
            raise UpstreamError(f"/nodes: {error}") from None
        self._digest, self._listed = digest, listed
        return listed

    async def _ask_channels(self) -> None:
        now = time.monotonic()
        self._channels = {t: known for t, known in self._channels.items() if t in self.inactive}
        old = [
            topic
            for topic in sorted(self.inactive)
            if topic not in self._channels or now - self._channels[topic][0] > CHANNELS_KEPT_S
        ]
        slots = asyncio.Semaphore(CHANNELS_AT_ONCE)
        await asyncio.gather(*(self._ask_topic(topic, slots) for topic in old[:CHANNELS_ASKED_MAX]))

    async def _ask_topic(self, topic: str, slots: asyncio.Semaphore) -> None:
        async with slots:
            channels = await self._client.channels(topic)
        self._channels[topic] = (time.monotonic(), sorted(set(channels)))

    def view(self) -> Lookupd:
        """Its state at this tick; its last answers while it does not answer."""
        question = self.question
        known = set(self.topics)
        topics = {
            topic: self._channels[topic][1] if topic in self._channels else []
            for topic in sorted(self.inactive)
            if topic in known
        }
        return Lookupd(
            address=self.address,
            is_up=question.state is NodeState.UP,
            since=question.since,
            answered_at=question.answered_at,
            error=question.error,
            version=self.version,
            nodes=frozenset(self.producers),
            topics=topics,
        )


LEFT_S = 900.0
MISSING_MAX = 1000  # dead nodes that are in no list: whoever registers under ever new names is not kept for ever


class GivenNode:
    """An address of --nsqd-http-address, and the nsqd that answers there."""

    def __init__(self, address: str, upstream: Upstream, identity: NodeIdentity | None) -> None:
        self.address = address
        self.question = Question()
        host, _, port = address.rpartition(":")
        named = NodeIdentity(host, host.strip("[]"), 0, int(port) if port.isdigit() else 0)
        self.identity = identity or named
        self._upstream = upstream

    async def ask(self) -> str:
        """Ask for its identity; returns the error, or '' on success."""
        try:
            self.identity = await self._upstream.read(self.address, "/info", NodeIdentity)
        except UpstreamError as error:
            return str(error).removeprefix(f"http://{self.address}/info: ")
        return ""


W = TypeVar("W", LookupdWatch, GivenNode)


class Members:
    """`nodes`, `lookupds` and `given` are asked at the next tick."""

    def __init__(self, options: Options, upstream: Upstream) -> None:
        self.nodes: dict[str, NodeWatch] = {}
        self.lookupds: dict[str, LookupdWatch] = {}
        self.given: dict[str, GivenNode] = {}
        self._options = options
        self._upstream = upstream
        self._turn = asyncio.Lock()
        self._layouts = Layouts()
        self._count = 0
        self._restored: dict[str, NodeIdentity] = {}  # by the address of the flag
        self._retired: list[Question] = []

    def restore(self, kept: Iterable[KeptNode]) -> None:
        """The nodes of the previous nsqadmin, before any question."""
        for one in kept:
            if one.given:
                self._restored[one.given] = one.identity
            node = self.nodes[one.identity.key] = self._watch(one.identity)
            node.restore(one)

    def kept(self) -> Iterator[KeptNode]:
        """For the next nsqadmin; they may come and go meanwhile."""
        given = {one.identity.key: address for address, one in self.given.items()}
        for key, node in list(self.nodes.items()):
            yield node.kept(given.get(key, ""))

    def forget(self, key: str) -> str:
        """A dead node is not to come back; returns why it cannot be forgotten, or ''."""
        node = self.nodes.get(key)
        if node is None:
            return "there is no such node"
        if node.question.state is not NodeState.DOWN:
            return "it is not down"
        if node.listing.lookupds:
            return f"nsqlookupd {node.listing.lookupds[0]} still lists it"
        if any(given.identity.key == key for given in self.given.values()):
            return "--nsqd-http-address names it"
        self._retired.append(self.nodes.pop(key).question)
        return ""

    def _watch(self, identity: NodeIdentity) -> NodeWatch:
        self._count += 1
        planned_stop_s = self._options.planned_stop_ns / 1e9
        return NodeWatch(
            identity, self._upstream, self._turn, self._layouts, self._count, planned_stop_s
        )

    def read_options(self) -> None:
        """The addresses may have changed."""
        options, upstream, restored = self._options, self._upstream, self._restored
        lookupds = options.nsqlookupd_http_addresses
        self.lookupds = self._follow(self.lookupds, lookupds, lambda a: LookupdWatch(a, upstream))
        given = [] if lookupds else options.nsqd_http_addresses
        self.given = self._follow(
            self.given, given, lambda a: GivenNode(a, upstream, restored.get(a))
        )

    def _follow(
        self, known: dict[str, W], addresses: list[str], make: Callable[[str], W]
    ) -> dict[str, W]:
        self._retired += [known[gone].question for gone in known.keys() - set(addresses)]
        return {address: known.get(address) or make(address) for address in addresses}

    def read_lists(self) -> None:
        """After the nsqlookupd, or the nsqd of the settings, were asked: update `nodes`."""
        listed = self._listed()
        now = time.monotonic()
        for key, (identity, listing) in listed.items():
            node = self.nodes.get(key)
            if node is None:
                node = self.nodes[key] = self._watch(identity)
            else:
                # /stats reports the version of the running one.
                identity.version = node.identity.version or identity.version
                node.identity = identity
            node.listing, node.listed_by, node.listed_s = listing, listing.lookupds, now
        missing = [node for key, node in self.nodes.items() if key not in listed]
        for node in missing:
            node.listing = Listing()
        kept = [node for node in missing if self._is_kept(node, now)]
        if len(kept) > MISSING_MAX:
            kept = sorted(kept, key=lambda node: node.question.answered_at or 0.0)[-MISSING_MAX:]
        for key in {node.key for node in missing} - {node.key for node in kept}:
            self._retired.append(self.nodes.pop(key).question)

    def _is_kept(self, node: NodeWatch, now: float) -> bool:
        # Those of another cluster go at once when the settings name other nsqlookupd.
        if not any(address in self.lookupds for address in node.listed_by):
            return False
        has_left = node.question.state is not NodeState.DOWN and node.drain is None
        return not has_left or now - node.listed_s <= LEFT_S

    def _listed(self) -> dict[str, tuple[NodeIdentity, Listing]]:
        found: dict[str, tuple[NodeIdentity, Listing]] = {}
        for given in self.given.values():
            found.setdefault(given.identity.key, (given.identity, Listing()))
        any_up = any(w.question.state is NodeState.UP for w in self.lookupds.values())
        for address, lookupd in self.lookupds.items():
            is_up = lookupd.question.state is NodeState.UP
            for key, producer in lookupd.producers.items():
                if not is_up and any_up and self._is_down(key):
                    continue  # it may have left since this nsqlookupd went away
                _, listing = found.setdefault(key, (identify(producer), Listing()))
                listing.lookupds.append(address)
                remote = producer.remote_address or "N/A"
                listing.remote_addresses.append(f"{address}/{remote}")
                if any(producer.tombstones):  # almost never
                    listing.tombstones.update(compress(producer.topics, producer.tombstones))
        return found

    def _is_down(self, key: str) -> bool:
        node = self.nodes.get(key)
        return node is not None and node.question.state is NodeState.DOWN

    def retired(self) -> list[Question]:
        """Former members, which may still have a query under way."""
        found, self._retired = self._retired, []
        return found

    def questions(self) -> list[Question]:
        return [
            *(node.question for node in self.nodes.values()),
            *(lookupd.question for lookupd in self.lookupds.values()),
            *(given.question for given in self.given.values()),
        ]
