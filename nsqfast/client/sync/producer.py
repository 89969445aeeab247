"""Publish from program threads."""

import asyncio
import contextlib
import dataclasses
import threading
import time
from collections import Counter, deque
from collections.abc import Coroutine, Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any, ClassVar, Generic, NamedTuple, Protocol

import nsqfast.client.producer as asynchronous
from nsqfast._ext.client.direct import Direct
from nsqfast._ext.protocol.publish_command import check_body
from nsqfast.client.config import Config, check_delay_s
from nsqfast.client.delayed import check_handle
from nsqfast.client.lifetime import Logger
from nsqfast.client.middleware import Middleware, around_publish
from nsqfast.client.payload import Body_contra, Encoder, add_encoder
from nsqfast.client.stats import ProducerStats
from nsqfast.client.sync.loop_thread import LoopThread
from nsqfast.client.sync.message import DelayedMessage
from nsqfast.client.sync.owner import Owner
from nsqfast.errors import (
    BufferFullError,
    ClosedError,
    ConnectError,
    NsqfastError,
    OutcomeUnknownError,
    PublishError,
    PublishRefusedError,
)
from nsqfast.wire.names import check_name

# The loop is good enough for a thread that publishes now and then; the connection is for one that keeps publishing.
PUBLISHES_BEFORE = 2
REFRESH_S = 1.0


class ConnectionOpener(Protocol):
    """What the route needs of a producer."""

    @property
    def connected_addresses(self) -> list[str]: ...
    async def open_connection_fd(self, address: str) -> int: ...


class DirectRoute:
    """Publish one message at a time without the loop's thread: a second connection to each nsqd, on which the calling
    thread writes and waits. Going through the loop's thread costs two thread switches for each publish.

    Used by one thread at a time; other threads, and publishes without a direct connection, use the loop.
    """

    def __init__(self, opener: ConnectionOpener, timeout_s: float, *, is_sticky: bool) -> None:
        self.published = 0
        self.failed = 0
        self._opener = opener
        self._timeout_s = timeout_s
        self._is_sticky = is_sticky
        self._directs: dict[str, Direct] = {}
        self._turn = 0
        self._lock = threading.Lock()
        self._is_closed = False
        self._publishes = 0
        self._refresh_at_s = 0.0
        self._is_refreshing = False

    def wants_refresh(self) -> bool:
        """Whether `refresh` should be called on the loop soon; asked once per publish."""
        self._publishes += 1
        if self._publishes < PUBLISHES_BEFORE or self._is_refreshing or self._is_closed:
            return False
        now_s = time.monotonic()
        if now_s < self._refresh_at_s:
            return False
        self._refresh_at_s = now_s + REFRESH_S
        self._is_refreshing = True
        return True

    async def refresh(self) -> None:
        """Connect to the nsqd to which the producer is connected, and disconnect from the others."""
        try:
            found = {address: one for address, one in self._directs.items() if one.is_open}
            for address in self._opener.connected_addresses:
                if address not in found and (direct := await self._open(address)):
                    found[address] = direct
            wanted = [] if self._is_closed else self._opener.connected_addresses
            for address in found.keys() - set(wanted):
                found[address].close()
            # In order of preference, and in a new dict: a thread may be iterating over the old one.
            self._directs = {address: found[address] for address in wanted if address in found}
        finally:
            self._is_refreshing = False

    async def _open(self, address: str) -> Direct | None:
        try:
            fd = await self._opener.open_connection_fd(address)
        except (NsqfastError, OSError):
            return None  # the loop's own connection reports the failure and retries
        return Direct(fd) if fd >= 0 else None

    def publish(self, head: bytes, body: bytes) -> bool:
        """Whether nsqd has the message; False = it was not sent. Other failures raise as in the producer."""
        if not self._directs or not self._lock.acquire(blocking=False):
            return False
        try:
            direct = self._choose()
            if direct is None:
                return False
            direct.ask(head, body, self._timeout_s)
        except ConnectError:
            return False
        else:
            self.published += 1
            return True
        finally:
            self._lock.release()

    def _choose(self) -> Direct | None:
        usable = [direct for direct in self._directs.values() if direct.is_open]
        if not usable:
            return None
        if self._is_sticky:
            return usable[0]
        self._turn = (self._turn + 1) % len(usable)
        return usable[self._turn]

    def forget(self, address: str) -> None:
        """Disconnect from this address."""
        directs = dict(self._directs)
        if direct := directs.pop(address, None):
            self._directs = directs
            direct.close()

    def close(self) -> None:
        """Disconnect; a publish that waits for its answer gets it first."""
        self._is_closed = True
        for direct in self._directs.values():
            direct.close()


SENDS_MAX = 1024  # sends that the other thread has not taken yet
TOPICS_KEPT_MAX = 10_000


