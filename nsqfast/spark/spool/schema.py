"""The columns of a message, on disk and in Spark."""

import pyarrow as pa

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
