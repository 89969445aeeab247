"""Clients of a broker under test that write down what they learn."""

from __future__ import annotations

import random
import signal
import time
from collections import deque
from typing import TYPE_CHECKING, Self

from support.web import post
from support.wire import BARRIER_TOPIC, Client, encode_command, encode_messages

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from durability.crash.ledger import Ledger
    from support.server import Server
    from support.wire import Message

BASE_FLAGS = ("--mem-queue-size=0", "--sync-every=1")
SECONDS_MAX = 10.0


class Broker:
    """One that a workload may stop and start again in its folder."""

    def __init__(
        self, start: Callable[[], Server], kill_signal: signal.Signals = signal.SIGKILL
    ) -> None:
        self._start = start
        self._kill_signal = kill_signal
        self.server = start()

    @property
    def tcp(self) -> tuple[str, int]:
        return self.server.tcp

    @property
    def http(self) -> tuple[str, int]:
        return self.server.http

    def stop(self) -> None:
        self.server.stop()

    def kill(self) -> None:
        """Death without warning, by a signal that may be somebody else's word for it."""
        if self.server.process.poll() is None:
            self.server.process.send_signal(self._kill_signal)
            self.server.process.wait(SECONDS_MAX)
        self.server.kill()

    def restart(self) -> None:
        """Stopped in good order, or killed already."""
        self.server.stop()
        self.server = self._start()

    def ask(self, path: str, topic: str, channel: str = "", more: str = "") -> None:
        """An operator's request: `ask("/topic/pause", "t")`."""
        target = f"{path}?topic={topic}" + (f"&channel={channel}" if channel else "") + more
        answer = post(self.http, target)
        assert answer.status == 200, answer

    def make(self, topic: str, *channels: str) -> None:
        self.ask("/topic/create", topic)
        for channel in channels:
            self.ask("/channel/create", topic, channel)

    def drop(self, ledger: Ledger, path: str, topic: str, *channels: str) -> None:
        """/…/empty or /…/delete: of the channel, or of the topic with its channels."""
        is_channel = path.startswith("/channel")
        targets = [f"{topic}:{channel}" for channel in channels]
        if not is_channel:
            targets.append(topic)
        for target in targets:
            ledger.dropped(target)
        self.ask(path, topic, channels[0] if is_channel else "")
        for target in targets:
            ledger.drop_answered(target)

    def pick(self, ledger: Ledger, action: str, source: str, needle: str, to: str = "") -> None:
        """All that contains `needle` in the channel, whatever its state; what moves is in the channel `to` then."""
        topic, channel = source.split(":")
        waiting = ledger.must_have(time.monotonic_ns()).get(source, set())
        bodies = [body for body in waiting if needle.encode() in body]
        takes = action in ("drop", "move")
        for body in bodies if takes else ():
            ledger.finish_sent(source, body)
        more = f"&filter={needle}" + (f"&to={to.split(':', maxsplit=1)[0]}" if to else "")
        # What is in flight comes last: its consumer gets others then, and none of those is left.
        for state in ("ready", "deferred", "in_flight"):
            self.ask(f"/channel/messages/{action}", topic, channel, f"{more}&state={state}")
        if takes:
            ledger.finish_confirmed(source, *bodies)
        if to:
            ledger.accepted(bodies, [to])


class Publisher:
    """`targets` are the queues that what it publishes goes to, as they are when it publishes."""

    def __init__(self, broker: Broker, ledger: Ledger, topic: str, seed: int) -> None:
        self.ledger = ledger
        self.topic = topic
        self.targets: Sequence[str] = (topic,)
        self.client = Client(broker.tcp, seconds_max=SECONDS_MAX)
        self.random = random.Random(f"{seed} {topic}")
        self.prefix = b"%s-%08x" % (topic.encode(), self.random.getrandbits(32))
        self.number = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.client.close()

    def to(self, *channels: str) -> Self:
        """From now on the topic has these channels."""
        self.targets = [f"{self.topic}:{channel}" for channel in channels] or [self.topic]
        return self

    def _bodies(self, count: int) -> list[bytes]:
        bodies = []
        for _ in range(count):
            self.number += 1
            padding = self.random.randrange(40, 300)
            bodies.append(b"%s-%d-" % (self.prefix, self.number) + b"." * padding + b"!")
        self.ledger.sent(*bodies)
        return bodies

    def _heard(self, bodies: Iterable[bytes]) -> None:
        answer = self.client.read_response()
        assert answer == b"OK", answer
        self.ledger.accepted(bodies, self.targets)

    def pub(self, count: int = 1) -> None:
        for body in self._bodies(count):
            self.client.command("PUB", self.topic, body=body)
            self._heard([body])

    def mpub(self, *counts: int) -> None:
        for count in counts:
            bodies = self._bodies(count)
            self.client.command("MPUB", self.topic, body=encode_messages(bodies))
            self._heard(bodies)

    def defer(self, count: int, delay_ms_max: int) -> None:
        """DPUB, each for a while of its own."""
        for body in self._bodies(count):
            delay = str(self.random.randrange(10, delay_ms_max))
            self.client.command("DPUB", self.topic, delay, body=body)
            self._heard([body])

    def window(self, count: int, width: int, halfway: Callable[[], object] = lambda: None) -> None:
        """PUBs with up to that many of them unanswered; `halfway` is called while they are."""
        waiting: deque[bytes] = deque()
        for number, body in enumerate(self._bodies(count)):
            if number == count // 2:
                halfway()
            self.client.send(encode_command("PUB", self.topic, body=body))
            waiting.append(body)
            if len(waiting) == width:
                self._heard([waiting.popleft()])
        while waiting:
            self._heard([waiting.popleft()])


class Consumer:
    """One subscription; what it finishes is written down before the FIN leaves."""

    def __init__(self, broker: Broker, ledger: Ledger, topic: str, channel: str, rdy: int) -> None:
        self.ledger = ledger
        self.target = f"{topic}:{channel}"
        self.client = Client(broker.tcp, seconds_max=SECONDS_MAX)
        self.client.sub(topic, channel, rdy)
        self._unproved: list[bytes] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.client.close()

    def take(self, count: int) -> list[Message]:
        return self.client.read_messages(count)

    def finish(self, messages: Iterable[Message]) -> None:
        for message in messages:
            self.ledger.finish_sent(self.target, message.body)
            self.client.fin(message)
            self._unproved.append(message.body)

    def requeue(self, messages: Iterable[Message], delay_ms: int = 0) -> None:
        for message in messages:
            self.client.command("REQ", message.id, str(delay_ms))

    def prove(self) -> None:
        """Have something answered behind the FINs and REQs: they were processed."""
        assert self.client.ask("PUB", BARRIER_TOPIC, body=b"-") == b"OK"
        self.ledger.finish_confirmed(self.target, *self._unproved)
        self._unproved = []

    def take_distinct(self, bodies: Iterable[bytes]) -> list[Message]:
        """Until each of these has come at least once; of each, the last delivery."""
        wanted = set(bodies)
        latest: dict[bytes, Message] = {}
        while not wanted <= latest.keys():
            message = self.client.read_message()
            latest[message.body] = message
        return [latest[body] for body in wanted]
