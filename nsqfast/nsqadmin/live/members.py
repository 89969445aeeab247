"""The nsqd and nsqlookupd of the cluster, according to the settings and the nsqlookupd; the settings may change at any
time.

An nsqd that leaves the lists of all nsqlookupd (it died, or a whole nsqlookupd was restarted) is watched for another
FORGET_S: otherwise a node that crashes would silently vanish from the pages.
"""

import asyncio
import time

from nsqfast.nsqadmin.live.lookupds import LookupdWatch, identity_of, tombstones_of
from nsqfast.nsqadmin.live.model import NodeState
from nsqfast.nsqadmin.live.nodes import Identity, Listing, NodeWatch
from nsqfast.nsqadmin.live.question import Question
from nsqfast.nsqadmin.live.samples import Layouts
from nsqfast.nsqadmin.options import Options
from nsqfast.nsqadmin.upstream.client import Upstream, UpstreamError
from nsqfast.nsqadmin.upstream.messages import NsqdInfo

FORGET_S = 900.0


class GivenNode:
    """An address of --nsqd-http-address, and the nsqd that answers there."""

    def __init__(self, address: str, upstream: Upstream) -> None:
        self.address = address
        self.question = Question()
        host, _, port = address.rpartition(":")
        self.identity = Identity(host, host.strip("[]"), 0, int(port) if port.isdigit() else 0)
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
        self._retired: list[Question] = []

    @property
    def has_lookupds(self) -> bool:
        """Whether nsqlookupd are configured, which know the nsqd."""
        return bool(self._options.nsqlookupd_http_addresses)

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
            address: self.given.get(address) or GivenNode(address, upstream) for address in wanted
        }

    def read_lists(self) -> None:
        """After the nsqlookupd, or the nsqd of the settings, were asked: update `nodes`."""
        listed = self._listed()
        now = time.monotonic()
        for key, (identity, listing) in listed.items():
            node = self.nodes.get(key)
            if node is None:
                node = self.nodes[key] = NodeWatch(
                    identity, self._upstream, self._turn, self._layouts, self._count
                )
                self._count += 1
            else:
                # /stats reports the version of the running one.
                identity.version = node.identity.version or identity.version
                node.identity = identity
            node.listing, node.listed_by, node.listed_s = listing, listing.lookupds, now
        for key, node in list(self.nodes.items()):
            if key in listed:
                continue
            node.listing = Listing()
            if self._is_forgotten(node, now):
                self._retired.append(self.nodes.pop(key).question)

    def _is_forgotten(self, node: NodeWatch, now: float) -> bool:
        # Those of another cluster go at once when the settings name other nsqlookupd.
        is_ours = any(address in self.lookupds for address in node.listed_by)
        return not is_ours or now - node.listed_s > FORGET_S

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
