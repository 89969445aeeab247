"""The steps of each action on the cluster, in NSQ's order; their runner; the actions of scripts."""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from urllib.parse import urlencode

from nsqfast.nsqadmin.cluster.answers import NobodyAnsweredError, UpstreamError
from nsqfast.nsqadmin.cluster.client import Upstream
from nsqfast.nsqadmin.cluster.discovery import NSQLOOKUPD, Discovery
from nsqfast.nsqadmin.results import Result


@dataclass(frozen=True, slots=True)
class Step:
    """One POST to each of these addresses."""

    addresses: Sequence[str]
    path: str
    query: dict[str, str]
    may_lack: bool = False  # 404 means that nothing is left to do

    @property
    def target(self) -> str:
        """/topic/create?topic=..."""
        return f"/{self.path}?{urlencode(self.query)}"


def steps_of(
    action: str, topic: str, channel: str = "", *, lookupds: Sequence[str], nodes: Sequence[str]
) -> list[Step]:
    """The commands for nsqlookupd, then those for nsqd, at these addresses; a channel needs its topic first.

    See https://nsq.io/components/nsqlookupd.html and https://nsq.io/components/nsqd.html for the commands.
    """
    if action == "tombstone":
        # Consumers leave the node before its topic goes.
        told = [Step(lookupds, "topic/tombstone", {"topic": topic, "node": node}) for node in nodes]
        return [*told, Step(nodes, "topic/delete", {"topic": topic}, may_lack=True)]
    query = {"topic": topic} | ({"channel": channel} if channel else {})
    path = f"{'channel' if channel else 'topic'}/{action}"
    at_lookupds = lookupds if action in ("create", "delete") else ()
    may_lack = action == "delete"
    return [Step(at_lookupds, path, query, may_lack), Step(nodes, path, query, may_lack)]


class StepRunner:
    """Sends the steps of one order to so many addresses at a time; `judge` makes the result of one that failed.

    An address that once did not answer is not waited for again.
    """

    def __init__(
        self,
        upstream: Upstream,
        at_once: int,
        judge: Callable[[str, Step, UpstreamError], Result],
    ) -> None:
        self._upstream = upstream
        self._judge = judge
        self._slots = asyncio.Semaphore(at_once)
        self._silent: dict[str, str] = {}

    async def run(self, steps: Iterable[Step]) -> list[Result]:
        """A result for each address, in the order of the steps: that of the failed step, if one failed."""
        results: dict[str, Result] = {}
        for step in steps:
            # The following steps would fail, too: a channel needs its topic.
            left = [
                address
                for address in dict.fromkeys(step.addresses)
                if address not in results or results[address].ok
            ]
            for result in await asyncio.gather(*(self._run_at(one, step) for one in left)):
                results[result.node] = result
        return list(results.values())

    async def _run_at(self, address: str, step: Step) -> Result:
        async with self._slots:
            if address in self._silent:
                return Result(address, ok=False, text=f"not asked again: {self._silent[address]}")
            try:
                await self._upstream.post(address, step.target)
            except UpstreamError as error:
                result = self._judge(address, step, error)
                if not error.status:
                    self._silent[address] = result.text
                return result
        return Result(address, ok=True)


class ScriptActions:
    """`channel` is '' for an action on a topic.

    A query that nobody answers ends an action: NobodyAnsweredError, with the results of earlier steps. If only some
    answer a query, the others count as failed. Commands go to one node after the other.
    """

    def __init__(self, discovery: Discovery, upstream: Upstream) -> None:
        self._discovery = discovery
        self._upstream = upstream

    async def create_topic(self, topic: str) -> list[Result]:
        """Register it at every nsqlookupd."""
        return await self._tell(
            steps_of("create", topic, lookupds=self._discovery.lookupds, nodes=())
        )

    async def create_channel(self, topic: str, channel: str) -> list[Result]:
        """Register it at every nsqlookupd, and create it on every nsqd that has the topic."""
        lookupds = self._discovery.lookupds
        if not lookupds:
            raise NobodyAnsweredError(NSQLOOKUPD, [])
        results = await self._tell(steps_of("create", topic, channel, lookupds=lookupds, nodes=()))
        try:
            found = await self._discovery.producers(topic)
        except NobodyAnsweredError as error:
            error.results = results
            raise
        nodes = [node.key for node in found.value]
        steps = steps_of("create", topic, channel, lookupds=(), nodes=nodes)
        return results + found.failures + await self._tell(steps)

    async def act(self, action: str, topic: str, channel: str = "") -> list[Result]:
        """Delete it from every nsqlookupd, then from every nsqd that has it; other actions are for these alone."""
        # Once nsqlookupd has forgotten the topic, nobody knows any more which nodes have it.
        found = await self._discovery.producers(topic)
        nodes = [node.key for node in found.value]
        steps = steps_of(action, topic, channel, lookupds=self._discovery.lookupds, nodes=nodes)
        return found.failures + await self._tell(steps)

    async def tombstone(self, topic: str, node: str) -> list[Result]:
        """Hide the nsqd at `node` from consumers of the topic, then delete the topic there."""
        *hide, delete = steps_of(
            "tombstone", topic, lookupds=self._discovery.lookupds, nodes=[node]
        )
        results = await self._tell(hide)
        try:
            found = await self._discovery.nodes_at([node])
        except NobodyAnsweredError as error:
            error.results = results
            raise
        return results + await self._tell(
            [replace(delete, addresses=[one.key for one in found.value])]
        )

    async def _tell(self, steps: Sequence[Step]) -> list[Result]:
        return await StepRunner(self._upstream, 1, _judge_as_nsq).run(steps)


def _judge_as_nsq(address: str, _step: Step, error: UpstreamError) -> Result:
    return Result(address, ok=False, text=error.message)
