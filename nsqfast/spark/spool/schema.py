"""The columns of a message, on disk and in Spark."""

from collections.abc import Sequence

import pyarrow as pa

from nsqfast.archives.tables import death_type

# Exactly what Spark makes of the source's columns, so that it accepts batches as they are.
SCHEMA = pa.schema(
    [
        ("topic", pa.string()),
        ("channel", pa.string()),
        ("id", pa.string()),
        ("timestamp", pa.timestamp("us", tz="UTC")),
        ("timestamp_ns", pa.int64()),
        ("attempts", pa.int32()),
        ("nsqd", pa.string()),
        ("body", pa.binary()),
    ]
)

# What is known of dead letters, which only a receiver with --deaths asks for; null for other messages.
DEATH = pa.field("death", death_type())
SCHEMA_WITH_DEATHS = SCHEMA.append(DEATH)
SCHEMAS = (SCHEMA, SCHEMA_WITH_DEATHS)  # a segment has one of them
_SQL = {pa.string(): "string", pa.int32(): "int", pa.int64(): "bigint"}
DEATH_DDL = f"death struct<{','.join(f'{each.name}:{_SQL[each.type]}' for each in DEATH.type)}>"


def choose_columns(rows: pa.RecordBatch, names: Sequence[str]) -> pa.RecordBatch:
    """Return those columns in that order; of a segment without deaths `death` is null."""
    if rows.schema.names == list(names):
        return rows
    if DEATH.name in names and DEATH.name not in rows.schema.names:
        columns = [*rows.columns, pa.nulls(rows.num_rows, DEATH.type)]
        rows = pa.RecordBatch.from_arrays(columns, schema=rows.schema.append(DEATH))
    return rows.select(list(names))
