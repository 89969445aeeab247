"""What one client or operator can do at once; the probe measures the effect on others.

Each returns when it is done, or its time is over.
"""

from __future__ import annotations

import socket
import threading
import time
import zlib
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

from growth.subjects import (
    DISK,
    MEMORY,
    POLL_SECONDS,
    TOPIC,
    add_backlog,
    add_topics,
    channel,
    with_channel,
)
from growth.wire import (
    LONG_HEARTBEATS,
    SECONDS_MAX,
    Crowd,
    Line,
    Web,
    address_of,
    dpub,
    identify,
    mpub,
    pub,
)
from nsqfast.wire.protocol import MAGIC_V2
from server.idle import NO_HEARTBEATS
from server.idle import Crowd as IdleCrowd

if TYPE_CHECKING:
    from collections.abc import Callable

    from server.broker import Broker

    Set = Callable[[Broker, int, ExitStack], object]
    Do = Callable[[Broker, int, object], None]

WAIT_SECONDS_MAX = 90.0
CHANNELS = 1000
CONSUMER_SHARE = 500  # messages in flight at one consumer
FIN = b"FIN 0123456789abcdef\n"
SMALL_BODY = b"x"
DUE_SECONDS = 15.0
MSG_TIMEOUT_MS = 30_000
SCRAPES = 5
SILENT_SECONDS = 3.0  # the attack is that nothing more comes: others are measured meanwhile
OVERFLOW = ("--mem-queue-size=10000", "--max-rdy-count=1000000", "--msg-timeout=15m")
WIDE = (*MEMORY, "--max-rdy-count=1000000", "--msg-timeout=15m")
DURABLE = (*WIDE, "--durable=always")
LARGE = ("--max-body-size=5242880",)


@dataclass(frozen=True, slots=True)
class Attack:
    """One row: `prepare` sets it up, without a measurement; others are measured during `do`."""

    name: str
    do: Do
    small: tuple[int, ...]
    full: tuple[int, ...]
    prepare: Set | None = None
    flags: tuple[str, ...] = ()
    is_ours: bool = False  # Go's nsqd has nothing like it


def wait_until(reached: Callable[[], bool]) -> None:
    """Wait for that, or until the time is over."""
    deadline_s = time.monotonic() + WAIT_SECONDS_MAX
    while not reached() and time.monotonic() < deadline_s:
        time.sleep(POLL_SECONDS)


# ---- input


def ask_stats(broker: Broker, count: int, _: object) -> None:
    """Send them in consecutive packets, and read the answers."""
    with socket.create_connection(address_of(broker.http), SECONDS_MAX) as one:
        request = b"GET /stats HTTP/1.1\r\nHost: x\r\n\r\n"
        last = b"GET /ping HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
        sender = threading.Thread(target=one.sendall, args=(request * (count - 1) + last,))
        sender.start()
        drain(one)
        sender.join()


def drain(one: socket.socket) -> None:
    """Read until the end."""
    try:
        while one.recv(1 << 18):
            pass
    except OSError:
        pass


def send_deflated_fins(broker: Broker, count: int, _: object) -> None:
    """FIN messages that nobody has; each is answered with an error."""
    with socket.create_connection(address_of(broker.tcp), SECONDS_MAX) as one:
        settings = LONG_HEARTBEATS | {"feature_negotiation": True, "deflate": True}
        one.sendall(MAGIC_V2 + identify(settings))
        time.sleep(0.1)
        pack = zlib.compressobj(9, zlib.DEFLATED, -15)
        words = pack.compress(f"SUB {TOPIC} ch\n".encode() + FIN * count + b"CLS\n")
        one.sendall(words + pack.flush(zlib.Z_SYNC_FLUSH))
        one.shutdown(socket.SHUT_WR)
        drain(one)


def publish_bytes(broker: Broker, count: int, _: object) -> None:
    """Publish one MPUB of messages of one byte."""
    with Line(broker.tcp) as line:
        line.ask(mpub(TOPIC, SMALL_BODY, count))


# ---- fan-out


def make_channels(broker: Broker, count: int, _: ExitStack) -> None:
    """All of one topic."""
    with Web(broker.http) as web:
        web.post(f"/topic/create?topic={TOPIC}")
        for number in range(count):
            web.post(f"/channel/create?topic={TOPIC}&channel=c{number}")


def publish_to_channels(broker: Broker, count: int, _: object) -> None:
    """Publish twelve messages for each channel."""
    with Line(broker.tcp) as line:
        line.ask(mpub(TOPIC, SMALL_BODY, 12 * count))


