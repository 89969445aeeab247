"""Messages in the layout of nsqfast-spark, read by pyarrow: not by what is tested."""

from __future__ import annotations

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet

if TYPE_CHECKING:
    from pathlib import Path

PARTITIONS = pa.schema([(name, pa.string()) for name in ("topic", "date", "hour", "batch")])

FIRST_NS = 1_763_798_400_000_000_000  # 2025-11-22T08:00:00Z
KINDS = pa.schema(
    {
        "channel": pa.string(),
        "id": pa.string(),
        "timestamp": pa.timestamp("us", "UTC"),
        "timestamp_ns": pa.int64(),
        "attempts": pa.int32(),
        "nsqd": pa.string(),
        "body": pa.binary(),
    }
)


def messages_in(folder: Path) -> list[SimpleNamespace]:
    """All of them; empty where there are none."""
    files = [
        path
        for path in sorted(folder.rglob("*.parquet"))
        if path.relative_to(folder).parts[0][0] not in "_."
    ]
    if not files:
        return []
    schemas = [pyarrow.parquet.read_schema(path) for path in files]
    found = pyarrow.dataset.dataset(
        [str(path) for path in files],
        schema=pa.unify_schemas([*schemas, PARTITIONS]),
        partitioning=pyarrow.dataset.partitioning(PARTITIONS, flavor="hive"),
    )
    return [SimpleNamespace(**row) for row in found.to_table().to_pylist()]


def write_messages(folder: Path, batch: str, messages: list[dict[str, object]]) -> None:
    """As ingest writes them: a file in each folder of topic, date and hour; one without a time is of FIRST_NS."""
    groups: dict[Path, list[dict[str, object]]] = {}
    for one in messages:
        time = datetime.fromtimestamp((one["timestamp_ns"] or FIRST_NS) // 1_000_000_000, UTC)
        place = folder / f"topic={one['topic']}" / f"date={time:%Y-%m-%d}" / f"hour={time:%H}"
        groups.setdefault(place / f"batch={batch}", []).append(one)
    for place, rows in groups.items():
        place.mkdir(parents=True, exist_ok=True)
        extra = {name for row in rows for name in row} - {*KINDS.names, "topic", "hour"}
        schema = pa.schema([*KINDS, *((name, pa.string()) for name in sorted(extra))])
        columns = [
            pa.array([row.get(name) for row in rows], schema.field(name).type)
            for name in schema.names
        ]
        pyarrow.parquet.write_table(pa.table(columns, schema=schema), place / "part.parquet")
