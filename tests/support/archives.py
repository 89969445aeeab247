"""Archives as nsq_to_file writes them, and reading them back."""

from __future__ import annotations

import base64
import gzip
import json
from typing import TYPE_CHECKING

from backports import zstd

from nsqfast.archives import FileFinder, FileNames, open_archive

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from nsqfast.archives import Archive, Damage, Records

BEGIN_NS = 1_763_798_400_000_000_000  # 2025-11-22T08:00:00Z


def lines(bodies: Iterable[bytes]) -> bytes:
    return b"".join(body + b"\n" for body in bodies)


def members(blocks: Sequence[bytes], packer: str) -> list[bytes]:
    """One member, or frame, for each block; with a checksum."""
    if packer == "gzip":
        return [gzip.compress(block, mtime=0) for block in blocks]
    options = {zstd.CompressionParameter.checksum_flag: 1}
    return [zstd.compress(block, options=options) for block in blocks]


def row(number: int, body: bytes, topic: str = "events") -> dict[str, object]:
    """All columns of a message."""
    return {
        "topic": topic,
        "id": f"{number:016x}",
        "timestamp_ns": BEGIN_NS + number * 1_000_000_000,
        "attempts": 1,
        "nsqd": "127.0.0.1:4150",
        "body": body,
    }


def json_line(number: int, body: bytes, topic: str = "events") -> bytes:
    found = row(number, body, topic)
    try:
        found["body"] = body.decode()
    except UnicodeDecodeError:
        del found["body"]
        found["body_base64"] = base64.b64encode(body).decode()
    return json.dumps(found).encode() + b"\n"


def table(bodies: Sequence[bytes], topics: Sequence[str] = ("events",)) -> object:
    """An Arrow table of messages; topics take turns."""
    import pyarrow as pa

    rows = [row(i, body, topics[i % len(topics)]) for i, body in enumerate(bodies)]
    kinds = {
        "topic": pa.string(),
        "id": pa.string(),
        "timestamp_ns": pa.int64(),
        "attempts": pa.uint16(),
        "nsqd": pa.string(),
        "body": pa.large_binary(),
    }
    columns = {name: pa.array([one[name] for one in rows], kind) for name, kind in kinds.items()}
    return pa.table(columns)


def write_parquet(path: Path, bodies: Sequence[bytes], group_rows: int = 1000, **more) -> None:
    import pyarrow.parquet

    pyarrow.parquet.write_table(table(bodies, **more), path, row_group_size=group_rows)


def write_arrow(
    path: Path, bodies: Sequence[bytes], batch_rows: int = 1000, *, is_stream: bool = False, **more
) -> None:
    import pyarrow as pa

    found = table(bodies, **more)
    begin = pa.ipc.new_stream if is_stream else pa.ipc.new_file
    with begin(path, found.schema) as writer:
        writer.write_table(found, max_chunksize=batch_rows)


class Reading:
    """All that an archive gives, one record at a time, and what was damaged."""

    def __init__(self, path: Path | str, position: int = 0, block_size: int = 1000, **more) -> None:
        self.archive: Archive = FileFinder(FileNames(), more.pop("formats", "")).find([str(path)])[
            0
        ]
        self.damages: list[Damage] = []
        self.parts: list[Records] = []
        self.read_size = 0
        with open_archive(
            self.archive, self.damages.append, position=position, block_size=block_size, **more
        ) as reader:
            for part in reader.records:
                self.parts.append(part)
                assert self.read_size <= reader.read_size
                self.read_size = reader.read_size

    @property
    def bodies(self) -> list[bytes]:
        return [part.bodies[i] for part in self.parts for i in range(len(part))]

    @property
    def positions(self) -> list[int]:
        return [int(position) for part in self.parts for position in part.positions]

    @property
    def timestamps_ns(self) -> list[int]:
        return [int(time_ns) for part in self.parts for time_ns in part.timestamps_ns]

    @property
    def ids(self) -> list[bytes]:
        return [part.ids[i] for part in self.parts for i in range(len(part))]

    @property
    def topics(self) -> list[str]:
        return [part.topics[number] for part in self.parts for number in part.topic_numbers]

    @property
    def told(self) -> str:
        return "\n".join(map(str, self.damages))
