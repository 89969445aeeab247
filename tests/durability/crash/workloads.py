"""What is done to a broker before and while it crashes: each takes a second or two and some hundred messages.

Every workload is `function(broker, ledger, seed)`. It returns with the broker running or stopped; whoever called it
kills what still runs. WORKLOADS has them by name, with the flags that each needs beside those of a mode.
"""

from __future__ import annotations

import contextlib
import random
import resource
import signal
from functools import partial
from typing import TYPE_CHECKING

from durability.crash.clients import Broker, Consumer, Publisher
from durability.crash.filler import Filler
from durability.crash.modes import ALWAYS
from support.waiting import eventually
from support.web import topic_stats

if TYPE_CHECKING:
    from collections.abc import Callable

    from durability.crash.ledger import Ledger
    from durability.crash.modes import Mode
    from support.server import Server

    Workload = Callable[[Broker, Ledger, int], None]

T, C = "t", "c"
DEAD = "t.c.dead"
SMALL_FILES = ("--max-bytes-per-file=2048",)
# Large bodies beside a workload: the smallest log is filled twice.
FILLED_MIN = 160
LARGE = 10_100  # messages: more than one turn takes
SHORT_TIMEOUT = ("--msg-timeout=150ms",)


def publish(broker: Broker, ledger: Ledger, seed: int) -> None:
    """One at a time, many at once, with a window; the topic has no channel."""
    with Publisher(broker, ledger, T, seed) as publisher:
        publisher.pub(60)
        publisher.mpub(1, 30, 5, 80)
        publisher.window(200, 20)


def large(broker: Broker, ledger: Ledger, seed: int) -> None:
    """MPUBs that go into the log in many turns, to a topic, to its two channels, and while it is paused."""
    with Publisher(broker, ledger, T, seed) as publisher:
        publisher.mpub(LARGE, size=1)
        broker.make(T, C, "d")
        publisher.to(C, "d").mpub(LARGE, size=1)
        broker.ask("/topic/pause", T)
        publisher.mpub(LARGE, size=1)
        broker.ask("/topic/unpause", T)
        publisher.pub(5)


def channels(broker: Broker, ledger: Ledger, seed: int) -> None:
    """A first channel before anything is published, a second one between."""
    broker.make(T, C)
    with Publisher(broker, ledger, T, seed) as publisher:
        publisher.to(C).pub(40)
        publisher.mpub(50)
        broker.make(T, "late")
        publisher.to(C, "late").pub(40)
        publisher.window(60, 10)
    with Publisher(broker, ledger, "u", seed) as publisher:
        publisher.pub(50)
        broker.make("u", C)
        publisher.to(C).pub(50)


def finish(broker: Broker, ledger: Ledger, seed: int) -> None:
    """FINs out of order, while more is published."""
    dice = random.Random(seed)
    broker.make(T, C)
    with (
        Publisher(broker, ledger, T, seed) as publisher,
        Consumer(broker, ledger, T, C, 60) as consumer,
    ):
        publisher.to(C).mpub(60)
        for _ in range(15):
            messages = consumer.take(20)
            dice.shuffle(messages)
            consumer.finish(messages)
            publisher.mpub(10)
            publisher.window(10, 5)
            consumer.prove()


def _requeue(broker: Broker, ledger: Ledger, seed: int, delay_ms: int) -> None:
    broker.make(T, C)
    with (
        Publisher(broker, ledger, T, seed) as publisher,
        Consumer(broker, ledger, T, C, 50) as consumer,
    ):
        publisher.to(C).mpub(100)
        for round_number in range(12):
            messages = consumer.take(20)
            # The first ones stay in flight until the others were moved behind them.
            consumer.requeue(messages[4:], delay_ms)
            consumer.prove()
            if round_number % 3 == 2:
                publisher.pub(3)
            consumer.finish(messages[:4])
            consumer.prove()


def requeue(broker: Broker, ledger: Ledger, seed: int) -> None:
    _requeue(broker, ledger, seed, 0)


