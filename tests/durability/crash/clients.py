"""Clients of a broker under test that write down what they learn."""

from __future__ import annotations

import json
import random
import signal
import time
from collections import deque
from typing import TYPE_CHECKING, Self

from support.waiting import eventually
from support.web import get, post, request
from support.wire import BARRIER_TOPIC, Client, encode_command, encode_messages

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from durability.crash.ledger import Ledger
    from support.server import Server
    from support.wire import Message

SECONDS_MAX = 10.0
# Lasting, so that an answer waits for the log.
PROOF_TOPIC = "proof"


class Broker:
    """One that a workload may stop and start again in its folder."""

    def __init__(
        self,
        start: Callable[[], Server],
        ledger: Ledger,
        kill_signal: signal.Signals = signal.SIGKILL,
        *,
        has_log: bool = False,
    ) -> None:
        self._start = start
        self._ledger = ledger
        self._has_log = has_log
        self._proof_count = 0
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

    def set_policy(
        self, topic: str, channel: str, definition: dict[str, object], name: str = "own"
    ) -> None:
        """It holds for the channel from now on."""
        policy = {"topic": f"^{topic}$", "channel": f"^{channel}$", "definition": definition}
        answer = request(self.http, "PUT", f"/policies/{name}", json.dumps(policy).encode())
        assert answer.status == 200, answer

    def prove(self, client: Client) -> None:
        """Have a publish answered behind all that the client has sent: that was processed, and is in the log."""
        topic, body = BARRIER_TOPIC, b"-"
        if self._has_log:
            self._proof_count += 1
            topic, body = PROOF_TOPIC, b"proof-%d" % self._proof_count
            self._ledger.sent(body)
        assert client.ask("PUB", topic, body=body) == b"OK"
        if self._has_log:
            self._ledger.accepted([body], [topic])

    def make(self, topic: str, *channels: str) -> None:
        self.ask("/topic/create", topic)
        self._ledger.named(topic)
        for channel in channels:
            self.ask("/channel/create", topic, channel)
            self._ledger.named(f"{topic}:{channel}")

    def drop(self, ledger: Ledger, path: str, topic: str, *channels: str) -> None:
        """/…/empty or /…/delete: of the channel, or of the topic with its channels."""
        is_channel = path.startswith("/channel")
        targets = [f"{topic}:{channel}" for channel in channels]
        if not is_channel:
            targets.append(topic)
        for target in targets:
            if path.endswith("/delete"):
                ledger.unnamed(target)
            ledger.dropped(target)
        self.ask(path, topic, channels[0] if is_channel else "")
        for target in targets:
            ledger.drop_answered(target)

    def redrive(self, ledger: Ledger, topic: str, channel: str, bodies: Sequence[bytes]) -> None:
        """All dead letters of the channel, which are these, go back there."""
        source, place = f"{topic}.{channel}.dead", f"{topic}:{channel}"
        ledger.moving(source, place, bodies)
        self.ask("/channel/redrive", topic, channel)
        page = f"/channel/redrive?topic={topic}&channel={channel}"
        eventually(lambda: get(self.http, page).json()["state"] == "done")
        with Client(self.tcp, seconds_max=SECONDS_MAX) as client:
            self.prove(client)
        ledger.moved(source, place, bodies)

    def pick(self, ledger: Ledger, action: str, source: str, needle: str, to: str = "") -> None:
        """All that contains `needle` in the channel, whatever its state; what moves is in the channel `to` then."""
        topic, channel = source.split(":")
        waiting = ledger.must_have(time.monotonic_ns()).get(source, set())
        bodies = [body for body in waiting if needle.encode() in body]
        takes = action in ("drop", "move")
        for body in bodies if takes else ():
            ledger.finish_sent(source, body)
        for body in bodies if action == "requeue" else ():
            ledger.due(source, body, 0)
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

    def _bodies(self, count: int, size: int = 0) -> list[bytes]:
        bodies = []
        for _ in range(count):
            self.number += 1
            padding = size or self.random.randrange(40, 300)
            bodies.append(b"%s-%d-" % (self.prefix, self.number) + b"." * padding + b"!")
        self.ledger.sent(*bodies)
        return bodies

    def _heard(self, bodies: Iterable[bytes]) -> None:
        answer = self.client.read_response()
        assert answer == b"OK", answer
        self.ledger.accepted(bodies, self.targets)

    def pub(self, count: int = 1, size: int = 0) -> None:
        for body in self._bodies(count, size):
            self.client.command("PUB", self.topic, body=body)
            self._heard([body])

    def mpub(self, *counts: int, size: int = 0) -> list[bytes]:
        published = []
        for count in counts:
            bodies = self._bodies(count, size)
            self.ledger.together(bodies)
            self.client.command("MPUB", self.topic, body=encode_messages(bodies))
            self._heard(bodies)
            published += bodies
        return published

    def defer(self, count: int, delay_ms_max: int) -> None:
        """DPUB, each for a while of its own."""
        for body in self._bodies(count):
            delay_ms = self.random.randrange(10, delay_ms_max)
            for target in self.targets:
                self.ledger.due(target, body, time.time_ns() + delay_ms * 1_000_000)
            self.client.command("DPUB", self.topic, str(delay_ms), body=body)
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

    def __init__(
        self,
        broker: Broker,
        ledger: Ledger,
        topic: str,
        channel: str,
        rdy: int,
        msg_timeout_ms: int = 0,
    ) -> None:
        self.broker = broker
        self.ledger = ledger
        self.target = f"{topic}:{channel}"
        self.client = Client(broker.tcp, seconds_max=SECONDS_MAX)
        if msg_timeout_ms:
            self.client.identify(msg_timeout=msg_timeout_ms)
        self.client.sub(topic, channel, rdy)
        ledger.named(self.target)
        self._unproved: list[bytes] = []
        self._returned: dict[bytes, int] = {}  # what the next delivery's attempts will be, at least
        self._due_ns: dict[bytes, int] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.client.close()

    def take(self, count: int) -> list[Message]:
        messages = self.client.read_messages(count)
        for message in messages:
            self._note(message)
        return messages

    def _note(self, message: Message) -> None:
        self._returned[message.body] = message.attempts
        self._due_ns[message.body] = 0

    def finish(self, messages: Iterable[Message]) -> None:
        for message in messages:
            self.ledger.finish_sent(self.target, message.body)
            self.client.fin(message)
            self._unproved.append(message.body)

    def requeue(self, messages: Iterable[Message], delay_ms: int = 0) -> None:
        for message in messages:
            self._returned[message.body] = message.attempts + 1
            self._due_ns[message.body] = time.time_ns() + delay_ms * 1_000_000
            self.client.command("REQ", message.id, str(delay_ms))

    def let_die(self, messages: Iterable[Message], place: str) -> None:
        """By a failure that is one too many: they go to the topic `place`."""
        bodies = [message.body for message in messages]
        self.ledger.moving(self.target, place, bodies)
        for message in messages:
            self.client.command("REQ", message.id, "0")
            # A dead letter begins anew.
            self._returned.pop(message.body, None)
            self._due_ns.pop(message.body, None)
        self.broker.prove(self.client)
        self.ledger.moved(self.target, place, bodies)

    def prove(self) -> None:
        """Have something answered behind the FINs and REQs: they were processed."""
        self.broker.prove(self.client)
        self.ledger.finish_confirmed(self.target, *self._unproved, by_publish=True)
        for body, attempts in self._returned.items():
            self.ledger.returned(self.target, body, attempts)
        for body, due_ns in self._due_ns.items():
            self.ledger.due(self.target, body, due_ns)
        self._unproved, self._returned, self._due_ns = [], {}, {}

    def take_distinct(self, bodies: Iterable[bytes]) -> list[Message]:
        """Until each of these has come at least once; of each, the last delivery."""
        wanted = set(bodies)
        latest: dict[bytes, Message] = {}
        while not wanted <= latest.keys():
            message = self.client.read_message()
            self._note(message)
            latest[message.body] = message
        return [latest[body] for body in wanted]
