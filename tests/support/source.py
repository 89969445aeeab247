"""Queries of one spool, and what they have written."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from support.segments import CHANNEL, TOPIC

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, Row, SparkSession
    from pyspark.sql.streaming import StreamingQuery

SECONDS_MAX = 60


class Source:
    """One spool and one checkpoint; queries of them are ended by `close`."""

    def __init__(self, spark: SparkSession, folder: Path, address: str = "") -> None:
        self.address = address
        self.spark = spark
        self.spool = folder / "spool"
        self.checkpoint = folder / "checkpoint"
        self.batches: dict[int, list[Row]] = {}
        self.queries: list[StreamingQuery] = []

    def options(self, more: dict[str, str]) -> dict[str, str]:
        given = {"subscribe": TOPIC, "channel": CHANNEL, "spoolDir": str(self.spool)}
        own = {"nsqdTcpAddresses": self.address} if self.address else {"receiver": "external"}
        return given | own | more

    def load(self, **options: str) -> DataFrame:
        return self.spark.readStream.format("nsq").options(**self.options(options)).load()

    def read(self, **options: str) -> DataFrame:
        """A batch of what waits."""
        return self.spark.read.format("nsq").options(**self.options(options)).load()

    def start(self, *, available_now: bool = False, **options: str) -> StreamingQuery:
        """A query whose batches come into `batches`; one that comes again replaces what it was."""
        writer = self.load(**options).writeStream.foreachBatch(self._keep)
        writer = writer.option("checkpointLocation", str(self.checkpoint))
        if available_now:
            writer = writer.trigger(availableNow=True)
        query = writer.start()
        self.queries.append(query)
        return query

    def _keep(self, frame: DataFrame, number: int) -> None:
        self.batches[number] = frame.collect()

    def run(self, **options: str) -> StreamingQuery:
        """Batches until nothing waits."""
        query = self.start(available_now=True, **options)
        assert query.awaitTermination(SECONDS_MAX)
        return query

    def bodies(self) -> list[int]:
        """Of all batches, as numbers, in order."""
        batches = list(self.batches.values())
        return sorted(int(bytes(row.body)) for batch in batches for row in batch)

    def failure(self, query: StreamingQuery) -> str:
        with pytest.raises(Exception) as caught:
            assert query.awaitTermination(SECONDS_MAX)
        return str(caught.value)

    def close(self) -> None:
        for query in self.queries:
            query.stop()