def overflow_channels(broker: Broker, _: int, __: object) -> None:
    """Their memory queues hold a hundred messages, and the next one is their first on disk."""
    with Line(broker.tcp) as line:
        for _ in range(110):
            line.ask(pub(TOPIC, SMALL_BODY))


# ---- consumers


def hold_messages(broker: Broker, consumers: int, stack: ExitStack, **settings: int) -> Crowd:
    """Have messages in flight to so many consumers."""
    broker.create(TOPIC, ("ch",))
    count = consumers * CONSUMER_SHARE
    add_backlog(broker, 0, count, stack, time.monotonic() + WAIT_SECONDS_MAX)
    crowd = stack.enter_context(Crowd(broker, TOPIC, consumers, CONSUMER_SHARE, **settings))
    wait_until(lambda: channel(broker)["in_flight_count"] >= count)
    return crowd


def hold_messages_to_requeue(broker: Broker, consumers: int, stack: ExitStack) -> Crowd:
    """The consumers know what they have."""
    return hold_messages(broker, consumers, stack, keeps_ids=True)


def hold_messages_to_die(broker: Broker, consumers: int, stack: ExitStack) -> Crowd:
    """One failure is enough."""
    stack.enter_context(broker.policy({"max_failures": 1}))
    return hold_messages_to_requeue(broker, consumers, stack)


def hold_messages_to_die_late(broker: Broker, consumers: int, stack: ExitStack) -> Crowd:
    """One time-out is enough."""
    stack.enter_context(broker.policy({"max_failures": 1}))
    return hold_messages_briefly(broker, consumers, stack)


def hold_messages_briefly(broker: Broker, consumers: int, stack: ExitStack) -> Crowd:
    """Their timeout comes soon after the last was delivered; nobody takes them again."""
    crowd = hold_messages(broker, consumers, stack, msg_timeout=MSG_TIMEOUT_MS)
    crowd.say(b"RDY 0\n")
    return crowd


def leave_all(broker: Broker, consumers: int, crowd: object) -> None:
    """All at once; what they had is queued again."""
    assert isinstance(crowd, Crowd)
    crowd.leave()
    count = consumers * CONSUMER_SHARE
    # Go's messages wait for their timeout, which is not measured here.
    wait_until(lambda: channel(broker)["client_count"] == 0)
    if broker.name != "go":
        wait_until(lambda: channel(broker)["depth"] >= count)


def requeue_all(broker: Broker, consumers: int, crowd: object) -> None:
    """All at once, with REQ."""
    assert isinstance(crowd, Crowd)
    crowd.requeue()
    wait_until(lambda: channel(broker)["requeue_count"] >= consumers * CONSUMER_SHARE)


def let_die(broker: Broker, consumers: int, crowd: object) -> None:
    """All at once, with REQ; each becomes a dead letter."""
    assert isinstance(crowd, Crowd)
    crowd.requeue()
    wait_for_deaths(broker, consumers, None)


def wait_for_deaths(broker: Broker, consumers: int, _: object) -> None:
    """Of all that they had."""
    count = consumers * CONSUMER_SHARE
    wait_until(lambda: channel(broker).get("dead_letter_counts", {}).get("failed", 0) >= count)


def have_dead_letters(broker: Broker, count: int, stack: ExitStack) -> None:
    """As many as a backlog; nothing is known of them, so they may be anybody's."""
    with_channel(broker)
    add_backlog(broker, 0, count, stack, time.monotonic() + WAIT_SECONDS_MAX, f"{TOPIC}.ch.dead")


def redrive(broker: Broker, count: int, _: object) -> None:
    """Send them back to their channel."""
    moved = broker.redrive(TOPIC, "ch")["moved"]
    assert moved == count, moved


def time_out_all(broker: Broker, consumers: int, _: object) -> None:
    """Wait for all of them."""
    wait_until(lambda: channel(broker)["timeout_count"] >= consumers * CONSUMER_SHARE)


def connect_and_leave(broker: Broker, count: int, _: object) -> None:
    """Disconnect without any further command."""
    with IdleCrowd(broker.tcp, count, NO_HEARTBEATS):
        pass


# ---- time


def defer_together(broker: Broker, count: int, _: ExitStack) -> None:
    """Make them due at the same moment."""
    broker.create(TOPIC, ("ch",))
    due_s = time.monotonic() + DUE_SECONDS * min(1, count / 100_000)
    with Line(broker.tcp) as line:
        line.ask_all(
            (
                dpub(TOPIC, max(1, int((due_s - time.monotonic()) * 1000)), SMALL_BODY)
                for _ in range(count)
            ),
            due_s,
        )


