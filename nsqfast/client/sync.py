"""Producer and Consumer for programs without an event loop: scripts, Django, Spark executors.

    with Producer("127.0.0.1:4150") as producer:
        producer.publish("topic", b"body")

    with Consumer("topic", "channel", nsqd="127.0.0.1:4150") as consumer:
        for message in consumer:
            message.finish()

They take what their namesakes in `nsqfast.client` take, which run in a thread of their own behind them. Several threads
may use one at once. They are not pickled: make one where it is used. After a fork a producer that was made
before begins anew in the child, with connections of its own; a consumer refuses to go on there.
"""

import asyncio
import atexit
import contextlib
import logging
import os
import threading
import weakref
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator
from typing import TYPE_CHECKING, Any, NoReturn, Self, TypeVar

import nsqfast.client as asynchronous
from nsqfast.client.engine import Engine
from nsqfast.client.message import MessageList
from nsqfast.client.stats import ConsumerStats, ProducerStats
from nsqfast.errors import BufferFullError, ClosedError, PublishError, PublishRefusedError
from nsqfast.names import is_valid_name

if TYPE_CHECKING:
    import nsqfast.client.batch as batch_module

log = logging.getLogger("nsqfast.client")

T = TypeVar("T")

SENDS_MAX = 1024  # that the other thread has not taken yet
CHUNK_MAX = 100


class _Owner(ABC):
    """What both have in common: an engine from the first use on, no pickling, an end when the program ends."""

    _kind: str

    def __init__(self) -> None:
        self._engine: Engine | None = None
        self._is_closed = False
        self._lock = threading.Lock()  # of the first use, and the end
        self._begin()
        _open.add(self)

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            f"a {type(self).__name__} has connections and cannot be pickled; make it where it is used, "
            "in Spark inside the function that runs on the executors"
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self.close()
        else:
            with contextlib.suppress(PublishError):
                self.close()

    def _ready(self) -> Engine:
        """The engine; the first use makes it and connects, and others wait for that."""
        engine = self._engine
        if engine is not None and engine.is_ours and not self._is_closed:
            return engine
        with self._lock:
            if self._is_closed:
                raise ClosedError(f"the {self._kind} is closed")
            if self._engine is not None and not self._engine.is_ours:
                self._after_fork(self._engine)
            if self._engine is None:
                self._engine = self._connect()
            return self._engine

    def _connect(self) -> Engine:
        engine = Engine(f"nsqfast {self._kind}")
        try:
            engine.call(self._start())
        except BaseException:
            engine.stop()
            self._begin()
            raise
        return engine

    def close(self) -> None:
        """End it; once."""
        with self._lock:
            engine = None if self._is_closed else self._engine
            self._is_closed = True
        if engine is None or not engine.is_ours:
            return
        try:
            engine.call(self._end())
        finally:
            engine.stop()

    @abstractmethod
    def _begin(self) -> None:
        """Make what runs on the engine; not connected."""

    @abstractmethod
    def _after_fork(self, engine: Engine) -> None:
        """The engine is the parent process's."""

    @abstractmethod
    def _start(self) -> Coroutine[Any, Any, None]:
        """Connect."""

    @abstractmethod
    def _end(self) -> Coroutine[Any, Any, None]:
        """Hang up."""


_open: "weakref.WeakSet[_Owner]" = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    """What was sent leaves, and what is in flight is handed back, when a program just ends."""
    for owner in list(_open):
        with contextlib.suppress(PublishError):
            owner.close()


def _unlock_all() -> None:
    """In a child process: another thread may have held a lock, and that thread is not here."""
    for owner in list(_open):
        owner._lock = threading.Lock()  # noqa: SLF001 - of this module


os.register_at_fork(after_in_child=_unlock_all)


