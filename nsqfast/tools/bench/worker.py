"""One process of a run: its connections, its load, and their cost.

Any failure here becomes the report's `error`, one line; the parent never waits for a worker in vain.
"""

import contextlib
import os
import resource
import socket
import struct
import threading
import time
from collections.abc import Iterator, MutableSequence
from dataclasses import dataclass
from multiprocessing.connection import Connection as Pipe
from multiprocessing.synchronize import Barrier
from typing import Any

import orjson

from nsqfast._ext.bench.load import Load
from nsqfast.errors import NsqfastError
from nsqfast.tools.bench.options import (
    NS_PER_S,
    PROGRAM,
    Options,
    WorkerPlan,
    identify_settings,
    publish_command,
)
from nsqfast.wire.gotext import join_host_port, os_error
from nsqfast.wire.protocol import FRAME_ERROR, FRAME_RESPONSE, HEARTBEAT, LENGTH_SIZE, MAGIC_V2

# A row of the shared totals; Load writes the first four columns.
ROW_SIZE = 8
PUBLISHED, RECEIVED, FINISHED, REQUEUED, STARTED_NS, RECEIVED_BYTES = range(6)

CONNECT_TIMEOUT_S = 5.0
HANG_UP_TIMEOUT_S = 5.0
# How long the other workers may need to connect; only a dead parent makes us wait longer.
BARRIER_TIMEOUT_S = 120.0

FRAME_HEAD = struct.Struct(">iI")  # size (counts the type, not itself), type
READ_SIZE = 1 << 18
SAMPLE_SIZE = 8
QUANTILES = (0.5, 0.99, 0.999)
STALE = (
    "the channel was full of older messages: measure latency on a --topic or --channel of its own"
)


@dataclass(frozen=True, slots=True)
class Latency:
    """Microseconds from a message's due time to its arrival, or to its OK.

    `stale` ones are from before the run, and left out.
    """

    count: int
    stale: int
    p50: float
    p99: float
    p999: float
    max: float


@dataclass(frozen=True, slots=True)
class Report:
    """The worker's message to the parent at its end; `started_ns` = 0: it never started."""

    started_ns: int = 0
    ended_ns: int = 0
    user_s: float = 0.0
    sys_s: float = 0.0
    latency: Latency | None = None
    ok_latency: Latency | None = None
    error: str | None = None


class RefusedError(NsqfastError):
    """The broker does not do what was requested; the text says why, or what to change."""


def work(
    plan: WorkerPlan, totals: MutableSequence[int], barrier: Barrier, report_pipe: Pipe
) -> None:
    """The whole life of a worker process."""
    place = join_host_port(*plan.options.address)
    try:
        report = _measure(plan, totals, barrier)
    except threading.BrokenBarrierError:
        report = Report(error="the other workers did not get ready")
    except ConnectionRefusedError:
        report = Report(error=f"cannot connect to {place}: is nsqd listening there?")
    except socket.gaierror:
        report = Report(error=f"cannot connect to {place}: no such host")
    except OSError as error:
        report = Report(error=f"{place}: {os_error(error)}")
    except NsqfastError as error:
        report = Report(error=f"{place}: {error}")
    except MemoryError:
        report = Report(error="out of memory: lower --size, --batch-size or --connections")
    # The parent is gone.
    with contextlib.suppress(BrokenPipeError), report_pipe:
        report_pipe.send(report)


def _measure(plan: WorkerPlan, totals: MutableSequence[int], barrier: Barrier) -> Report:
    load = Load(totals, plan.index)
    with _connected(plan, load):
        samples, answers = _sample_rooms(plan.options)
        load.record(samples)
        load.record_answers(answers)
        barrier.wait(BARRIER_TIMEOUT_S)
        started_ns = time.monotonic_ns()
        totals[ROW_SIZE * plan.index + STARTED_NS] = started_ns
        before = resource.getrusage(resource.RUSAGE_SELF)
        load.run(plan.publish_target, plan.finish_target, started_ns + plan.runfor_ns)
        after = resource.getrusage(resource.RUSAGE_SELF)
    latency, error = None, load.error
    if error is not None:
        error = f"{join_host_port(*plan.options.address)}: {error}"
    if load.sampled:
        latency = _summarize_arrivals(samples, load, plan.options.intended)
        if latency is None:
            error = error or STALE
    return Report(
        started_ns=load.started_ns,
        ended_ns=load.ended_ns,
        user_s=after.ru_utime - before.ru_utime,
        sys_s=after.ru_stime - before.ru_stime,
        latency=latency,
        ok_latency=_summarize_answers(answers, load),
        error=error,
    )


def _sample_rooms(options: Options) -> tuple[bytearray, bytearray]:
    """For messages and for OKs; nothing in modes without a timetable.

    Messages have twice the intended number, because those that an earlier run left in the channel come first.
    """
    size = SAMPLE_SIZE * options.intended if options.mode == "latency" else 0
    return bytearray(2 * size), bytearray(size)


