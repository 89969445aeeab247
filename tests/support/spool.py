"""A spool, and the receivers that fill it."""

from __future__ import annotations

import re
import sys
import urllib.request
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from nsqfast.client.sync import Producer
from nsqfast.spark.spool.reading import read_batches
from nsqfast.spark.spool.release import release_segments
from nsqfast.spark.spool.schema import SCHEMA
from nsqfast.spark.spool.segments import Segment, list_done, list_receivers, list_segments
from support.tools import Tool
from support.web import topic_stats

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from support.server import Server

BATCH = 1000  # messages of an MPUB
MPUB_SIZE = 4_000_000


def make_rows(numbers: Iterable[int], topic: str = "t", attempts: int = 1) -> pa.RecordBatch:
    """A message for each number, which is its time, its id and its body."""
    rows = [
        {
            "topic": topic,
            "channel": "c",
            "id": f"{number:016x}",
            "timestamp": number,
            "timestamp_ns": number * 1000,
            "attempts": attempts,
            "nsqd": "127.0.0.1:4150",
            "body": b"body %d" % number,
        }
        for number in numbers
    ]
    return pa.RecordBatch.from_pylist(rows, schema=SCHEMA)


def fail(text: str) -> None:
    """For spools that are to be whole."""
    raise AssertionError(text)


def segments(spool: Path, *, with_done: bool = True) -> list[Segment]:
    """Of all receivers, live ones and, if wanted, released ones."""
    found = []
    for receiver in list_receivers(spool):
        found += list_segments(spool / receiver)
        if with_done:
            found += list_done(spool / receiver)
    return found


def read_spool(spool: Path) -> pa.Table:
    """All that it holds."""
    batches = [batch for segment in segments(spool) for batch in read_batches(segment, fail)]
    return pa.Table.from_batches(batches, SCHEMA)


def bodies(spool: Path) -> list[bytes]:
    """Of all messages."""
    found: list[bytes] = read_spool(spool).column("body").to_pylist()
    return found


def take_live(folder: Path) -> list[int]:
    """Of one receiver's folder: read what `publish` published, then release it, as Spark does."""
    live = list_segments(folder)
    batches = [batch for segment in live for batch in read_batches(segment, fail)]
    if live:
        release_segments(folder, max(segment.number for segment in live))
    return [int(body) for batch in batches for body in batch.column("body").to_pylist()]


def row_count(spool: Path) -> int:
    """As the names of the segments say."""
    if not spool.exists():
        return 0
    return sum(segment.row_count for segment in segments(spool))


def publish(address: str, topic: str, numbers: Iterable[int], size: int = 0) -> None:
    """A message for each number, which is its body, filled up to `size` bytes."""
    wanted = [(b"%d" % number).ljust(size, b" ") for number in numbers]
    count = min(BATCH, MPUB_SIZE // max(size, 1))
    with Producer(address) as producer:
        for first in range(0, len(wanted), count):
            producer.publish_many(topic, wanted[first : first + count])


def numbers(spool: Path) -> list[int]:
    """What `publish` published, in order."""
    return sorted(int(body) for body in bodies(spool))


def receiver_flags(spool: Path, address: str, *more: object, topic: str = "t") -> list[str]:
    """Of one that takes channel c of that topic from one nsqd."""
    flags = [f"--spool={spool}", f"--topic={topic}", "--channel=c", f"--nsqd-tcp-address={address}"]
    return [*flags, *map(str, more)]


def start_receiver(*flags: str, **more: Any) -> Tool:
    """It runs until it is told to end."""
    return Tool([sys.executable, "-m", "nsqfast.spark.receiver.main", *flags], **more)


KILLED = """
import os, signal, sys
from pathlib import Path
from nsqfast.spark.receiver.group import Group
from nsqfast.spark.receiver.main import main
from nsqfast.spark.spool import writer
from nsqfast.spark.spool.store import Store

def die_at(place, name, count, *, after=False):
    real = getattr(place, name)
    def step(*words, **more):
        nonlocal count
        count -= 1
        if count == 0 and not after:
            os.kill(os.getpid(), signal.SIGKILL)
        done = real(*words, **more)
        if count == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return done
    setattr(place, name, step)

point, count = sys.argv[1], int(sys.argv[2])
{
    "within the file": lambda: die_at(os, "write", count),
    "before fsync": lambda: die_at(os, "fsync", 10 + 2 * count),
    "before the name": lambda: die_at(Path, "rename", count),
    "before the folder's fsync": lambda: die_at(writer, "sync_folder", 2 + count),
    "before it is stored": lambda: die_at(Store, "put", count),
    "after it is stored": lambda: die_at(Store, "put", count, after=True),
    "before FIN": lambda: die_at(Group, "finish", count),
    "after FIN": lambda: die_at(Group, "finish", count, after=True),
}[point]()
sys.exit(main(sys.argv[3:]))
"""


def start_killed_at(point: str, count: int, *flags: str, **more: Any) -> Tool:
    """One that kills itself at the so-manieth time that it comes to that point of sealing."""
    return Tool([sys.executable, "-c", KILLED, point, str(count), *flags], **more)


def run_receiver(*flags: str, **more: Any) -> tuple[int, str]:
    """Its exit status and what it said."""
    with start_receiver(*flags, **more) as tool:
        status = tool.end(None)
        return status, tool.text


def channel_state(broker: Server, topic: str = "t", channel: str = "c") -> dict[str, int]:
    """Of that channel: depth, in_flight_count, ...; empty while there is none."""
    found: dict[str, Any] = topic_stats(broker.http, topic) or {}
    return found.get("channels", {}).get(channel, {})  # type: ignore[no-any-return]


def is_empty(broker: Server, topic: str = "t", channel: str = "c") -> bool:
    """Whether that channel is there and has nothing, waiting or under way."""
    state = channel_state(broker, topic, channel)
    return bool(state) and not any(
        state[name] for name in ("depth", "in_flight_count", "deferred_count")
    )


def metric(tool: Tool, name: str) -> float:
    """Of a receiver with --metrics-address."""
    tool.wait_for(lambda tool: b"metrics: listening on" in tool.err)
    found = re.search(rb"metrics: listening on (\S+)", tool.err)
    assert found is not None
    with urllib.request.urlopen(f"http://{found[1].decode()}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    value = re.search(rf"^nsqfast_nsq_spool_{name} (\S+)$", text, re.MULTILINE)
    assert value is not None, text
    return float(value[1])