class Producer(_Owner):
    """See nsqfast.client.Producer. It connects at the first use; its end waits for what has no answer yet."""

    _kind = "producer"

    def __init__(self, *addresses: str, **options: Any) -> None:
        def make() -> asynchronous.Producer:
            return asynchronous.Producer(*addresses, **options)

        self._make = make
        self._abandoned: list[object] = []  # a parent process's; to be left alone
        super().__init__()

    def _begin(self) -> None:
        self._producer = self._make()
        self._sends: deque[tuple[str, bytes]] = deque()
        self._pushing = asyncio.Lock()
        self._is_pushing = False
        self._tasks: set[asyncio.Future[None]] = set()
        self._topics: set[str] = set()
        self._failure: PublishError | None = None

    def _after_fork(self, engine: Engine) -> None:
        self._abandoned += [engine, self._producer]
        self._engine = None
        self._begin()

    def _start(self) -> Coroutine[Any, Any, None]:
        return self._producer.start()

    def _end(self) -> Coroutine[Any, Any, None]:
        return self._settle(self._producer.close())

    def publish(self, topic: str, body: bytes) -> None:
        """Return when an nsqd has taken the message; a PublishError says why none did."""
        self._ready().call(self._producer.publish(topic, body))

    def publish_many(self, topic: str, bodies: Iterable[bytes]) -> None:
        """One MPUB: all of them or none."""
        self._ready().call(self._producer.publish_many(topic, list(bodies)))

    def publish_later(self, topic: str, body: bytes, delay_s: float) -> None:
        """Like `publish`; nsqd holds the message back for so long."""
        self._ready().call(self._producer.publish_later(topic, body, delay_s))

    def send(self, topic: str, body: bytes) -> None:
        """Like `publish`, without waiting for the answer; `flush` and `close` raise what went wrong.

        Where too much waits for an answer already, it waits, too.
        """
        engine = self._ready()
        if topic not in self._topics:
            if not is_valid_name(topic):
                raise PublishRefusedError(f'E_BAD_TOPIC PUB topic name "{topic}" is not valid')
            self._topics.add(topic)
        if not isinstance(body, bytes) or not body:
            raise TypeError("a message body is bytes, and not empty")
        self._sends.append((topic, body))
        if len(self._sends) >= SENDS_MAX:
            engine.call(self._push())
        elif not self._is_pushing:
            self._is_pushing = True
            engine.post(self._push_soon)

    def _push_soon(self) -> None:
        """On the loop."""
        self._is_pushing = False
        task = asyncio.ensure_future(self._push())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _push(self) -> None:
        """Pass on what was sent, as fast as answers make room for it."""
        async with self._pushing:
            while self._sends:
                topic, body = self._sends.popleft()
                try:
                    self._producer.send(topic, body)
                except BufferFullError:
                    self._sends.appendleft((topic, body))
                    await self._producer.drain()
                except PublishError as error:
                    self._failure = self._failure or error

    def flush(self) -> None:
        """Return when all sent so far has its answer; raise the first failure of a `send` since the last time."""
        self._ready().call(self._settle(self._producer.flush()))

    async def _settle(self, ending: Coroutine[Any, Any, None]) -> None:
        try:
            await self._push()
        finally:
            await ending
        failure, self._failure = self._failure, None
        if failure:
            raise failure

    def stats(self) -> ProducerStats:
        """What was done and what waits."""
        return self._ready().call(_do(self._producer.stats))


class Message:
    """See nsqfast.client.Message; what it says to nsqd leaves from the other thread, so there is nothing to return.

    After the end of its consumer, which handed it back, nothing is said any more.
    """

    __slots__ = ("_engine", "_message", "is_answered")

    def __init__(self, message: asynchronous.Message, engine: Engine) -> None:
        self._message = message
        self._engine = engine
        self.is_answered = False

    @property
    def body(self) -> bytes:
        return self._message.body

    @property
    def id(self) -> bytes:
        return self._message.id

    @property
    def attempts(self) -> int:
        return self._message.attempts

    @property
    def timestamp_ns(self) -> int:
        return self._message.timestamp_ns

    def finish(self) -> None:
        """FIN: it is done with."""
        self.is_answered = True
        self._engine.post(self._message.finish)

    def requeue(self, delay_s: float | None = None, *, backoff: bool = True) -> None:
        """REQ: deliver it again after so long; None = default_requeue_delay × attempts."""
        self.is_answered = True
        message = self._message
        self._engine.post(lambda: message.requeue(delay_s, backoff=backoff))

    def touch(self) -> None:
        """TOUCH: its time in flight begins anew."""
        self._engine.post(self._message.touch)


class Batch(MessageList[Message]):
    """Messages that came together, to be answered together or one by one."""

    __slots__ = ()

    def finish(self) -> None:
        """FIN to all that are not answered yet."""
        for message in self.messages:
            if not message.is_answered:
                message.finish()

    def requeue(self, delay_s: float | None = None, *, backoff: bool = True) -> None:
        """REQ likewise; the whole batch is one failure to the consumer's backoff."""
        for number, message in enumerate(self.messages):
            if not message.is_answered:
                message.requeue(delay_s, backoff=backoff and number == 0)


