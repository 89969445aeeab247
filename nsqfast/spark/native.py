"""A spool of Parquet segments, read by Spark's own file source: no row passes through Python.

A receiver writes them (`nsqfast-nsq-spool --segment-format=parquet --checkpoint=...`). Spark notes in its checkpoint
which files a query took, so each message is processed once; the receiver reads there which it may release.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nsqfast.spark.spool.identity import SpoolError, read_identity
from nsqfast.spark.spool.schema import DEATH_DDL
from nsqfast.spark.spool.segments import ARROW, list_receivers, list_segments

if TYPE_CHECKING:
    import os

    from pyspark.sql import DataFrame
    from pyspark.sql.readwriter import DataFrameReader
    from pyspark.sql.streaming.readwriter import DataStreamReader

SCHEMA = (
    "topic STRING, channel STRING, id STRING, timestamp TIMESTAMP, timestamp_ns BIGINT, attempts INT, nsqd STRING,"
    " body BINARY"
)
# Spark's file source takes the paths that it has found for patterns, and reads such files several times.
_PATTERN_SIGNS = re.compile(r"[\\{}\[\]*?]")


def read_by(
    reader: "DataFrameReader | DataStreamReader",
    spool_dir: "str | os.PathLike[str]",
    options: Mapping[str, Any],
    *,
    deaths: bool = False,
) -> "DataFrame":
    """Return what that reader of Spark finds in the spool, or in a store below a URL as Spark knows it (`s3a://...`).

    With `deaths` it has the column `death`, which is null where the receiver did not ask for them.
    SpoolError: there is no spool, or it has something else.
    """
    place = str(spool_dir)
    if "://" not in place:
        place = str(_check(Path(spool_dir).absolute()))
    fixed = {"pathGlobFilter": "*.parquet", "parquet.page.verify-checksum.enabled": "true"}
    schema = f"{SCHEMA}, {DEATH_DDL}" if deaths else SCHEMA
    return (
        reader.schema(schema).options(**(fixed | dict(options))).parquet(f"{place.rstrip('/')}/*")
    )


def _check(folder: Path) -> Path:
    if _PATTERN_SIGNS.search(str(folder)):
        raise SpoolError(
            f"spool {folder}: where a folder's name has one of \\{{}}[]*?, Spark's file source reads its files more"
            " than once; use another folder"
        )
    if read_identity(folder) is None:
        raise SpoolError(
            f"{folder} is no spool: start nsqfast-nsq-spool --spool={folder} --segment-format=parquet"
        )
    for receiver in list_receivers(folder):
        arrow = [one for one in list_segments(folder / receiver) if one.format == ARROW]
        if arrow:
            raise SpoolError(
                f'{len(arrow)} segments of {folder / receiver} are of Arrow, which only format("nsq") reads: use'
                " another folder, and --segment-format=parquet"
            )
    return folder
