"""Reads what the tool wrote, whatever the format, and what it left in its channel."""

from __future__ import annotations

import base64
import json
import zlib
from typing import TYPE_CHECKING

import cramjam
import pyarrow as pa
import pyarrow.parquet as pq

from support.web import topic_stats

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from support.server import Server

CHANNEL = "nsq_to_file"


def files_in(folder: Path) -> dict[str, bytes]:
    """By name below the folder."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def unpack_gzip(data: bytes) -> bytes:
    """Of all members, up to where one is torn."""
    found = b""
    while data:
        member = zlib.decompressobj(31)
        found += member.decompress(data)
        data = member.unused_data
    return found


def unpack(name: str, data: bytes) -> bytes:
    if name.endswith(".gz"):
        return unpack_gzip(data)
    return bytes(cramjam.zstd.decompress(data)) if name.endswith(".zst") else data


def records_in(folder: Path) -> list[dict[str, object]]:
    """Of all files in the order of their names; lines have a body and nothing else."""
    found: list[dict[str, object]] = []
    for path in sorted(folder.rglob("*")):
        if not path.is_file():
            continue
        if path.suffix == ".parquet":
            found += pq.read_table(path, partitioning=None).to_pylist()
        elif path.suffix == ".arrow":
            with pa.memory_map(str(path)) as file:
                found += pa.ipc.open_file(file).read_all().to_pylist()
        else:
            found += [
                json_record(line) if ".jsonl" in path.name else {"body": line}
                for line in unpack(path.name, path.read_bytes()).split(b"\n")[:-1]
            ]
    return found


def json_record(line: bytes) -> dict[str, object]:
    record = json.loads(line)
    encoded = record.pop("body_base64", None)
    record["body"] = base64.b64decode(encoded) if encoded is not None else record["body"].encode()
    return record


def bodies_in(folder: Path) -> list[object]:
    return [record["body"] for record in records_in(folder)]


def unfinished(broker: Server, topic: str) -> int:
    """How many messages the tool's channel still holds; all that were published before there is one."""
    found = topic_stats(broker.http, topic)
    channel = found["channels"].get(CHANNEL)
    if channel is None:
        return int(found["message_count"]) or 1
    # Go's nsqd may have one in its hand that is neither in the topic nor in the channel.
    on_the_way = max(found["depth"], found["message_count"] - channel["message_count"])
    names = ("depth", "in_flight_count", "deferred_count")
    return int(on_the_way) + sum(int(channel[name]) for name in names)


def is_drained(broker: Server, topics: Sequence[str]) -> bool:
    """Whether every message of these topics was finished; looked at twice, for the same reason."""
    return not any(unfinished(broker, topic) for topic in [*topics, *topics])