class ArrayBatch:
    """See nsqfast.client.batch.ArrayBatch."""

    def __init__(self, batch: "batch_module.ArrayBatch", engine: Engine) -> None:
        self._batch = batch
        self._engine = engine
        self.bodies = batch.bodies
        self.offsets = batch.offsets
        self.timestamps = batch.timestamps
        self.attempts = batch.attempts
        self.ids = batch.ids
        self.body = batch.body

    def __len__(self) -> int:
        return len(self._batch)

    def finish(self, rows: "batch_module.Rows | None" = None) -> int:
        """FIN to those rows, or to all that are not answered; returns how many were told."""
        return self._engine.call(_do(lambda: self._batch.finish(rows)))

    def requeue(self, rows: "batch_module.Rows | None" = None, *, delay_s: float = 0.0) -> int:
        """REQ likewise."""
        return self._engine.call(_do(lambda: self._batch.requeue(rows, delay_s=delay_s)))


class Consumer(_Owner):
    """See nsqfast.client.Consumer. It connects at the first use; its end hands back what is not answered."""

    _kind = "consumer"

    def __init__(self, topic: str, channel: str, **options: Any) -> None:
        def make() -> asynchronous.Consumer:
            return asynchronous.Consumer(topic, channel, **options)

        self._make = make
        config: asynchronous.Config = options.get("config") or asynchronous.Config()
        # Taken from the other thread at a time; what one program thread holds another one cannot have.
        self._chunk = max(1, min(CHUNK_MAX, config.max_in_flight // 4))
        super().__init__()

    def __enter__(self) -> Self:
        self._ready()
        return self

    def _begin(self) -> None:
        self._consumer = self._make()

    def _after_fork(self, engine: Engine) -> None:  # noqa: ARG002 - another owner needs it
        raise ClosedError("the consumer was made before a fork; make one in the child")

    def _start(self) -> Coroutine[Any, Any, None]:
        return self._consumer.start()

    def _end(self) -> Coroutine[Any, Any, None]:
        return self._consumer.stop()

    def __iter__(self) -> Iterator[Message]:
        engine = self._ready()
        while messages := self._take(engine, self._chunk, None):
            try:
                while messages:
                    yield Message(messages.pop(0), engine)
            finally:
                for message in messages:  # the loop was left early
                    engine.post(lambda message=message: message.requeue(0, backoff=False))

    def get(self, timeout_s: float | None = None) -> Message | None:
        """The next message; None after `timeout_s`, or at the end."""
        engine = self._ready()
        messages = self._take(engine, 1, timeout_s)
        return Message(messages[0], engine) if messages else None

    def _take(
        self, engine: Engine, count_max: int, timeout_s: float | None
    ) -> list[asynchronous.Message]:
        try:
            return engine.call(self._consumer.take(count_max, timeout_s))
        except ClosedError:  # by another thread
            return []

    def batches(self, max_messages: int = 100, max_wait_s: float = 1.0) -> Iterator[Batch]:
        """Lists of up to `max_messages`; a shorter one after `max_wait_s`, or if no more may be in flight."""
        engine = self._ready()
        found = self._consumer.batches(max_messages, max_wait_s)
        while (batch := engine.call(_next(found))) is not None:
            yield Batch([Message(message, engine) for message in batch.messages])

    def arrays(self, max_messages: int = 10_000, max_wait_s: float = 1.0) -> Iterator[ArrayBatch]:
        """The same as numpy arrays. A consumer that has begun so gives nothing else any more."""
        engine = self._ready()
        found = self._consumer.arrays(max_messages, max_wait_s)
        while (batch := engine.call(_next(found))) is not None:
            yield ArrayBatch(batch, engine)

    def run(self, handler: Callable[[Message], object]) -> None:
        """Call `handler` with one message after the other, in this thread, until `request_stop`.

        Its return finishes the message, an exception requeues it with backoff; unless it was answered already.
        """
        for message in self:
            try:
                handler(message)
            except Exception:
                log.warning("the handler failed", exc_info=True)
                if not message.is_answered:
                    message.requeue()
            else:
                if not message.is_answered:
                    message.finish()

    def request_stop(self) -> None:
        """Have iterators and `run` end; for a signal handler or another thread."""
        self._ready().post(self._consumer.request_stop)

    def stats(self) -> ConsumerStats:
        """What was done and what is under way."""
        return self._ready().call(_do(self._consumer.stats))


async def _do(action: Callable[[], T]) -> T:
    return action()


async def _next(found: AsyncIterator[T]) -> T | None:
    async for item in found:
        return item
    return None