def requeue_later(broker: Broker, ledger: Ledger, seed: int) -> None:
    """The deferrals fall due while others are requeued."""
    _requeue(broker, ledger, seed, 40)


def timeout(broker: Broker, ledger: Ledger, seed: int) -> None:
    """Nobody answers in time, twice; with SHORT_TIMEOUT."""
    broker.make(T, C)
    with (
        Publisher(broker, ledger, T, seed) as publisher,
        Consumer(broker, ledger, T, C, 400) as consumer,
    ):
        publisher.to(C).mpub(60, 60)
        bodies = [message.body for message in consumer.take(120)]
        again = consumer.take_distinct(bodies)
        consumer.finish(again[:30])
        consumer.take_distinct([message.body for message in again[30:]])
        publisher.pub(20)


def retry(broker: Broker, ledger: Ledger, seed: int) -> None:
    """A policy lets wait what is given back, and what times out; with SHORT_TIMEOUT."""
    broker.make(T, C)
    broker.set_policy(T, C, {"retry_min": "40ms", "retry_multiplier": 1})
    with (
        Publisher(broker, ledger, T, seed) as publisher,
        Consumer(broker, ledger, T, C, 400) as consumer,
    ):
        publisher.to(C).mpub(60, 60)
        messages = consumer.take(120)
        consumer.requeue(messages[:60], 0)
        consumer.prove()
        again = consumer.take_distinct([message.body for message in messages[:60]])
        consumer.finish(again[:30])
        consumer.take_distinct([message.body for message in messages[60:] + again[30:]])
        publisher.pub(20)


def die(broker: Broker, ledger: Ledger, seed: int) -> None:
    """What fails dies while more is published and finished; twice all of it goes back."""
    broker.make(T, C)
    broker.set_policy(T, C, {"max_failures": 1})
    with (
        Publisher(broker, ledger, T, seed) as publisher,
        Consumer(broker, ledger, T, C, 40) as consumer,
    ):
        publisher.to(C).mpub(60, 40)
        for _ in range(2):
            dead = []
            for _ in range(4):
                messages = consumer.take(12)
                consumer.let_die(messages[:9], DEAD)
                dead += [message.body for message in messages[:9]]
                consumer.finish(messages[9:])
                consumer.prove()
                publisher.pub(3)
            broker.redrive(ledger, T, C, dead)


def die_by_limit(broker: Broker, ledger: Ledger, seed: int) -> None:
    """What a limit drops dies."""
    most, count = 30, 15
    target = f"{T}:{C}"
    broker.make(T, C)
    definition = {"max_messages": most, "overflow": "drop_head", "dead_letter_topic": DEAD}
    broker.set_policy(T, C, definition)
    waiting: list[bytes] = []
    with Publisher(broker, ledger, T, seed) as publisher:
        publisher.to(C)
        for _ in range(10):
            excess = max(len(waiting) + count - most, 0)
            going, waiting = waiting[:excess], waiting[excess:]
            ledger.moving(target, DEAD, going)
            waiting += publisher.mpub(count)
            broker.prove(publisher.client)
            ledger.moved(target, DEAD, going)


def expire(broker: Broker, ledger: Ledger, seed: int) -> None:
    """What waits becomes too old, again and again, for one channel it is dropped, for another it dies."""
    target, dead = f"{T}:{C}", f"{T}:d"
    broker.make(T, C, "d")
    with Publisher(broker, ledger, T, seed) as publisher:
        for _ in range(5):
            bodies = publisher.to(C, "d").mpub(12, 6)
            for body in bodies:
                ledger.finish_sent(target, body)
            ledger.moving(dead, DEAD, bodies)
            broker.set_policy(T, C, {"max_age": "1ms"}, "drops")
            broker.set_policy(T, "d", {"max_age": "1ms", "dead_letter_topic": DEAD}, "dies")
            eventually(lambda: _depths(broker) == {C: 0, "d": 0})
            broker.prove(publisher.client)
            ledger.finish_confirmed(target, *bodies, by_publish=True)
            ledger.moved(dead, DEAD, bodies)
            broker.set_policy(T, C, {"max_age": "1h"}, "drops")
            broker.set_policy(T, "d", {"max_age": "1h"}, "dies")
        publisher.pub(5)


