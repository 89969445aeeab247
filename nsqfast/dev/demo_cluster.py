"""A demonstration cluster, which `make up ARGS=--demo-cluster` runs until Ctrl-C.

Two nsqd, an nsqlookupd and an nsqadmin on free ports and in temporary folders, and in this process producers and
consumers that give the page something to show:

    orders     two channels whose consumers keep up, and an ephemeral one
    clicks     arrive faster than their consumer works: the backlog grows
    payments   its consumer takes messages and never finishes them: stuck in flight
    emails     nobody consumes them
    reports    deferred for up to an hour
    invoices   the channel is paused on one of the two nodes
"""

import asyncio
import random
import sys
import tempfile
import urllib.request
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from pathlib import Path

from nsqfast.client import Config, Consumer, Message, Producer
from nsqfast.dev.daemons import DemoError, Fleet

NODES = 2
ORDERS_S, CLICKS_S, CLICKS_DONE_S = 40.0, 30.0, 10.0
EMAILS, REPORTS, PAYMENTS, INVOICES = 5000, 200, 60, 400
BATCH = 100
SEED = 15
ANSWER_TIMEOUT_S = 10.0
GRACE_S = 0.5  # some consumers here never answer

READY = """
The page: http://127.0.0.1:{port}

  orders     consumed      clicks     backlog grows      payments   stuck in flight
  emails     no consumer   reports    deferred           invoices   paused on one node

Ctrl-C stops all of it.
"""


def run(flags: Sequence[str], admin_port: int = 4171) -> None:
    """Run until SIGINT or SIGTERM; DemoError if a daemon does not start or ends by itself."""
    words = [flag for flag in flags if flag != "--free-ports"]
    if "--free-ports" in flags:
        admin_port = 0
    with tempfile.TemporaryDirectory(prefix="nsqfast-demo-") as folder, Fleet() as fleet:
        nodes, lookupd = start_brokers(fleet, Path(folder), words)
        addresses = [f"127.0.0.1:{node['TCP']}" for node in nodes]
        admin = fleet.start(
            "nsqadmin",
            f"--http-address=127.0.0.1:{admin_port}",
            "--problem-no-consumers=5s",  # whoever looks at a demonstration does not wait for a minute
            f"--lookupd-http-address=127.0.0.1:{lookupd}",
        )
        port = admin.ports["HTTP"]
        asyncio.run(live(fleet, addresses, [node["HTTP"] for node in nodes], port))
        fleet.check()
    print("demo: all stopped")


def start_brokers(
    fleet: Fleet, folder: Path, flags: Sequence[str]
) -> tuple[list[dict[str, int]], int]:
    """Start the nsqd and their nsqlookupd; returns the ports of each nsqd, and the HTTP port of nsqlookupd."""
    anywhere = ("--tcp-address=127.0.0.1:0", "--http-address=127.0.0.1:0")
    lookupd = fleet.start("nsqlookupd", *anywhere)
    ports = []
    for number in range(NODES):
        data = folder / f"nsqd-{number}"
        data.mkdir()
        node = fleet.start(
            "nsqd",
            *anywhere,
            "--broadcast-address=127.0.0.1",
            f"--data-path={data}",
            f"--lookupd-tcp-address=127.0.0.1:{lookupd.ports['TCP']}",
            "--mem-queue-size=1000",
            *flags,
        )
        ports.append(node.ports)
    return ports, lookupd.ports["HTTP"]


async def live(fleet: Fleet, addresses: list[str], http_ports: list[int], page: int) -> None:
    """Fill the cluster, print where to look, and work until the fleet ends."""
    async with Producer(*addresses) as producer, asyncio.TaskGroup() as group:
        await fill(producer, http_ports)
        tasks = [group.create_task(work) for work in workers(producer, addresses)]
        print(READY.format(port=page), flush=True)
        await asyncio.to_thread(fleet.ended.wait)
        for task in tasks:
            task.cancel()


async def fill(producer: Producer, http_ports: list[int]) -> None:
    """Publish the messages that wait from the beginning."""
    for port in http_ports:
        for topic, channel in [("emails", "send"), ("invoices", "print")]:
            await tell(port, f"/topic/create?topic={topic}")
            await tell(port, f"/channel/create?topic={topic}&channel={channel}")
        await tell(port, "/topic/create?topic=reports")
        await tell(port, "/channel/create?topic=reports&channel=nightly")
    await tell(http_ports[0], "/channel/pause?topic=invoices&channel=print")
    for topic, count in [("emails", EMAILS), ("payments", PAYMENTS), ("invoices", INVOICES)]:
        for first in range(0, count, BATCH):
            numbers = range(first, min(first + BATCH, count))
            await producer.publish_many(topic, [body_of(topic, number) for number in numbers])
    for number in range(REPORTS):
        delay_s = 60.0 + number * (3480.0 / REPORTS)
        await producer.publish_later("reports", body_of("reports", number), delay_s=delay_s)


async def tell(port: int, path: str) -> None:
    """Send a POST to one nsqd."""

    def post() -> None:
        url = f"http://127.0.0.1:{port}{path}"
        with urllib.request.urlopen(url, data=b"", timeout=ANSWER_TIMEOUT_S):
            pass

    try:
        await asyncio.to_thread(post)
    except OSError as error:
        raise DemoError(f"{path}: {error}") from None


def workers(producer: Producer, addresses: list[str]) -> list[Coroutine[None, None, None]]:
    """The permanent activity of the cluster."""
    return [
        publish(producer, "orders", ORDERS_S),
        publish(producer, "clicks", CLICKS_S),
        consume(addresses, "orders", "billing", finish),
        consume(addresses, "orders", "archive", finish),
        consume(addresses, "orders", "tail#ephemeral", finish),
        consume(addresses, "clicks", "etl", slow),
        consume(addresses, "payments", "ledger", keep, msg_timeout_s=900.0),
        consume(addresses, "invoices", "print", finish),
    ]


def body_of(topic: str, number: int) -> bytes:
    """A JSON body."""
    return b'{"topic": "%s", "number": %d, "ok": true}' % (topic.encode(), number)


async def publish(producer: Producer, topic: str, rate_s: float) -> None:
    """Publish at about this rate."""
    dice = random.Random(f"{SEED} {topic}")  # noqa: S311
    number = 0
    while True:
        await producer.publish(topic, body_of(topic, number))
        number += 1
        await asyncio.sleep(dice.uniform(0.5, 1.5) / rate_s)


Handler = Callable[[Message], Awaitable[None]]


async def finish(_message: Message) -> None:
    """Return, which finishes the message."""


async def slow(_message: Message) -> None:
    """Take longer than the messages' interval."""
    await asyncio.sleep(1 / CLICKS_DONE_S)


async def keep(message: Message) -> None:
    """Hang like a broken consumer: never answer."""
    message.keep()


async def consume(
    addresses: list[str],
    topic: str,
    channel: str,
    handler: Handler,
    msg_timeout_s: float = 60.0,
) -> None:
    """Consume until cancelled."""
    config = Config(
        max_in_flight=4,
        client_id=f"demo-{channel.partition('#')[0]}",
        msg_timeout_s=msg_timeout_s,
    )
    async with Consumer(topic, channel, nsqd=addresses, config=config) as consumer:
        await consumer.run(handler, concurrency=1, grace_s=GRACE_S)


if __name__ == "__main__":
    run(sys.argv[1:])
