"""Which Python Spark starts for its workers, and for the data source itself."""

import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from nsqfast.spark.logs import log

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PLAIN = "python3"  # what Spark starts unless PYSPARK_PYTHON says otherwise


def find_other_python(environ: Mapping[str, str], executable: str) -> str | None:
    """The program of the workers, unless it stands in the same folder as this one: it may lack nsqfast."""
    named = environ.get("PYSPARK_PYTHON") or PLAIN
    found = shutil.which(named, path=environ.get("PATH", ""))
    if found is not None and Path(found).parent == Path(executable).parent:
        return None
    return found or named


def warn_of_other_python(spark: "SparkSession") -> None:
    """Say in one line that Spark's error is going to be a missing module. On a cluster that is for others to know."""
    context = getattr(spark, "sparkContext", None)
    if context is None or not str(context.master).startswith("local"):
        return
    other = find_other_python(os.environ, sys.executable)
    if other is not None:
        log.warning(
            "Spark's workers are %s, and this is %s: if nsqfast is not found there, set PYSPARK_PYTHON to this one"
            " before the session is made",
            other,
            sys.executable,
        )
