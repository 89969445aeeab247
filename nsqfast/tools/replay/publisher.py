"""Send batches to nsqd: several at a time, finished in order.

nsqd refuses a whole MPUB for one message that is too large, and reveals its limit only then. So a batch that is larger
than any before, or has a larger message, is sent alone: no later batch can be published before it.
"""

import asyncio
import re
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from nsqfast.archives import Damage
from nsqfast.archives.records import OnDamage
from nsqfast.client import Producer
from nsqfast.errors import NotConnectedError, OutcomeUnknownError, PublishError, PublishRefusedError
from nsqfast.tools.replay.batches import Batch, Limits, Publish, split_publish
from nsqfast.tools.shared.program import ToolError

TOO_BIG = re.compile(r"(message|body) too big (\d+) > (\d+)")


@dataclass(slots=True)
class _Sent:
    batch: Batch
    publishes: list[Publish]
    futures: "list[asyncio.Future[None]]"


class FilePublisher:
    """`on_published` is called for each batch once all of it has its OK, in the order of the batches."""

    def __init__(
        self,
        producer: Producer,
        window: int,
        limits: Limits,
        on_published: Callable[[Batch], None],
        on_damage: OnDamage,
    ) -> None:
        self._producer = producer
        self._window = window
        self._limits = limits
        self._on_published = on_published
        self._on_damage = on_damage
        self._waiting: deque[_Sent] = deque()
        self._body_size_proven = 0
        self._record_size_proven = 0

    async def put(self, batch: Batch) -> None:
        """Return when the batch was sent; ToolError: no nsqd takes it, or an earlier one."""
        if not self._is_proven(batch):
            await self.wait_answers()
            self._send(batch)
            await self.wait_answers()
            return
        while len(self._waiting) >= self._window:
            await self._finish_oldest()
        self._send(batch)

    async def wait_answers(self) -> None:
        """Return when everything that was put has its answer."""
        while self._waiting:
            await self._finish_oldest()

    def _is_proven(self, batch: Batch) -> bool:
        return all(
            one.record_size_max <= self._record_size_proven
            and len(one.bodies.data) <= self._body_size_proven
            for one in batch.publishes
        )

    def _send(self, batch: Batch) -> None:
        publishes: list[Publish] = []
        for publish in [*batch.publishes]:
            if self._fits(publish):
                publishes.append(publish)
            else:
                publishes += self._split(batch, publish)
        futures = [self._producer.send_encoded(one.topic, one.bodies) for one in publishes]
        for future in futures:
            future.add_done_callback(_look_at)
        self._waiting.append(_Sent(batch, publishes, futures))

    def _fits(self, publish: Publish) -> bool:
        limits = self._limits
        return (
            publish.record_size_max <= limits.record_size_max
            and len(publish.bodies.data) <= limits.body_size_max
        )

    def _split(self, batch: Batch, publish: Publish) -> list[Publish]:
        """The part that nsqd takes; the rest is reported as damage."""
        kept, left = split_publish(publish, self._limits)
        for position, size in left:
            reason = f"a message of {size} bytes; nsqd takes {self._limits.record_size_max}"
            self._on_damage(Damage(batch.archive.path, f"{batch.unit} {position}", reason))
            batch.damaged += 1
        at = batch.publishes.index(publish)
        batch.publishes[at : at + 1] = kept
        return kept

    async def _finish_oldest(self) -> None:
        sent = self._waiting[0]
        if sent.futures:
            await asyncio.wait(sent.futures)
        # For a batch without trouble there is no await from here to its note.
        self._waiting.popleft()
        for publish, future in zip(sent.publishes, sent.futures, strict=True):
            error = future.exception()
            if error is None:
                self._body_size_proven = max(self._body_size_proven, len(publish.bodies.data))
                self._record_size_proven = max(self._record_size_proven, publish.record_size_max)
            elif self._learn(publish, error):
                await self._send_smaller(sent.batch, publish)
            else:
                raise ToolError(f"topic {publish.topic}: {_explain(error)}") from None
        self._on_published(sent.batch)

    def _learn(self, publish: Publish, error: BaseException) -> bool:
        """Whether it was refused for a size, which is remembered from now on."""
        if not isinstance(error, PublishRefusedError) or not (
            found := TOO_BIG.search(error.reason)
        ):
            return False
        size_max = int(found[3])
        if found[1] == "message":
            self._limits.message_size_max = min(self._limits.message_size_max, size_max)
        else:
            self._limits.body_size_max = min(self._limits.body_size_max, size_max)
        return not self._fits(publish)

    async def _send_smaller(self, batch: Batch, publish: Publish) -> None:
        """Send parts that nsqd takes, without records that it never takes."""
        for part in self._split(batch, publish):
            try:
                await self._producer.send_encoded(part.topic, part.bodies)
            except PublishError as error:
                if not self._learn(part, error):
                    raise ToolError(f"topic {part.topic}: {_explain(error)}") from None
                await self._send_smaller(batch, part)


def _look_at(future: "asyncio.Future[None]") -> None:
    """Retrieve errors that came after the end, so that asyncio does not complain."""
    if not future.cancelled():
        future.exception()


def _explain(error: BaseException) -> str:
    if isinstance(error, OutcomeUnknownError):
        return f"{error}; its last batch may be there or not"
    if isinstance(error, NotConnectedError):
        return f"{error}; see --retry-for"
    return str(error)
