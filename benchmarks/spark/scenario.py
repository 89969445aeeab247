"""The scenarios of nsqfast with Spark, and the figures to reach."""

from __future__ import annotations

from dataclasses import dataclass

SIZE = 200
RATE, CPU, LATENCY = "rate", "cpu_us", "latency_s"


@dataclass(frozen=True, slots=True)
class Scenario:
    """One row. `goal` is the least rate (messages a second), `limit` the maximum of `metric`; 0 = no target."""

    key: str
    words: str
    plain: str = ""  # the way without nsqfast; "" = every other way loses messages
    count: int = 1_000_000
    plain_count: int = 0
    goal: float = 0.0
    metric: str = ""
    limit: float = 0.0


SCENARIOS = (
    Scenario(
        "intake", "receiver: nsqd → segments on disk, finished after fsync",
        "Go's nsq_to_file, 2,500 in flight", 2_000_000, 200_000, goal=600_000, metric=CPU, limit=0.8,
    ),
    Scenario(
        "intake_bucket",
        "receiver: nsqd → Parquet segments in a bucket (MinIO; moto without `make go-minio`), then finished",
        "the same into the spool alone", 500_000, 500_000,
    ),
    Scenario(
        "spool_noop", "spool → noop, one stream", "text source → noop", 2_000_000, 2_000_000,
        goal=600_000,
    ),
    Scenario(
        "spool_parquet", "spool → Parquet, one stream", "text source → Parquet",
        2_000_000, 2_000_000, goal=300_000,
    ),
    Scenario(
        "native_noop", "Parquet segments → noop, one stream", "as many Parquet files of Spark → noop",
        2_000_000, 2_000_000, goal=600_000,
    ),
    Scenario(
        "native_parquet", "Parquet segments → Parquet, one stream", "as many Parquet files of Spark → Parquet",
        2_000_000, 2_000_000, goal=300_000,
    ),
    Scenario(
        "end_to_end", "load → nsqd → receiver → `ingest` to Parquet, all on these cores, for 20 s",
        count=20, goal=120_000,
    ),
    Scenario(
        "latency", "the same at 20,000 messages a second with `--interval=0s`: publishing to Parquet, median",
        count=20, metric=LATENCY, limit=1.0,
    ),
    Scenario(
        "sink", "DataFrame → nsqd", "foreachPartition with pynsq", 2_000_000, 100_000, goal=500_000,
    ),
    Scenario(
        "archives", "`load-archives`: lines → Parquet by topic, date and hour",
        "text reader → Parquet", 2_000_000, 2_000_000, goal=300_000,
    ),
    Scenario(
        "archives_gzip", "`load-archives`: one gzip file → the same", "text reader → Parquet",
        1_000_000, 1_000_000, goal=200_000,
    ),
)  # fmt: skip
