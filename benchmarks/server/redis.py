"""Redis beside the brokers: a stream for a topic, a consumer group for a channel, and an fsync before each answer.

Its load is redis-benchmark, in C and on TCP as nsqfast-bench is. It has nothing for XREADGROUP and XACK of what was
read: those are sent by processes in Python, whose CPU counts as the load's: one sees whether they were the limit.
"""

from __future__ import annotations

import multiprocessing
import re
import shutil
import socket
import subprocess
import time
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from server.broker import PortTakenError, free_ports
from server.generators import Ended, run_program
from server.usage import Meter

if TYPE_CHECKING:
    from pathlib import Path

    from server.loads import Publish, Sample

REDIS = "redis"
BENCHMARK, WITH_READERS = "redis-benchmark", "redis-benchmark, readers in Python"
NO_REDIS = "redis-server or redis-benchmark is missing, so nothing stands beside Redis: `apt install redis-server`."
FLAGS = "--appendonly yes --appendfsync always --auto-aof-rewrite-percentage 0".split()
STREAM, GROUP, FIELD = "bench", "ch", "b"
START_TRIES_MAX = 5
SECONDS_MAX = 60.0
POLL_SECONDS = 0.005
READERS = 2
READ_COUNT = 200
# How soon a reader notices that the other one got the last messages.
BLOCK_MS = 50
RECEIVE_SIZE = 1 << 20

_RATE = re.compile(r'^"(?!test")[^\n]*","([\d.]+)"(?:,"[\d.]+"){6}$', re.MULTILINE)
_ENTRIES = re.compile(rb"\*1\r\n\*2\r\n\$\d+\r\n\w+\r\n\*(\d+)\r\n")
_ID = re.compile(rb"\r\n(\d+-\d+)\r\n")
_NOTHING = b"*-1\r\n"


class RedisError(Exception):
    """Redis refused a command, or ended the connection."""


def has_redis() -> bool:
    """Whether both programs are installed."""
    return all(shutil.which(name) for name in ("redis-server", "redis-benchmark"))


def redis_version() -> str | None:
    """The number alone, such as 7.0.15."""
    if not has_redis():
        return None
    said = run_program(["redis-server", "--version"])
    return said.output.partition("v=")[2].partition(" ")[0]


