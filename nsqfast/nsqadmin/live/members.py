"""The nsqd and nsqlookupd of the cluster, according to the settings and the nsqlookupd; the settings may change at any
time.

An nsqd that leaves the lists of all nsqlookupd stays: if it died, until somebody says that it may be forgotten,
otherwise a node that crashes would silently vanish from the pages. One that answers, and only left, goes after LEFT_S.
"""

import asyncio
import time
from collections.abc import Iterable, Iterator

from nsqfast.nsqadmin.live.lookupds import LookupdWatch, identity_of, tombstones_of
from nsqfast.nsqadmin.live.model import NodeState
from nsqfast.nsqadmin.live.nodes import Identity, KeptNode, Listing, NodeWatch
from nsqfast.nsqadmin.live.question import Question
from nsqfast.nsqadmin.live.samples import Layouts
from nsqfast.nsqadmin.options import Options
from nsqfast.nsqadmin.upstream.client import Upstream, UpstreamError
from nsqfast.nsqadmin.upstream.messages import NsqdInfo

LEFT_S = 900.0
MISSING_MAX = 1000  # dead nodes that are in no list: whoever registers under ever new names is not kept for ever


class GivenNode:
    """An address of --nsqd-http-address, and the nsqd that answers there."""

    def __init__(self, address: str, upstream: Upstream, identity: Identity | None) -> None:
        self.address = address
        self.question = Question()
        host, _, port = address.rpartition(":")
        named = Identity(host, host.strip("[]"), 0, int(port) if port.isdigit() else 0)
        self.identity = identity or named
        self._upstream = upstream

    async def ask(self) -> str:
        """Ask for its identity; returns the error, or '' on success."""
        try:
            info = await self._upstream.read(self.address, "/info", NsqdInfo)
        except UpstreamError as error:
            return str(error).removeprefix(f"http://{self.address}/info: ")
        self.identity = Identity(
            hostname=info.hostname,
            broadcast_address=info.broadcast_address,
            tcp_port=info.tcp_port,
            http_port=info.http_port,
            version=info.version,
            topology_zone=info.topology_zone,
            topology_region=info.topology_region,
        )
        return ""


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
        self._believed: dict[str, Identity] = {}  # by the address of the flag
        self._retired: list[Question] = []

    @property
    def has_lookupds(self) -> bool:
        """Whether nsqlookupd are configured, which know the nsqd."""
        return bool(self._options.nsqlookupd_http_addresses)

    def believe(self, kept: Iterable[KeptNode]) -> None:
        """The nodes of the previous nsqadmin, before any question."""
        for one in kept:
            if one.given:
                self._believed[one.given] = one.identity
            node = self.nodes[one.identity.key] = self._watch(one.identity)
            node.believe(one)

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

    def _watch(self, identity: Identity) -> NodeWatch:
        self._count += 1
        planned_stop_s = self._options.planned_stop_ns / 1e9
        return NodeWatch(
            identity, self._upstream, self._turn, self._layouts, self._count, planned_stop_s
        )

    def read_options(self) -> None:
        """The addresses may have changed."""
        options, upstream = self._options, self._upstream
        wanted = dict.fromkeys(options.nsqlookupd_http_addresses)
        for address in self.lookupds.keys() - wanted.keys():
            self._retired.append(self.lookupds.pop(address).question)
        self.lookupds = {
            address: self.lookupds.get(address) or LookupdWatch(address, upstream)
            for address in wanted
        }
        wanted = dict.fromkeys(() if wanted else options.nsqd_http_addresses)
        for address in self.given.keys() - wanted.keys():
            self._retired.append(self.given.pop(address).question)
        self.given = {
            address: self.given.get(address)
            or GivenNode(address, upstream, self._believed.get(address))
            for address in wanted
        }

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

    def _listed(self) -> dict[str, tuple[Identity, Listing]]:
        found: dict[str, tuple[Identity, Listing]] = {}
        for given in self.given.values():
            found.setdefault(given.identity.key, (given.identity, Listing()))
        any_up = any(w.question.state is NodeState.UP for w in self.lookupds.values())
        for address, lookupd in self.lookupds.items():
            is_up = lookupd.question.state is NodeState.UP
            for key, producer in lookupd.producers.items():
                if not is_up and any_up and self._is_down(key):
                    continue  # it may have left since this nsqlookupd went away
                _, listing = found.setdefault(key, (identity_of(producer), Listing()))
                listing.lookupds.append(address)
                remote = producer.remote_address or "N/A"
                listing.remote_addresses.append(f"{address}/{remote}")
                listing.tombstones.update(tombstones_of(producer))
        return found

    def _is_down(self, key: str) -> bool:
        node = self.nodes.get(key)
        return node is not None and node.question.state is NodeState.DOWN

    def retired(self) -> list[Question]:
        """Former members, which may still have a query under way."""
        found, self._retired = self._retired, []
        return found

    def questions(self) -> list[Question]:
        """Every query that may be under way."""
        return [
            *(node.question for node in self.nodes.values()),
            *(lookupd.question for lookupd in self.lookupds.values()),
            *(given.question for given in self.given.values()),
        ]