def let_fall_due(broker: Broker, _: int, __: object) -> None:
    """Wait until all of them are queued."""
    wait_until(lambda: channel(broker)["deferred_count"] == 0)


# ---- queues


def publish_new_topics(broker: Broker, count: int, _: object) -> None:
    """Publish one message for each, all at once."""
    commands = b"".join(pub(f"new{number}", SMALL_BODY) for number in range(count))
    with Line(broker.tcp) as line:
        sender = threading.Thread(target=line.socket.sendall, args=(commands,))
        sender.start()
        line.read_ok(count)
        sender.join()


def have_topics(broker: Broker, count: int, stack: ExitStack) -> None:
    """Publish a message to each."""
    add_topics(broker, 0, count, stack, time.monotonic() + WAIT_SECONDS_MAX)


def have_backlog(broker: Broker, count: int, stack: ExitStack) -> None:
    """Publish it to the only channel."""
    broker.create(TOPIC, ("ch",))
    add_backlog(broker, 0, count, stack, time.monotonic() + WAIT_SECONDS_MAX)


def empty_channel(broker: Broker, _: int, __: object) -> None:
    """Wait until nothing is left."""
    with Web(broker.http) as web:
        web.post(f"/channel/empty?topic={TOPIC}&channel=ch")
    wait_until(lambda: channel(broker)["depth"] == 0)


def delete_topic(broker: Broker, _: int, __: object) -> None:
    """Delete it with everything in it."""
    broker.delete(TOPIC)


def have_topic_backlog(broker: Broker, count: int, stack: ExitStack) -> None:
    """Make it while the topic is paused."""
    broker.create(TOPIC, ("ch",))
    with Web(broker.http) as web:
        web.post(f"/topic/pause?topic={TOPIC}")
    add_backlog(broker, 0, count, stack, time.monotonic() + WAIT_SECONDS_MAX)