def _depths(broker: Broker) -> dict[str, int]:
    channels = topic_stats(broker.http, T)["channels"]
    return {name: channel["depth"] for name, channel in channels.items()}


def disconnect(broker: Broker, ledger: Ledger, seed: int) -> None:
    """Consumers come, take, and go."""
    broker.make(T, C)
    with Publisher(broker, ledger, T, seed) as publisher:
        publisher.to(C).mpub(120)
        for _ in range(8):
            with Consumer(broker, ledger, T, C, 60) as consumer:
                messages = consumer.take(60)
                consumer.finish(messages[::7])
                consumer.prove()
            publisher.pub(3)


def defer(broker: Broker, ledger: Ledger, seed: int) -> None:
    """The first command of the topic is a DPUB; then more, while the first fall due."""
    with Publisher(broker, ledger, T, seed) as publisher:
        publisher.defer(20, 60)
        broker.make(T, C)
        publisher.to(C).defer(60, 120)
        publisher.pub(20)
        with Consumer(broker, ledger, T, C, 200) as consumer:
            consumer.finish(consumer.take(80)[::4])
            consumer.prove()
            publisher.defer(40, 60000)


def pause(broker: Broker, ledger: Ledger, seed: int) -> None:
    """What a paused topic gathered goes to its two channels, again and again."""
    broker.make(T, C, "d")
    with Publisher(broker, ledger, T, seed) as publisher:
        publisher.to(C, "d")
        for _ in range(3):
            broker.ask("/topic/pause", T)
            publisher.mpub(*[40] * 5)
            publisher.pub(5)
            broker.ask("/topic/unpause", T)
            with Consumer(broker, ledger, T, C, 150) as consumer:
                consumer.finish(consumer.take(150))
                consumer.prove()


def takeover(broker: Broker, ledger: Ledger, seed: int) -> None:
    """Thousands wait in a topic when its first channel comes."""
    with Publisher(broker, ledger, T, seed) as publisher:
        publisher.mpub(*[100] * 40)
        broker.make(T, C)
        publisher.to(C).pub(5)
        with Consumer(broker, ledger, T, C, 300) as consumer:
            consumer.finish(consumer.take(300))
            consumer.prove()


def pick(broker: Broker, ledger: Ledger, seed: int) -> None:
    """Operators drop, requeue, copy and move what they find, while it waits, is in flight or deferred."""
    broker.make(T, C)
    broker.make("u", "d")
    with Publisher(broker, ledger, T, seed) as publisher:
        publisher.to(C)
        for _ in range(3):
            publisher.mpub(60, 20)
            with Consumer(broker, ledger, T, C, 40) as consumer:
                messages = consumer.take(40)
                consumer.requeue(messages[::4], 60000)
                consumer.prove()
                broker.pick(ledger, "drop", f"{T}:{C}", "7-.")
                broker.pick(ledger, "requeue", f"{T}:{C}", "2-.")
                broker.pick(ledger, "move", f"{T}:{C}", "3-.", to="u:d")
                broker.pick(ledger, "copy", f"{T}:{C}", "4-.", to="u:d")
                publisher.pub(5)
                broker.pick(ledger, "drop", f"{T}:{C}", "5-.")


def roll(broker: Broker, ledger: Ledger, seed: int) -> None:
    """Files are filled, read to their end and removed; with SMALL_FILES."""
    broker.make(T, C)
    with (
        Publisher(broker, ledger, T, seed) as publisher,
        Consumer(broker, ledger, T, C, 20) as consumer,
    ):
        publisher.to(C)
        for _ in range(15):
            publisher.mpub(12)
            publisher.pub(4)
            consumer.finish(consumer.take(14))
            consumer.prove()


