"""The Python that Spark starts for its workers, and for the data source itself."""

import contextlib
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from nsqfast.spark.logs import log

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HOME = "SPARK_HOME"
PLAIN = "python3"  # Spark's default, unless PYSPARK_PYTHON is set


def find_other_python(environ: Mapping[str, str], executable: str) -> str | None:
    """Return the workers' program, unless it is in the same folder as this one: it may lack nsqfast."""
    named = environ.get("PYSPARK_PYTHON") or PLAIN
    found = shutil.which(named, path=environ.get("PATH", ""))
    if found is not None and Path(found).parent == Path(executable).parent:
        return None
    return found or named


def warn_of_other_python(spark: "SparkSession") -> None:
    """Warn in one line that Spark's error will be a missing module. For a cluster this cannot be checked here."""
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


def link_home(home: Path) -> None:
    """Make it a SPARK_HOME whose workers import the installed pyspark.

    pip's has a pyspark.zip that comes first in a worker's path. It holds sources only, so each worker compiles them,
    for 0.6 seconds of processor time; on a busy machine queries have ended because no worker came in time.
    """
    import pyspark

    (installed,) = map(Path, pyspark.__path__)
    for name in ("bin", "jars", "sbin"):
        with contextlib.suppress(FileExistsError):
            # Relative, since checkouts are moved.
            (home / name).symlink_to(os.path.relpath(installed / name, home))


@contextlib.contextmanager
def own_home() -> Iterator[None]:
    """For sessions that begin meanwhile, unless the user has one."""
    if HOME in os.environ:
        yield
        return
    with tempfile.TemporaryDirectory(prefix="nsqfast-spark-") as home:
        link_home(Path(home))
        os.environ[HOME] = home
        try:
            yield
        finally:
            del os.environ[HOME]
