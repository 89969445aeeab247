"""A large cluster in one process: many nsqd with prepared answers, and nsqlookupd that list them.

    with SimulatedCluster(nodes=100, topics=500, channels=1) as cluster:
        cluster.lookupds, cluster.nodes     # "127.0.0.1:PORT"

Every nsqd has every topic. The numbers move with the clock: a share of the topics (`busy`) gets messages, the first
channel of every fiftieth of them is not consumed as fast as it fills. The digits are written into the prepared answer,
so that an answer of 250 kB costs next to nothing and a benchmark measures who asks. POSTs are answered and do nothing.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import subprocess
import sys
import time
from functools import lru_cache
from pathlib import Path
from typing import Any, Self, cast
from urllib.parse import parse_qs, urlsplit

import numpy as np

DIGITS = 12
BLANK = "@" * DIGITS  # where a number is written
HEAD = (
    "HTTP/1.1 {status}\r\nContent-Type: application/json; charset=utf-8\r\n"
    "X-NSQ-Content-Type: nsq; version=1.0\r\nContent-Length: {size}\r\n\r\n"
)
LATENCY = {"count": 0, "percentiles": None}
MEMORY = {"heap_objects": 1000, "heap_in_use_bytes": 64 << 20, "gc_total_runs": 7}
BACKLOG_EVERY = 50
REQUESTS_KEPT = 4096
START_SECONDS_MAX = 50

Value = tuple[float, float]  # at the start, per second


class SimulatedCluster:
    """Started as a sub-process; gone with the block."""

    def __init__(
        self,
        nodes: int = 100,
        topics: int = 500,
        channels: int = 1,
        *,
        consumers: int = 1,
        lookupds: int = 2,
        busy: float = 0.5,
    ) -> None:
        given = {
            "nodes": nodes,
            "topics": topics,
            "channels": channels,
            "consumers": consumers,
            "lookupds": lookupds,
            "busy": busy,
        }
        flags = [f"--{name}={value}" for name, value in given.items()]
        self.process = subprocess.Popen(
            [sys.executable, str(Path(__file__)), *flags],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, "the simulated cluster did not start"
        found = json.loads(line)
        self.nodes: list[str] = found["nodes"]
        self.lookupds: list[str] = found["lookupds"]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        # Its standard input ends, and so does it: also when we are killed.
        self.process.communicate(timeout=START_SECONDS_MAX)


class Prepared:
    """A body of JSON in which only digits change, so that it costs next to nothing to give it again and again."""

    def __init__(self, found: Any, values: list[Value]) -> None:
        body = json.dumps(found, separators=(",", ":")).replace(f'"{BLANK}"', BLANK)
        self.array = np.frombuffer(bytearray(body.encode()), np.uint8)
        first = np.flatnonzero(self.array == ord("@"))[::DIGITS]
        self.places = first[:, None] + np.arange(DIGITS)[None, :]
        self.base, self.rate = np.array(values, np.float64).reshape(-1, 2).T

    def at(self, passed_s: float) -> bytes:
        numbers = (self.base + self.rate * passed_s).astype(np.int64)
        powers = 10 ** np.arange(DIGITS - 1, -1, -1, dtype=np.int64)
        digits = (numbers[:, None] // powers) % 10 + ord("0")
        # Blanks before a number are JSON, zeros are not.
        blank = (numbers[:, None] < powers) & (powers > 1)
        self.array[self.places] = np.where(blank, ord(" "), digits)
        return self.array.tobytes()


class Nsqd:
    """One node."""

    def __init__(self, index: int, args: argparse.Namespace) -> None:
        self.index = index
        self.port = 0
        self.started = int(time.time())
        self.args = args
        self.began = time.monotonic()
        self.prepared: dict[tuple[str, str, bool], Prepared] = {}
        self.prepare("", "", clients=False)

    def stats(self, topic: str, channel: str, *, clients: bool) -> bytes:
        """As nsqd answers, of everything or of one topic or channel; each is prepared when it is asked for first."""
        prepared = self.prepared.get((topic, channel, clients))
        if prepared is None:
            prepared = self.prepare(topic, channel, clients=clients)
        return prepared.at(time.monotonic() - self.began)

    def prepare(self, topic: str, channel: str, *, clients: bool) -> Prepared:
        values: list[Value] = []  # of what is left blank, in the same order
        topics = [
            topic_of(number, channel, self.args, values)
            for number in range(self.args.topics)
            if topic in ("", topic_name(number))
        ]
        for one in [one for kept in topics for one in kept["channels"]] if clients else []:
            one["clients"] = [client_of(self.index, n) for n in range(self.args.consumers)]
        head = {"version": "1.3.0", "health": "OK", "start_time": self.started}
        made = Prepared(head | {"topics": topics, "memory": MEMORY, "producers": []}, values)
        self.prepared[topic, channel, clients] = made
        return made

    def info(self) -> bytes:
        return json.dumps(self.identity() | {"start_time": self.started}).encode()

    def identity(self) -> dict[str, Any]:
        return {
            "version": "1.3.0",
            "broadcast_address": "127.0.0.1",
            "hostname": f"node-{self.index:03}",
            "http_port": self.port,
            "tcp_port": 10_000 + self.index,
        }

    def __call__(self, method: str, path: str, query: dict[str, str]) -> bytes | None:
        if method == "POST":
            return b""
        if path == "/ping":
            return b"OK"
        if path == "/info":
            return self.info()
        if path != "/stats":
            return None
        with_clients = query.get("include_clients", "true") == "true" and self.args.consumers > 0
        return self.stats(query.get("topic", ""), query.get("channel", ""), clients=with_clients)


def topic_name(number: int) -> str:
    return f"topic-{number:04}"


def topic_of(number: int, channel: str, args: argparse.Namespace, values: list[Value]) -> Any:
    """As in /stats, with one channel or ('') all; what changes is left blank and said in `values`."""
    is_busy = number < args.topics * args.busy
    rate = 5.0 + number % 40 if is_busy else 0.0
    channels = []
    for index in range(args.channels):
        is_backlog = index == 0 and number % BACKLOG_EVERY == 0
        growth = rate / 2 if is_backlog else 0.0
        if channel not in ("", f"channel-{index}"):
            continue
        values += [(1000.0 if is_backlog else number % 3, growth), (10_000.0 + number, rate)]
        channels.append(
            {
                "channel_name": f"channel-{index}",
                "depth": BLANK,
                "backend_depth": 0,
                "in_flight_count": number % 5 if args.consumers else 0,
                "deferred_count": 0,
                "message_count": BLANK,
                "requeue_count": number % 7,
                "timeout_count": 0,
                "client_count": args.consumers,
                "clients": None,
                "paused": number % 100 == 99,
                "e2e_processing_latency": LATENCY,
            }
        )
    values += [(10_000.0 + number, rate), (1e6, rate * 100)]
    return {
        "topic_name": topic_name(number),
        "channels": channels,
        "depth": 0,
        "backend_depth": 0,
        "message_count": BLANK,
        "message_bytes": BLANK,
        "paused": False,
        "e2e_processing_latency": LATENCY,
    }


def client_of(node: int, number: int) -> dict[str, Any]:
    return {
        "client_id": f"consumer-{number}",
        "hostname": f"worker-{number}",
        "version": "V2",
        "remote_address": f"127.0.0.1:{20_000 + 100 * node + number}",
        "state": 3,
        "ready_count": 10,
        "in_flight_count": 1,
        "message_count": 100,
        "finish_count": 99,
        "requeue_count": 0,
        "connect_ts": int(time.time()) - 3600,
        "sample_rate": 0,
        "deflate": False,
        "snappy": False,
        "user_agent": "simulated/1.0",
        "tls": False,
    }


class Nsqlookupd:
    """Lists all nodes with all topics, and as Go's in no order."""

    def __init__(self, nodes: list[Nsqd], args: argparse.Namespace, seed: int) -> None:
        order = random.Random(seed)
        names = [topic_name(number) for number in range(args.topics)]
        self.port = 0
        self.channels = [f"channel-{index}" for index in range(args.channels)]
        self.producers = [
            node.identity() | {"remote_address": f"127.0.0.1:{30_000 + node.index}"}
            for node in nodes
        ]
        listed = []
        for producer in self.producers:
            order.shuffle(names)
            listed.append(producer | {"tombstones": [False] * len(names), "topics": names[:]})
        self.nodes = self._encode({"producers": listed})
        self.names = frozenset(names)
        self.topics = self._encode({"topics": names})
        self.found = self._encode({"channels": self.channels, "producers": self.producers})

    @staticmethod
    def _encode(found: Any) -> bytes:
        return json.dumps(found, separators=(",", ":")).encode()

    def __call__(self, method: str, path: str, query: dict[str, str]) -> bytes | None:
        known = query.get("topic") in self.names
        answers = {
            "/ping": b"OK",
            "/info": b'{"version":"1.3.0"}',
            "/nodes": self.nodes,
            "/topics": self.topics,
            "/channels": self._encode({"channels": self.channels if known else []}),
        }
        if path == "/lookup" and known:
            return self.found
        return b"" if method == "POST" else answers.get(path)


