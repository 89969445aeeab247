"""The only session of a run: two cores, default settings."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

CORES = 2


def open_session(folder: Path) -> Any:
    """local[2]; Spark's own files go into that folder."""
    from pyspark.sql import SparkSession

    import nsqfast.spark

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    # Workers import what they run.
    os.environ["PYTHONPATH"] = os.pathsep.join(
        [str(Path(__file__).resolve().parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])]
    )
    session = (
        SparkSession.builder.master(f"local[{CORES}]")
        .appName("nsqfast benchmarks")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.memory", "2g")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", str(CORES))
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
        .config("spark.local.dir", str(folder / "local"))
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    nsqfast.spark.register(session)
    return session