def empty(broker: Broker, ledger: Ledger, seed: int) -> None:
    """A channel and a topic are emptied, with messages in flight and more behind."""
    broker.make(T, C)
    with (
        Publisher(broker, ledger, T, seed) as publisher,
        Publisher(broker, ledger, "u", seed) as other,
    ):
        publisher.to(C)
        for _ in range(4):
            publisher.mpub(40, 10)
            with Consumer(broker, ledger, T, C, 20) as consumer:
                consumer.take(20)
                broker.drop(ledger, "/channel/empty", T, C)
            publisher.pub(10)
            other.mpub(30)
            broker.drop(ledger, "/topic/empty", "u")
            other.pub(10)


def limit(broker: Broker, ledger: Ledger, seed: int) -> None:
    """A policy drops the oldest messages of a channel while more is published; another channel keeps all."""
    most, count, target = 30, 15, f"{T}:{C}"
    broker.make(T, C, "all")
    broker.set_policy(T, C, {"max_messages": most, "overflow": "drop_head"})
    waiting: list[bytes] = []
    with Publisher(broker, ledger, T, seed) as publisher:
        publisher.to(C, "all")
        for _ in range(10):
            excess = max(len(waiting) + count - most, 0)
            going, waiting = waiting[:excess], waiting[excess:]
            for body in going:
                ledger.finish_sent(target, body)
            waiting += publisher.mpub(count)
            broker.prove(publisher.client)
            ledger.finish_confirmed(target, *going, by_publish=True)


def delete(broker: Broker, ledger: Ledger, seed: int) -> None:
    """Channels and topics go and come again under the same name."""
    for _ in range(4):
        seed += 1
        broker.make(T, C, "stays")
        with Publisher(broker, ledger, T, seed) as publisher:
            publisher.to(C, "stays").mpub(40)
            broker.drop(ledger, "/channel/delete", T, C)
            publisher.to("stays").pub(10)
            broker.make(T, C)
            publisher.to(C, "stays").pub(10)
        broker.drop(ledger, "/topic/delete", T, C, "stays")
        with Publisher(broker, ledger, T, seed + 1000) as publisher:
            publisher.pub(10)
        broker.drop(ledger, "/topic/delete", T, C, "stays")
    broker.make(T, C)
    with Publisher(broker, ledger, T, seed + 2000) as publisher:
        publisher.to(C).pub(20)


def descriptors(broker: Broker, ledger: Ledger, seed: int) -> None:
    """None is left for a while: publishes are refused, or kept as well as ever."""
    pid = broker.server.process.pid
    broker.make(T, C)
    with Publisher(broker, ledger, T, seed) as publisher:
        publisher.to(C).pub(20)
        _, hard = before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (3, hard))
        with contextlib.suppress(EOFError, ConnectionError, AssertionError):
            publisher.pub(100)
            publisher.mpub(10, 10)
        resource.prlimit(pid, resource.RLIMIT_NOFILE, before)
    with Publisher(broker, ledger, T, seed + 1) as publisher:
        publisher.to(C).pub(20)


def _leave_all_kinds(broker: Broker, ledger: Ledger, seed: int) -> Consumer:
    """Queued, in flight, requeued, deferred and finished ones; those in flight are with the consumer returned."""
    broker.make(T, C)
    with (
        Publisher(broker, ledger, T, seed) as publisher,
        Publisher(broker, ledger, "u", seed) as other,
    ):
        publisher.to(C).mpub(120)
        publisher.defer(10, 60000)
        other.mpub(30)
        other.defer(10, 60000)
    consumer = Consumer(broker, ledger, T, C, 60)
    messages = consumer.take(60)
    consumer.finish(messages[::3])
    consumer.requeue(messages[1::6], 60000)
    consumer.requeue(messages[4::6])
    consumer.prove()
    return consumer


def stop(broker: Broker, ledger: Ledger, seed: int) -> None:
    """SIGTERM while messages are in flight and deferred."""
    with _leave_all_kinds(broker, ledger, seed):
        broker.stop()