class Client:
    """One connection, which waits for each answer."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), SECONDS_MAX)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._input = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def ask(self, *words: str) -> str:
        """Send one command whose answer is no list; return that."""
        self._socket.sendall(encode(*words))
        line = self._read_line()
        if not line.startswith(b"$"):
            return line[1:].decode()
        size = int(line[1:])
        while len(self._input) < size + 2:
            self._receive()
        answer, self._input = self._input[:size], self._input[size + 2 :]
        return answer.decode()

    def acknowledge_and_read(self, ids: list[bytes], consumer: str) -> list[bytes]:
        """XACK those, if there are any, and XREADGROUP in one go; return the ids that came."""
        read = f"XREADGROUP GROUP {GROUP} {consumer} COUNT {READ_COUNT} BLOCK {BLOCK_MS} STREAMS {STREAM} >"
        acknowledge = encode("XACK", STREAM, GROUP, *ids) if ids else b""
        self._socket.sendall(acknowledge + encode(*read.split()))
        if ids and int(self._read_line()[1:]) != len(ids):
            raise RedisError("XACK of what was not pending")
        while (found := read_entries(self._input)) is None:
            self._receive()
        self._input = b""  # nothing else was requested
        return found

    def _read_line(self) -> bytes:
        while b"\r\n" not in self._input:
            self._receive()
        line, _, self._input = self._input.partition(b"\r\n")
        fail_if_refused(line)
        return line

    def _receive(self) -> None:
        some = self._socket.recv(RECEIVE_SIZE)
        if not some:
            raise RedisError("redis-server closed the connection")
        self._input += some


def encode(*words: str | bytes) -> bytes:
    """A command on the wire."""
    parts = [word.encode() if isinstance(word, str) else word for word in words]
    return b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%b\r\n" % (len(one), one) for one in parts)


def read_entries(answer: bytes) -> list[bytes] | None:
    """Return the ids in an answer to XREADGROUP of one stream; None if that is not whole yet."""
    if answer.endswith(b"\r\n"):
        fail_if_refused(answer)
    if answer == _NOTHING:
        return []
    head = _ENTRIES.match(answer)
    ids = _ID.findall(answer, head.end() - 2) if head else []
    # The last entry is whole when the body behind its field is: a body has no line ends.
    tail = answer.rpartition(b"\r\n%b\r\n" % FIELD.encode())[2]
    is_whole = head and len(ids) == int(head[1]) and tail.count(b"\r\n") == 2
    return ids if is_whole and answer.endswith(b"\r\n") else None


def fail_if_refused(line: bytes) -> None:
    """Raise the error that Redis answered with."""
    if line.startswith(b"-"):
        raise RedisError(line[1:].partition(b"\r\n")[0].decode())


class Redis:
    """A server on a free port of 127.0.0.1, with its data in that folder."""

    name = REDIS

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        for _ in range(START_TRIES_MAX):
            try:
                self._start()
            except PortTakenError:
                continue
            return
        raise RuntimeError(f"redis-server: no free port in {START_TRIES_MAX} tries")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _start(self) -> None:
        (self.port,) = free_ports(1)
        command = ["redis-server", "--bind", "127.0.0.1", "--port", str(self.port)]
        command += ["--dir", str(self._folder), "--save", "", *FLAGS]
        with (self._folder / "redis.log").open("wb") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        self.pid = self._process.pid
        deadline = time.monotonic() + SECONDS_MAX
        while time.monotonic() < deadline:
            if self._process.poll() is not None:
                self._complain_of_start()
            try:
                if f"process_id:{self.pid}\r\n" in self.ask("INFO", "server"):
                    return
            except (OSError, RedisError):
                pass  # not there yet, or another program has that port and ours is about to find out
            time.sleep(POLL_SECONDS)
        self.stop()
        raise RuntimeError(f"redis-server does not listen after {SECONDS_MAX} s")

    def _complain_of_start(self) -> None:
        said = (self._folder / "redis.log").read_text(encoding="utf-8", errors="replace")
        if "Address already in use" in said:
            raise PortTakenError
        raise RuntimeError(f"redis-server did not start:\n{said}")

    def stop(self) -> None:
        """End it; what it has is of no use any more."""
        self._process.kill()
        self._process.wait()

    def ask(self, *words: str) -> str:
        """Send one command over a connection of its own."""
        with Client(self.port) as client:
            return client.ask(*words)


# ---- loads


def publish(redis: Redis, load: Publish, count: int) -> Sample:
    """XADD over as many connections, as many in the air as messages are under way with that load."""
    redis.ask("XGROUP", "CREATE", STREAM, GROUP, "$", "MKSTREAM")
    meter = Meter(redis.pid)
    done = add(redis, load, count)
    sample = {
        "rate": read_rate(done.output),
        "generator_cpu_us": done.cpu_us / count,
        **meter.spent(count),
    }
    redis.ask("FLUSHALL")
    return sample


def add(redis: Redis, load: Publish, count: int) -> Ended:
    """Run redis-benchmark; an entry that is missing in the stream is an error."""
    command = ["redis-benchmark", "-p", str(redis.port), "-c", str(load.connections)]
    command += ["-P", str(load.in_air * load.batch_size), "-n", str(count), "--csv"]
    done = run_program([*command, "XADD", STREAM, "*", FIELD, "x" * load.size])
    if (length := redis.ask("XLEN", STREAM)) != str(count):
        raise RedisError(f"{length} of {count} entries arrived:\n{done.output}{done.errors}")
    return done


def read_rate(output: str) -> float:
    """Return the entries a second of redis-benchmark --csv."""
    found = _RATE.search(output)
    if not found:
        raise RuntimeError(f"redis-benchmark has no result:\n{output}")
    return float(found[1])


class Reading(NamedTuple):
    """What one reader did; an error in place of the rest."""

    first_ns: int
    last_ns: int
    cpu_us: float
    error: str = ""


def exchange(redis: Redis, load: Publish, count: int) -> Sample:
    """XADD while two others XREADGROUP and XACK; the time is from the first entry that was read to the last XACK."""
    redis.ask("XGROUP", "CREATE", STREAM, GROUP, "$", "MKSTREAM")
    context = multiprocessing.get_context("fork")
    acknowledged = context.Value("q", 0)
    pipes = [context.Pipe(duplex=False) for _ in range(READERS)]
    readers = [
        context.Process(
            target=_read, args=(redis.port, f"c{i}", count, acknowledged, pipe), daemon=True
        )
        for i, (_, pipe) in enumerate(pipes)
    ]
    meter = Meter(redis.pid)
    for reader in readers:
        reader.start()
    try:
        done = add(redis, load, count)
        readings = [_receive(inbox) for inbox, _ in pipes]
    finally:
        for reader in readers:
            reader.terminate()
            reader.join()
    seconds = (max(r.last_ns for r in readings) - min(r.first_ns for r in readings)) / 1e9
    cpu_us = done.cpu_us + sum(reading.cpu_us for reading in readings)
    sample = {"rate": count / seconds, "generator_cpu_us": cpu_us / count, **meter.spent(count)}
    redis.ask("FLUSHALL")
    return sample


def _receive(inbox: Any) -> Reading:
    if not inbox.poll(SECONDS_MAX):
        raise RedisError(f"entries were not acknowledged in {SECONDS_MAX} s")
    reading: Reading = inbox.recv()
    if reading.error:
        raise RedisError(reading.error)
    return reading


def _read(port: int, consumer: str, count: int, acknowledged: Any, pipe: Any) -> None:
    """The life of a reader: until all of them together have acknowledged so many."""
    first_ns, last_ns, ids = 0, 0, []
    try:
        with Client(port) as client:
            while acknowledged.value < count:
                taken = len(ids)
                ids = client.acknowledge_and_read(ids, consumer)
                now_ns = time.monotonic_ns()
                first_ns = first_ns or (now_ns if ids else 0)
                last_ns = now_ns if taken else last_ns
                with acknowledged.get_lock():
                    acknowledged.value += taken
    except (OSError, RedisError) as error:
        pipe.send(Reading(0, 0, 0.0, str(error)))
    else:
        # One that got nothing has no time of its own.
        pipe.send(Reading(first_ns or time.monotonic_ns(), last_ns, time.process_time_ns() / 1000))