@lru_cache(REQUESTS_KEPT)
def read_request_line(line: str) -> tuple[str, str, dict[str, str]]:
    """Method, path and query."""
    method, target, _ = line.split(" ")
    parts = urlsplit(target)
    return method, parts.path, {name: values[0] for name, values in parse_qs(parts.query).items()}


class Http(asyncio.Protocol):
    """As much of HTTP/1.1 as our own client speaks."""

    def __init__(self, answer: Nsqd | Nsqlookupd) -> None:
        self.answer = answer
        self.received = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)  # uvloop's is none by its class

    def data_received(self, data: bytes) -> None:
        self.received += data
        while b"\r\n\r\n" in self.received:
            head, _, rest = self.received.partition(b"\r\n\r\n")
            size = 0
            for line in head.lower().split(b"\r\n"):
                if line.startswith(b"content-length:"):
                    size = int(line[15:])
            if len(rest) < size:
                return
            self.received = rest[size:]
            self.reply(head.split(b"\r\n", 1)[0].decode())

    def reply(self, line: str) -> None:
        body = self.answer(*read_request_line(line))
        status = "200 OK" if body is not None else "404 Not Found"
        body = body if body is not None else b'{"message":"NOT_FOUND"}'
        self.transport.write(HEAD.format(status=status, size=len(body)).encode() + body)


async def serve(args: argparse.Namespace) -> None:
    loop = asyncio.get_running_loop()

    async def listen(answer: Nsqd | Nsqlookupd) -> None:
        server = await loop.create_server(lambda: Http(answer), "127.0.0.1", 0)
        answer.port = server.sockets[0].getsockname()[1]

    nodes = [Nsqd(index, args) for index in range(args.nodes)]
    for node in nodes:
        await listen(node)
    lookupds = [Nsqlookupd(nodes, args, seed) for seed in range(args.lookupds)]
    for lookupd in lookupds:
        await listen(lookupd)
    found = {"nodes": nodes, "lookupds": lookupds}
    print(json.dumps({k: [f"127.0.0.1:{s.port}" for s in v] for k, v in found.items()}), flush=True)
    await loop.run_in_executor(None, sys.stdin.read)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    for name, number in (
        ("nodes", 100),
        ("topics", 500),
        ("channels", 1),
        ("consumers", 1),
        ("lookupds", 2),
    ):
        parser.add_argument(f"--{name}", type=int, default=number)
    parser.add_argument("--busy", type=float, default=0.5)
    import uvloop

    uvloop.run(serve(parser.parse_args()))


if __name__ == "__main__":
    main()
