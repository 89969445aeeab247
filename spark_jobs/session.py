"""The SparkSession of a job: the caller's, that of spark-submit, or a new one.

A session of the caller is lent: what a job sets in it is restored, and it stays open.
"""

import contextlib
import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

from nsqfast.errors import OptionsError
from nsqfast.program import extras
from nsqfast.program.options import PlainError
from nsqfast.spark.runtime import find_java, own_home
from nsqfast.spark_jobs.options import JobOptions
from nsqfast.tools.shared.program import log

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOCAL = "local[*]"
LOOPBACK = "127.0.0.1"
SHUFFLE_PARTITIONS_PER_CORE = 4
SUBMITTED = "PYSPARK_GATEWAY_PORT"  # spark-submit has started a JVM, and this process

# What the jobs depend on. Without the second, a topic named 1234 would be read back as a number.
FIXED = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.sources.partitionColumnTypeInference.enabled": "false",
}


@contextlib.contextmanager
def open_session(
    options: JobOptions, job: str, lent: "SparkSession | None"
) -> "Iterator[SparkSession]":
    """OptionsError: no Java, no pyspark, or a setting that Spark refuses."""
    if lent is None:
        extras.check("nsqfast.spark", "spark")
    spark = lent or _session_of_this_process()
    if spark is not None:
        with _set(spark, {**options.settings(), **FIXED}):
            yield spark
        return
    is_local = SUBMITTED not in os.environ and (options.master or LOCAL).startswith("local")
    with own_home() if is_local else contextlib.nullcontext():
        spark = _make(options, job)
        try:
            yield spark
        finally:
            spark.stop()


def _session_of_this_process() -> "SparkSession | None":
    """Return a running session, as in a notebook, which its creator stops."""
    from pyspark.sql import SparkSession

    return SparkSession.getActiveSession()


@contextlib.contextmanager
def _set(spark: "SparkSession", settings: dict[str, str]) -> Iterator[None]:
    """Apply settings, and restore the old values afterwards."""
    before: dict[str, str | None] = {}
    try:
        for key, value in settings.items():
            old = spark.conf.get(key, None)
            if old == value:
                continue
            # Spark ignores some of these silently.
            if key.startswith("spark.") and not spark.conf.isModifiable(key):
                raise OptionsError(f"--conf {key}: it cannot be changed in a session that runs")
            spark.conf.set(key, value)
            before[key] = old
        yield
    finally:
        for key, old in before.items():
            if old is None:
                spark.conf.unset(key)
            else:
                spark.conf.set(key, old)


def _make(options: JobOptions, job: str) -> "SparkSession":
    is_submitted = SUBMITTED in os.environ
    if is_submitted and options.master:
        raise PlainError("--master: spark-submit has a --master of its own, which decides")
    master = "" if is_submitted else options.master or LOCAL
    is_local = master.startswith("local")
    if not is_submitted:
        find_java()
    if is_local:
        # Otherwise the workers would be whatever python3 is on PATH.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
        os.environ.setdefault("SPARK_LOCAL_IP", LOOPBACK)
    settings = {
        **(_local_settings() if is_local else {}),
        **options.settings(),
        **FIXED,
    }
    spark = _build(job, master, settings)
    if page := spark.sparkContext.uiWebUrl:
        log.info("Spark's page: %s", page)
    level = options.spark_log_level or ("fatal" if is_local else "")
    if level:
        spark.sparkContext.setLogLevel(level.upper())
    return spark


def _build(job: str, master: str, settings: dict[str, str]) -> "SparkSession":
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName(f"nsqfast {job}")
    if master:
        builder = builder.master(master)
    for key, value in settings.items():
        builder = builder.config(key, value)
    try:
        return builder.getOrCreate()
    except (PySparkException, Py4JError) as error:
        from nsqfast.spark.failures import explain

        raise OptionsError(f"Spark does not start: {explain(error)}") from None


def _local_settings() -> dict[str, str]:
    """One machine: accept no connections from others, print nothing between results, start no more tasks than help."""
    partitions = SHUFFLE_PARTITIONS_PER_CORE * (os.cpu_count() or 1)
    return {
        # Of what is written nobody else may read messages: files of mode 0600 in folders of mode 0700.
        "spark.hadoop.fs.permissions.umask-mode": "077",
        "spark.driver.bindAddress": LOOPBACK,
        "spark.driver.host": LOOPBACK,
        # Its page for a browser: on loopback as well (SPARK_LOCAL_IP), on any free port, and for looking alone.
        "spark.ui.port": "0",
        "spark.ui.killEnabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": str(partitions),
    }
