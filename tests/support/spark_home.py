"""Spark as tests start it: with a JVM and workers that are there soon."""

import contextlib
import os
import sys
from pathlib import Path

import pyspark

from .suites import ROOT

# A JVM that lives for minutes gains nothing from the second compiler or a collector with threads of its own.
JVM_FLAGS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData"


def use_spark_home() -> None:
    """For this process, and all that it starts.

    pip's pyspark.zip holds sources only: each worker compiles them, for 0.6 seconds of processor time. It comes first
    in a worker's path if it is there, so this home has none, and workers import the package itself.
    """
    (installed,) = map(Path, pyspark.__path__)
    home = ROOT / "build" / "spark-home" / pyspark.__version__
    home.mkdir(parents=True, exist_ok=True)
    for name in ("bin", "jars", "sbin"):
        with contextlib.suppress(FileExistsError):  # another suite was here first
            # Relative, since checkouts are moved.
            (home / name).symlink_to(os.path.relpath(installed / name, home))
    os.environ["SPARK_HOME"] = str(home)
    os.environ["SPARK_SUBMIT_OPTS"] = JVM_FLAGS
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