class Sent(NamedTuple):
    """A publish that nobody waits for: of one body, of several, or of one with a delay."""

    topic: str
    body: bytes | list[bytes]
    delay_s: float | None = None

    @property
    def message_count(self) -> int:
        return 1 if isinstance(self.body, bytes) else len(self.body)

    def send(self, producer: asynchronous.Producer) -> None:
        """On the loop."""
        if not isinstance(self.body, bytes):
            producer.send_many(self.topic, self.body)
        elif self.delay_s is None:
            producer.send(self.topic, self.body)
        else:
            producer.send_later(self.topic, self.body, self.delay_s)


class Producer(Owner, Generic[Body_contra]):
    """See nsqfast.client.Producer. Connects at the first use; its end waits for unanswered publishes."""

    kind: ClassVar[str] = "producer"

    def __init__(
        self,
        *addresses: str | Sequence[str],
        config: Config | None = None,
        retries: int = asynchronous.RETRIES,
        timeout_s: float = asynchronous.TIMEOUT_S,
        close_timeout_s: float = asynchronous.CLOSE_TIMEOUT_S,
        buffer_count_max: int = asynchronous.BUFFER_COUNT_MAX,
        buffer_bytes_max: int = asynchronous.BUFFER_BYTES_MAX,
        sticky: bool = False,
        encoder: Encoder[Body_contra] | None = None,
        middleware: Sequence[Middleware] = (),
        logger: Logger | None = None,
    ) -> None:
        def build() -> asynchronous.Producer:
            return asynchronous.Producer(
                *addresses,
                config=config,
                retries=retries,
                timeout_s=timeout_s,
                close_timeout_s=close_timeout_s,
                buffer_count_max=buffer_count_max,
                buffer_bytes_max=buffer_bytes_max,
                sticky=sticky,
                logger=logger,
            )

        self._build = build
        self._timeout_s = timeout_s
        self._retries = retries
        self._is_sticky = sticky
        self._close_timeout_s = close_timeout_s
        self._middleware = add_encoder(encoder, middleware)
        self._abandoned: list[object] = []  # a parent process's; leave them alone
        super().__init__(logger)

    @property
    def _name(self) -> str:
        return self._producer.name

    def _make(self) -> None:
        self._producer = self._build()
        self._last_stats: ProducerStats | None = None
        self._sends: deque[Sent] = deque()
        self._pushing = asyncio.Lock()
        self._is_pushing = False
        self._tasks: set[asyncio.Future[None]] = set()
        self._heads: dict[str, bytes] = {}
        self._route = DirectRoute(self._producer, self._timeout_s, is_sticky=self._is_sticky)

    def _before_start(self) -> None:
        """Nothing to do: no request can precede the start."""

    def _after_fork(self, loop_thread: LoopThread) -> None:
        self._abandoned += [loop_thread, self._producer]
        self._loop_thread = None
        self._is_connected = False
        self._make()

    def _start(self) -> Coroutine[Any, Any, None]:
        return self._producer.start()

    async def _end(self) -> None:
        self._route.close()
        try:
            async with asyncio.timeout(self._close_timeout_s):
                await self._push()
        except TimeoutError:
            pass
        finally:
            left = Counter[str]()
            for sent in self._sends:
                left[sent.topic] += sent.message_count
            self._sends.clear()
            error = await self._producer.finish(left)
            with contextlib.suppress(ClosedError):  # it had not begun
                self._last_stats = self._all_stats()
        if error is not None:
            raise error

    # -- publishing

    def publish(self, topic: str, body: Body_contra) -> None:
        """Return when an nsqd has taken the message; a PublishError says why none has."""
        if self._middleware:
            with around_publish(self._middleware, topic, [body]) as (changed,):
                self._publish(topic, changed)
        else:
            self._publish(topic, body)

    def _publish(self, topic: str, body: Any) -> None:
        loop_thread = self._ready()
        head = self._head(topic)
        if self._route.wants_refresh():
            loop_thread.post(self._refresh_route)
        deadline_s = time.monotonic() + self._timeout_s
        try:
            if self._may_go_directly(body) and self._route.publish(head, body):
                return
        except (OutcomeUnknownError, PublishRefusedError) as error:
            left_s = deadline_s - time.monotonic()
            may_be_there = isinstance(error, OutcomeUnknownError)
            is_final = isinstance(error, PublishRefusedError) and not error.is_passing
            if is_final or left_s <= 0 or self._retries == 0:
                self._route.failed += 1
                raise
            work = self._producer.publish_again(topic, body, left_s, may_be_there=may_be_there)
        else:
            work = self._producer.publish(topic, body)
        loop_thread.call(work)

    def _may_go_directly(self, body: object) -> bool:
        """Whether a publish may take the direct connection.

        It must not overtake earlier unanswered sends. Bodies that need conversion, or have to be refused, take the
        normal way.
        """
        return isinstance(body, bytes) and bool(body) and not self._sends and self._producer.is_idle

    def _head(self, topic: str) -> bytes:
        """The line of a PUB; a name that nsqd would refuse by closing the connection is refused here."""
        head = self._heads.get(topic)
        if head is None:
            check_name("topic", topic)
            if len(self._heads) >= TOPICS_KEPT_MAX:
                self._heads.clear()
            head = self._heads[topic] = b"PUB %s\n" % topic.encode("ascii")
        return head

    def _refresh_route(self) -> None:
        """On the loop."""
        self._keep_task(self._route.refresh())

    def publish_many(self, topic: str, bodies: Iterable[Body_contra]) -> None:
        """Send one MPUB: all bodies or none."""
        with around_publish(self._middleware, topic, list(bodies)) as changed:
            self._ready().call(self._producer.publish_many(topic, changed))

    def publish_later(self, topic: str, body: Body_contra, delay_s: float) -> None:
        """Like `publish`, but nsqd holds the message back for this long."""
        with around_publish(self._middleware, topic, [body]) as (changed,):
            self._ready().call(self._producer.publish_later(topic, changed, delay_s))

    def publish_delayed(
        self, topic: str, body: Body_contra, delay: timedelta | datetime
    ) -> "DelayedMessage":
        """Like `publish`, but nsqd holds the message back for this long, or until then."""
        with around_publish(self._middleware, topic, [body]) as (changed,):
            found = self._ready().call(self._producer.publish_delayed(topic, changed, delay))
        return DelayedMessage(found.topic, found.nsqd, found.id, self)

    def delayed_message(self, topic: str, nsqd: str, id: bytes) -> "DelayedMessage":
        """The handle of a message that was published earlier, by this process or another."""
        check_handle(topic, nsqd, id)
        return DelayedMessage(topic, nsqd, id, self)

    def end_deferral(self, command: bytes, topic: str, nsqd: str, id: bytes | None) -> int:
        """Used by DelayedMessage."""
        return self._ready().call(self._producer.end_deferral(command, topic, nsqd, id))

    def send(self, topic: str, body: Body_contra) -> None:
        """Like `publish`, without waiting for the answer; `flush` and `close` raise failures.

        If too many messages wait for answers already, it waits, too.
        """
        if self._middleware:
            with around_publish(self._middleware, topic, [body]) as (changed,):
                self._send(topic, _checked(changed))
        else:
            self._send(topic, _checked(body))

    def send_many(self, topic: str, bodies: Iterable[Body_contra]) -> None:
        """Like `publish_many`, without waiting."""
        with around_publish(self._middleware, topic, list(bodies)) as changed:
            if changed:
                self._send(topic, [_checked(body) for body in changed])

    def send_later(self, topic: str, body: Body_contra, delay_s: float) -> None:
        """Like `publish_later`, without waiting."""
        with around_publish(self._middleware, topic, [body]) as (changed,):
            self._send(topic, _checked(changed), check_delay_s(delay_s, low=0))

    def _send(self, topic: str, body: bytes | list[bytes], delay_s: float | None = None) -> None:
        loop_thread = self._ready()
        self._head(topic)
        self._sends.append(Sent(topic, body, delay_s))
        if len(self._sends) >= SENDS_MAX:
            loop_thread.call(self._push())
        elif not self._is_pushing:
            self._is_pushing = True
            loop_thread.post(self._push_soon)

    def _push_soon(self) -> None:
        """On the loop."""
        self._is_pushing = False
        self._keep_task(self._push())

    def _keep_task(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _push(self) -> None:
        """Pass on what was sent, as fast as answers make room."""
        async with self._pushing:
            while self._sends:
                sent = self._sends[0]  # it stays here until nothing can overtake it any more
                try:
                    sent.send(self._producer)
                except BufferFullError:
                    await self._producer.drain()
                    continue
                except PublishError as error:
                    self._producer.note_lost(sent.topic, sent.message_count, error)
                self._sends.popleft()

    def flush(self) -> None:
        """Return when everything sent has its answer; raise the first failure of a `send` since the last call."""
        self._ready().call(self._flush())

    async def _flush(self) -> None:
        try:
            await self._push()
        finally:
            await self._producer.flush()

    # -- while it runs

    def ping(self, timeout_s: float | None = None) -> None:
        """Return when an nsqd is connected and was sent a NOP; NotConnectedError says why none is."""
        self._ready().call(self._producer.ping(timeout_s))

    def add_nsqd(self, address: str) -> None:
        """Publish to this nsqd, too; returns after the first attempt. RefusedError: it refuses us."""
        self._ready().call(self._producer.add_nsqd(address))

    def drop_nsqd(self, address: str) -> None:
        """Stop publishing to this nsqd, wait up to `close_timeout_s` for its answers, and disconnect."""
        self._ready().call(self._producer.drop_nsqd(address))
        self._route.forget(address)

    @property
    def is_connected(self) -> bool:
        """Whether a publish could be sent now."""
        return self._ask(lambda: self._producer.is_connected)

    def stats(self) -> ProducerStats:
        """Counts so far, and what is waiting; after the end, the final counts."""
        return self._last_stats or self._ask(self._all_stats)

    def _all_stats(self) -> ProducerStats:
        stats = self._producer.stats()
        return dataclasses.replace(
            stats,
            published=stats.published + self._route.published,
            failed=stats.failed + self._route.failed,
        )


def _checked(body: Any) -> bytes:
    return body if type(body) is bytes and body else check_body(body)
