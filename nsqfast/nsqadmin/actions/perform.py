"""Send commands to nsqlookupd, then to nsqd, to all of a kind in parallel within limits; with a result for each."""

import asyncio
import re
from dataclasses import dataclass, field
from typing import Final

from nsqfast.nsqadmin.actions.order import Action, Item
from nsqfast.nsqadmin.actions.targets import Target
from nsqfast.nsqadmin.cluster.client import Upstream, UpstreamError
from nsqfast.nsqadmin.cluster.steps import Step, steps_of
from nsqfast.nsqadmin.results import Result

NODES_AT_ONCE: Final = 16
NOT_FOUND: Final = 404
_NSQ_WORD: Final = re.compile(r'got response (\d+) [^"]*"\{\\"message\\":\\"([A-Z_]+)\\"\}"$')


@dataclass(slots=True)
class Teller:
    """Sends the steps of one job. A node that once did not answer is not waited for again in the same job."""

    upstream: Upstream
    silent: dict[str, str] = field(default_factory=dict)
    slots: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(NODES_AT_ONCE))

    async def perform(self, action: Action, target: Target) -> list[Result]:
        """One result per address, nsqlookupd first: that of the failed step, if one failed."""
        results: dict[str, Result] = {}
        for step in steps_for(action, target):
            # The following steps would fail, too: a channel needs its topic.
            left = [
                address
                for address in dict.fromkeys(step.addresses)
                if address not in results or results[address].ok
            ]
            for result in await asyncio.gather(*(self._tell(one, step) for one in left)):
                results[result.node] = result
        return list(results.values())

    async def _tell(self, address: str, step: Step) -> Result:
        async with self.slots:
            if address in self.silent:
                return Result(address, ok=False, text=f"not asked again: {self.silent[address]}")
            try:
                await self.upstream.post(address, step.target)
            except UpstreamError as error:
                if error.status == NOT_FOUND and step.may_lack:
                    return Result(address, ok=True, text="was not there")
                text = cause_of(error, f"http://{address}{step.target}")
                if not error.status:
                    self.silent[address] = text
                return Result(address, ok=False, text=text)
        return Result(address, ok=True)


def cause_of(error: UpstreamError, url: str) -> str:
    """A short reason: nsqd's own words if there are any."""
    text = str(error).removeprefix(f"{url}: ")
    found = _NSQ_WORD.search(text)
    return f"{found[1]} {found[2]}" if found else text


def steps_for(action: Action, target: Target) -> list[Step]:
    """A channel is created together with its topic."""
    item = target.item
    names = [(item.topic, "")] if action is Action.CREATE and item.channel else []
    names.append((item.topic, item.channel))
    return [
        step
        for topic, channel in names
        for step in steps_of(action, topic, channel, lookupds=target.lookupds, nodes=target.nodes)
    ]


def audit_word(action: Action, item: Item) -> str:
    """NSQ's name of the action, as its webhook knows it."""
    return "tombstone_topic_producer" if action is Action.TOMBSTONE else f"{action}_{item.kind}"