@contextlib.contextmanager
def _connected(plan: WorkerPlan, load: Load) -> Iterator[None]:
    """Connect all connections of the worker; on exit, wait until the broker has read everything we sent."""
    options = plan.options
    commands = {topic: publish_command(options, topic) for topic in plan.topics}
    consumers = []
    with contextlib.ExitStack() as sockets:
        for topic, quota in zip(plan.topics, plan.quotas, strict=True):
            fd = sockets.enter_context(_connect(options)).fileno()
            _add_publisher(load, fd, commands[topic], options, quota)
        for channel in plan.channels:
            consumers.append(sockets.enter_context(_connect(options, channel)))
            load.add_consumer(consumers[-1].fileno(), options.rdy, options.requeue_ms)
        yield
        _hang_up(consumers)


def _add_publisher(load: Load, fd: int, command: bytes, options: Options, quota: int) -> None:
    if options.mode == "latency":
        interval_ns = options.connections * NS_PER_S // options.rate
        load.add_paced(fd, command, len(command) - options.size, max(1, interval_ns), quota)
    else:
        load.add_publisher(fd, command, options.batch_size, options.in_air, quota)


@contextlib.contextmanager
def _connect(options: Options, channel: str = "") -> Iterator[socket.socket]:
    """An identified socket, subscribed to the channel if there is one, for Load to go on with."""
    with socket.create_connection(options.address, CONNECT_TIMEOUT_S) as opened:
        # A command must not wait for the last one's acknowledgement, as Nagle's algorithm has it.
        opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        settings = identify_settings(options, f"{PROGRAM}-{os.getpid()}")
        body = orjson.dumps({"feature_negotiation": True, **settings})
        opened.sendall(MAGIC_V2 + b"IDENTIFY\n" + struct.pack(">I", len(body)) + body)
        try:
            answer = orjson.loads(_read_answer(opened))
        except ValueError:
            raise RefusedError("the answer to IDENTIFY is not that of an nsqd") from None
        if channel:
            rdy_max = int(answer.get("max_rdy_count", options.rdy))
            if options.rdy > rdy_max:
                raise RefusedError(
                    f"--rdy must be at most {rdy_max} with this broker, not {options.rdy}"
                )
            opened.sendall(f"SUB {options.topic} {channel}\n".encode())
            if (answer := _read_answer(opened)) != b"OK":
                raise RefusedError(f"expected OK, got {answer!r}")
        opened.setblocking(False)
        yield opened


def _read_answer(opened: socket.socket) -> bytes:
    """Read the next frame that is not a heartbeat, and no byte behind it; RefusedError if it is an error."""
    while True:
        size, frame_type = FRAME_HEAD.unpack(_read(opened, FRAME_HEAD.size))
        data = _read(opened, size - LENGTH_SIZE)
        if frame_type == FRAME_ERROR:
            raise RefusedError(data.decode(errors="replace"))
        if frame_type != FRAME_RESPONSE or data != HEARTBEAT:
            return data
        opened.sendall(b"NOP\n")


def _read(opened: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        some = opened.recv(size - len(data))
        if not some:
            raise RefusedError("the broker closed the connection")
        data += some
    return bytes(data)


def _hang_up(consumers: list[socket.socket]) -> None:
    """Wait until the broker has read everything and closed: closing with unread messages would drop unsent FINs."""
    end_s = time.monotonic() + HANG_UP_TIMEOUT_S
    for consumer in consumers:
        with contextlib.suppress(OSError):
            consumer.shutdown(socket.SHUT_WR)
    for consumer in consumers:
        with contextlib.suppress(OSError):
            # Not 0, which would not even read available data.
            consumer.settimeout(max(0.001, end_s - time.monotonic()))
            while consumer.recv(READ_SIZE):
                pass


def _summarize_arrivals(room: bytearray, load: Load, intended: int) -> Latency | None:
    """None if most messages are older than the run, so that their bodies contain no time of it."""
    # Import late: it starts threads, which spin for a while.
    import numpy as np

    samples = np.frombuffer(room, np.int64)[: load.sampled]
    fresh = samples[(samples >= 0) & (samples <= load.ended_ns - load.started_ns)]
    stale_count = len(samples) - len(fresh)
    if stale_count >= len(fresh):
        return None
    return _percentiles(fresh[:intended], stale_count)


def _summarize_answers(room: bytearray, load: Load) -> Latency | None:
    """None without an OK, or a timetable."""
    if not load.answers_sampled:
        return None
    import numpy as np

    return _percentiles(np.frombuffer(room, np.int64)[: load.answers_sampled], stale_count=0)


def _percentiles(samples_ns: Any, stale_count: int) -> Latency:
    import numpy as np

    p50, p99, p999 = np.quantile(samples_ns, QUANTILES) / 1000
    return Latency(
        count=len(samples_ns),
        stale=stale_count,
        p50=float(p50),
        p99=float(p99),
        p999=float(p999),
        max=float(samples_ns.max()) / 1000,
    )