def stop_while_publishing(broker: Broker, ledger: Ledger, seed: int) -> None:
    """SIGTERM while PUBs are on their way: those that were answered count."""
    broker.make(T, C)
    with Publisher(broker, ledger, T, seed) as publisher:
        stop = partial(broker.server.process.send_signal, signal.SIGTERM)
        # Refused or cut off: not accepted.
        with contextlib.suppress(EOFError, ConnectionError, AssertionError):
            publisher.to(C).window(2000, 20, halfway=stop)
    broker.stop()


def start(broker: Broker, ledger: Ledger, seed: int) -> None:
    """Stopped and started, killed and started, each time with all kinds of messages left behind."""
    for number in range(2):
        with _leave_all_kinds(broker, ledger, seed + number):
            broker.kill() if number else broker.stop()
        broker.restart()
    with Consumer(broker, ledger, T, C, 40) as consumer:
        consumer.finish(consumer.take(40)[::2])
        consumer.prove()


WORKLOADS: dict[str, tuple[Workload, tuple[str, ...]]] = {
    "publish": (publish, ()),
    "publish-small-files": (publish, SMALL_FILES),
    "large": (large, ()),
    "channels": (channels, ()),
    "finish": (finish, ()),
    "finish-small-files": (finish, SMALL_FILES),
    "requeue": (requeue, ()),
    "requeue-small-files": (requeue, SMALL_FILES),
    "requeue-later": (requeue_later, ()),
    "timeout": (timeout, SHORT_TIMEOUT),
    "timeout-small-files": (timeout, (*SHORT_TIMEOUT, *SMALL_FILES)),
    "retry": (retry, SHORT_TIMEOUT),
    "retry-small-files": (retry, (*SHORT_TIMEOUT, *SMALL_FILES)),
    "die": (die, ()),
    "die-small-files": (die, SMALL_FILES),
    "die-by-limit": (die_by_limit, ()),
    "die-by-limit-small-files": (die_by_limit, SMALL_FILES),
    "expire": (expire, ()),
    "expire-small-files": (expire, SMALL_FILES),
    "disconnect": (disconnect, ()),
    "disconnect-small-files": (disconnect, SMALL_FILES),
    "defer": (defer, ()),
    "pause": (pause, ()),
    "pause-small-files": (pause, SMALL_FILES),
    "takeover": (takeover, ()),
    "takeover-small-files": (takeover, SMALL_FILES),
    "pick": (pick, ()),
    "pick-small-files": (pick, SMALL_FILES),
    "roll": (roll, ()),
    "roll-small-files": (roll, SMALL_FILES),
    "empty": (empty, ()),
    "delete": (delete, ()),
    "limit": (limit, ()),
    "limit-small-files": (limit, SMALL_FILES),
    "descriptors": (descriptors, ()),
    "stop": (stop, ()),
    "stop-small-files": (stop, SMALL_FILES),
    "stop-while-publishing": (stop_while_publishing, ()),
    "start": (start, ()),
    "start-small-files": (start, SMALL_FILES),
}


def flags_of(name: str, mode: Mode = ALWAYS) -> tuple[str, ...]:
    own = WORKLOADS[name][1]
    # With a log little would come to these files otherwise.
    more = ("--mem-queue-size=10",) if mode.has_log and set(SMALL_FILES) <= set(own) else ()
    return (*mode.flags, *own, *more)


def run(
    name: str,
    start_broker: Callable[[], Server],
    ledger: Ledger,
    seed: int,
    kill_signal: signal.Signals = signal.SIGKILL,
    mode: Mode = ALWAYS,
) -> None:
    """The whole workload against a broker started with flags_of(name, mode); none runs afterwards."""
    broker = Broker(start_broker, ledger, kill_signal, has_log=mode.has_log)
    try:
        if mode.has_log:
            with Filler(broker, ledger, seed, FILLED_MIN):
                WORKLOADS[name][0](broker, ledger, seed)
        else:
            WORKLOADS[name][0](broker, ledger, seed)
    finally:
        broker.kill()
