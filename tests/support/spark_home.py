"""Spark as tests start it: with a JVM and workers that are there soon."""

import os
import sys

import pyspark

from nsqfast.spark.runtime import link_home

from .suites import ROOT

# A JVM that lives for minutes gains nothing from the second compiler or a collector with threads of its own.
JVM_FLAGS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData"

# For what a program with a JVM of its own does. A job of 13 seconds of processor time took 395 s at a load of fifteen:
# its main thread stood in the queue for a processor for nine tenths of the time. It is less than the silence after
# which run_suites takes a suite for one that hangs.
JVM_S_MAX = 500


def use_spark_home() -> None:
    """For this process, and all that it starts."""
    home = ROOT / "build" / "spark-home" / pyspark.__version__
    home.mkdir(parents=True, exist_ok=True)
    link_home(home)
    os.environ["SPARK_HOME"] = str(home)
    os.environ["SPARK_SUBMIT_OPTS"] = JVM_FLAGS
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
