"""The program nsqfast-spark: a job's name, and its flags.

nsqfast-spark ingest --topic=orders --channel=archive ...
"""

import importlib
import sys
from typing import TYPE_CHECKING

from nsqfast.errors import PackageMissingError
from nsqfast.extras import needs
from nsqfast.spark_jobs.options import PROGRAM
from nsqfast.version import NSQ_VERSION, __version__

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Job, and the module that has its `main` and its `Options`.
JOBS = {
    "ingest": "nsqfast.spark_jobs.ingest",
    "load-archives": "nsqfast.spark_jobs.load_archives",
    "compact": "nsqfast.spark_jobs.compact",
    "replay": "nsqfast.spark_jobs.replay",
    "stats": "nsqfast.spark_jobs.stats",
}
_HELP = ("--help", "-help", "-h", "--h")
_VERSION = ("--version", "-version")


def main(argv: list[str] | None = None, spark: "SparkSession | None" = None) -> int:
    """Return the exit status; without a `spark` the job creates its own session."""
    words = sys.argv[1:] if argv is None else argv
    if words and words[0] in JOBS:
        try:
            with needs(PROGRAM, "spark"):
                job = importlib.import_module(JOBS[words[0]])
        except PackageMissingError as error:
            sys.stderr.write(f"{error}\n")
            return 1
        status: int = job.main(words[1:], spark)
        return status
    if words and words[0] in _VERSION:
        sys.stdout.write(f"{PROGRAM} v{NSQ_VERSION}\nnsqfast {__version__}\n")
        return 0
    is_help = bool(words) and words[0] in _HELP
    if words and not is_help:
        sys.stderr.write(f"{words[0]}: not a job\n")
    sys.stderr.write(f"Usage of {PROGRAM}: {PROGRAM} {'|'.join(JOBS)} [flags]\n")
    sys.stderr.write(f"    \t{PROGRAM} <job> --help lists the flags of a job\n")
    return 0 if is_help else 2


if __name__ == "__main__":
    sys.exit(main())
