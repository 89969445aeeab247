"""Telling the nodes: nsqlookupd first, then the nsqd, all of a kind at once within limits; a result for each."""

import asyncio
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlencode

from nsqfast.nsqadmin.access.audit import Outcome, Result
from nsqfast.nsqadmin.actions.order import Action, Item
from nsqfast.nsqadmin.actions.targets import Target
from nsqfast.nsqadmin.upstream.client import Upstream, UpstreamError

NODES_AT_ONCE: Final = 16
NOT_FOUND: Final = 404
_NSQ_WORD: Final = re.compile(r'got response (\d+) [^"]*"\{\\"message\\":\\"([A-Z_]+)\\"\}"$')


@dataclass(slots=True)
class Step:
    """One request to each of these addresses."""

    addresses: Iterable[str]
    path: str
    query: dict[str, str]
    may_lack: bool = False  # 404 says that nothing is left to do


@dataclass(slots=True)
class Teller:
    """Sends the steps of one job. A node that did not answer once is not waited for again in the same job."""

    upstream: Upstream
    silent: dict[str, str] = field(default_factory=dict)
    gate: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(NODES_AT_ONCE))

    async def perform(self, action: Action, target: Target) -> list[Result]:
        """One result for each address, nsqlookupd first: that of the step that failed, if one did."""
        results: dict[str, Result] = {}
        for step in steps_of(action, target):
            # What failed there would fail again: a channel needs its topic.
            left = [
                address
                for address in dict.fromkeys(step.addresses)
                if address not in results or results[address].ok
            ]
            for result in await asyncio.gather(*(self._tell(one, step) for one in left)):
                results[result.node] = result
        return list(results.values())

    async def _tell(self, address: str, step: Step) -> Result:
        target = f"/{step.path}?{urlencode(step.query)}"
        async with self.gate:
            if address in self.silent:
                return Result(address, ok=False, text=f"not asked again: {self.silent[address]}")
            try:
                await self.upstream.post(address, target)
            except UpstreamError as error:
                if error.status == NOT_FOUND and step.may_lack:
                    return Result(address, ok=True, text="was not there")
                text = cause_of(error, f"http://{address}{target}")
                if not error.status:
                    self.silent[address] = text
                return Result(address, ok=False, text=text)
        return Result(address, ok=True)


def cause_of(error: UpstreamError, url: str) -> str:
    """In few words: nsqd's own where it gave any."""
    text = str(error).removeprefix(f"{url}: ")
    found = _NSQ_WORD.search(text)
    return f"{found[1]} {found[2]}" if found else text


def steps_of(action: Action, target: Target) -> list[Step]:
    """As nsqadmin does them; see https://nsq.io/components/nsqlookupd.html and .../nsqd.html for what they ask."""
    item = target.item
    lookupds, nodes = target.lookupds, target.nodes
    query = _query(item)
    if action is Action.CREATE:
        topic = {"topic": item.topic}
        steps = [Step(lookupds, "topic/create", topic), Step(nodes, "topic/create", topic)]
        if item.channel:
            steps += [Step(lookupds, "channel/create", query), Step(nodes, "channel/create", query)]
        return steps
    if action is Action.TOMBSTONE:
        # Consumers leave the node before its topic goes.
        hidden = [Step(lookupds, "topic/tombstone", {**query, "node": node}) for node in nodes]
        return [*hidden, Step(nodes, "topic/delete", query, may_lack=True)]
    path = f"{item.kind}/{action}"
    is_delete = action is Action.DELETE
    return [
        Step(lookupds if is_delete else (), path, query, may_lack=is_delete),
        Step(nodes, path, query, may_lack=is_delete),
    ]


def _query(item: Item) -> dict[str, str]:
    return {"topic": item.topic} | ({"channel": item.channel} if item.channel else {})


def audit_word(action: Action, item: Item) -> str:
    """NSQ's name of the action, which its webhook knows."""
    return "tombstone_topic_producer" if action is Action.TOMBSTONE else f"{action}_{item.kind}"


def outcome_of(results: list[Result]) -> Outcome:
    """In a word."""
    failed = sum(not result.ok for result in results)
    if not failed:
        return "ok"
    return "failed" if failed == len(results) else "partial"
