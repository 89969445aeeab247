"""What Spark starts: a Java runtime, and the Python of its workers, with its log, and of the data source itself."""

import contextlib
import logging
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from nsqfast.errors import OptionsError
from nsqfast.program.logs import escape_controls

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


log = logging.getLogger("nsqfast.spark")

MAJOR_MIN = 17  # required by all PySpark 4
ANSWER_TIMEOUT_S = 30.0
CURE = "apt install openjdk-17-jre-headless, or set JAVA_HOME to where one is"

# `openjdk version "17.0.15" 2025-04-15`, `java version "1.8.0_392"`, `openjdk version "25-ea"`.
_VERSION = re.compile(r'version "(?:1\.)?(\d+)')


class JavaMissingError(OptionsError):
    """There is no Java that Spark can use; the text says what to install."""

    def __init__(self, why: str) -> None:
        super().__init__(f"Spark needs a Java runtime {MAJOR_MIN} or newer, {why}: {CURE}")


@dataclass(frozen=True, slots=True)
class Java:
    """`path` is the program's."""

    path: str
    major: int


def find_java(environ: Mapping[str, str] | None = None) -> Java:
    """Return the one that Spark would start: that of JAVA_HOME if set, else the first on PATH. JavaMissingError."""
    environ = os.environ if environ is None else environ
    home = environ.get("JAVA_HOME", "")
    if home:
        path = shutil.which("java", path=os.path.join(home, "bin"))  # noqa: PTH118 - a text of PATH's kind
        if path is None:
            raise JavaMissingError(f"and JAVA_HOME ({home}) has no bin/java")
    else:
        path = shutil.which("java", path=environ.get("PATH", ""))
        if path is None:
            raise JavaMissingError("and there is none on PATH")
    found = Java(path, _major(path))
    if found.major < MAJOR_MIN:
        raise JavaMissingError(f"and {path} is Java {found.major}")
    return found


def _major(path: str) -> int:
    """Parse the output of `java -version`, which goes to stderr."""
    try:
        answer = subprocess.run(  # noqa: S603 - the operator's own Java
            [path, "-version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=ANSWER_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise JavaMissingError(f"and {path} does not run ({error})") from None
    text = (answer.stderr + answer.stdout).decode("utf-8", "replace")
    found = _VERSION.search(text)
    if found is None:
        said = " ".join(text.split())[:120] or f"exit status {answer.returncode}"
        raise JavaMissingError(f"and {path} -version says no version ({said})")
    return int(found[1])


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


def set_up_worker_log() -> None:
    """Write nsqfast's log to stderr, from INFO on, unless it is configured already.

    A worker's stderr is that of its executor, and with a local master that of the driver.
    """
    ours = logging.getLogger("nsqfast")
    if ours.level == logging.NOTSET:
        ours.setLevel(logging.INFO)
    if not ours.hasHandlers():
        handler = logging.StreamHandler()
        handler.setFormatter(_Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
        ours.addHandler(handler)


class _Formatter(logging.Formatter):
    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's name
        return escape_controls(super().formatMessage(record))