def unpause_under_load(broker: Broker, count: int, _: object) -> None:
    """Publish as many again meanwhile; it ends when nothing waits in the topic."""
    with Web(broker.http) as web:
        web.post(f"/topic/unpause?topic={TOPIC}")
    with Line(broker.tcp) as line:
        line.ask_all(
            [mpub(TOPIC, SMALL_BODY, 200)] * (count // 200), time.monotonic() + SECONDS_MAX, 4
        )
    wait_until(lambda: broker.stats(TOPIC)["depth"] == 0)


def scrape_stats(broker: Broker, _: int, __: object) -> None:
    """Every second, as a collector does."""
    with Web(broker.http) as web:
        for _ in range(SCRAPES):
            begun_s = time.monotonic()
            web.get("/stats?format=json")
            time.sleep(max(0.0, 1 - (time.monotonic() - begun_s)))


# ---- who breaks the rules


def ask_and_read_nothing(broker: Broker, count: int, _: object) -> None:
    """Each asks for /stats a hundred times and reads none of the answers."""
    request = b"GET /stats?format=json HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with ExitStack() as stack:
        for _ in range(count):
            one = stack.enter_context(socket.create_connection(address_of(broker.http)))
            one.sendall(request * 100)
        time.sleep(SILENT_SECONDS)


def begin_and_fall_silent(broker: Broker, count: int, _: object) -> None:
    """Each sends half an MPUB."""
    half = mpub(TOPIC, bytes(4000), 1000)[: 2 << 20]
    send_and_fall_silent(broker.tcp, count, MAGIC_V2 + identify(LONG_HEARTBEATS) + half)


def begin_and_fall_silent_over_http(broker: Broker, count: int, _: object) -> None:
    """Each sends half a body for /mpub."""
    head = (
        f"POST /mpub?topic={TOPIC} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4000000\r\n\r\n"
    )
    send_and_fall_silent(broker.http, count, head.encode() + bytes(2 << 20))


def send_and_fall_silent(address: str, count: int, half: bytes) -> None:
    """Over so many connections."""
    with ExitStack() as stack:
        for _ in range(count):
            one = stack.enter_context(socket.create_connection(address_of(address)))
            one.sendall(half)
        time.sleep(SILENT_SECONDS)


def post_from_elsewhere(broker: Broker, count: int, _: object) -> None:
    """What a page of another site makes a browser send; Go's nsqd does what it says."""
    head = f"POST /pub?topic={TOPIC} HTTP/1.1\r\nHost: localhost\r\nOrigin: http://elsewhere.example\r\n"
    request = f"{head}Content-Length: 1\r\n\r\nx".encode()
    for _ in range(count):
        with socket.create_connection(address_of(broker.http), SECONDS_MAX) as one:
            one.sendall(request)
            one.recv(1 << 16)


CROWDS, CROWDS_SMALL = (400, 2000), (10,)
ATTACKS = (
    Attack("pipelined GET /stats", ask_stats, (500,), (50_000,)),
    Attack("FINs out of deflate", send_deflated_fins, (5000,), (606_208,)),
    Attack("messages of 1 byte in an MPUB", publish_bytes, (10_000,), (1_000_000,), None, LARGE),
    Attack(
        "channels, MPUB of 12 for each",
        publish_to_channels,
        (20,),
        (1000,),
        make_channels,
        ("--mem-queue-size=20000",),  # Go allocates the whole of it for each
    ),
    Attack(
        "channels, first overflow to disk",
        overflow_channels,
        (20,),
        (1000, 3000),
        make_channels,
        ("--mem-queue-size=100",),
    ),
    Attack("consumers × 500 in flight leave", leave_all, CROWDS_SMALL, CROWDS, hold_messages, WIDE),
    Attack(
        "consumers × 500 in flight time out",
        time_out_all,
        (),
        CROWDS,
        hold_messages_briefly,
        WIDE,
    ),
    Attack(
        "consumers × 500 in flight leave, most of it goes to disk",
        leave_all,
        CROWDS_SMALL,
        (1000, 2000),
        hold_messages,
        OVERFLOW,
    ),
    Attack(
        "consumers × 500 in flight time out, most of it goes to disk",
        time_out_all,
        (),
        (1000, 2000),
        hold_messages_briefly,
        OVERFLOW,
    ),
    Attack(
        "consumers × 500 in flight REQ, most of it goes to disk",
        requeue_all,
        CROWDS_SMALL,
        (1000, 2000),
        hold_messages_to_requeue,
        OVERFLOW,
    ),
    Attack(
        "consumers × 500 in flight REQ, and die by policy",
        let_die,
        CROWDS_SMALL,
        CROWDS,
        hold_messages_to_die,
        WIDE,
        is_ours=True,
    ),
    Attack(
        "consumers × 500 in flight REQ, and die by policy, --durable=always",
        let_die,
        CROWDS_SMALL,
        CROWDS,
        hold_messages_to_die,
        DURABLE,
        is_ours=True,
    ),
    Attack(
        "consumers × 500 in flight time out, and die by policy",
        wait_for_deaths,
        (),
        CROWDS,
        hold_messages_to_die_late,
        WIDE,
        is_ours=True,
    ),
    Attack(
        "dead letters sent back",
        redrive,
        (10_000,),
        (1_000_000,),
        have_dead_letters,
        MEMORY,
        is_ours=True,
    ),
    Attack(
        "dead letters sent back, --durable=always",
        redrive,
        (10_000,),
        (1_000_000,),
        have_dead_letters,
        DURABLE,
        is_ours=True,
    ),
    Attack(
        "deferred messages fall due together",
        let_fall_due,
        (1000,),
        (100_000, 1_000_000),
        defer_together,
        MEMORY,
    ),
    Attack("new topics at once, on disk", publish_new_topics, (50,), (2000,), None, DISK),
    Attack(
        "messages in memory emptied",
        empty_channel,
        (10_000,),
        (1_000_000, 10_000_000),
        have_backlog,
        MEMORY,
    ),
    Attack("messages on disk deleted", delete_topic, (10_000,), (10_000_000,), have_backlog, DISK),
    Attack(
        "backlog of a topic unpaused, as many published",
        unpause_under_load,
        (10_000,),
        (1_000_000, 5_000_000),
        have_topic_backlog,
        MEMORY,
    ),
    Attack(
        "topics, /stats each second",
        scrape_stats,
        (),
        (10_000,),
        have_topics,
        ("--mem-queue-size=10",),
    ),
    Attack("connections come and go", connect_and_leave, (100,), (5000,)),
    Attack("read no answer to 100 × /stats", ask_and_read_nothing, (4,), (40,), have_topics),
    Attack("send half an MPUB", begin_and_fall_silent, (4,), (100,), None, LARGE),
    Attack("send half a /mpub", begin_and_fall_silent_over_http, (4,), (100,), None, LARGE),
    Attack("POST from another site", post_from_elsewhere, (100,), (10_000,)),
)
