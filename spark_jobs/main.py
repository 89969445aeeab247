"""The program nsqfast-spark: a job's name, and its flags.

nsqfast-spark ingest --topic=orders --channel=archive ...
"""

import importlib
import sys
from typing import TYPE_CHECKING

from nsqfast.errors import PackageMissingError
from nsqfast.program.extras import check, needs
from nsqfast.program.stdout import print_text
from nsqfast.spark_jobs.options import ABOUTS, PROGRAM
from nsqfast.version import NSQ_VERSION, own_line

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
            # Checking the options needs more of it than their help does.
            if not any(word in _HELP for word in words[1:]):
                check(PROGRAM, "spark")
        except PackageMissingError as error:
            sys.stderr.write(f"{error}\n")
            return 1
        status: int = job.main(words[1:], spark)
        return status
    if words and words[0] in _VERSION:
        print_text(f"{PROGRAM} v{NSQ_VERSION}\n{own_line()}")
        return 0
    is_help = bool(words) and words[0] in _HELP
    if is_help:
        print_text(overview())
        return 0
    told = f"{words[0]}: not a job" if words else "no job"
    sys.stderr.write(f"{told}; it is one of {', '.join(JOBS)}\nsee {PROGRAM} --help\n")
    return 2


def overview() -> str:
    """The help text of the program without a job."""
    lines = [
        f"Usage: {PROGRAM} <job> [flags]",
        "",
        "Batch and streaming jobs for Apache Spark.",
        "",
        "Jobs:",
    ]
    lines += [f"  {job:<14} {text}" for job, text in ABOUTS.items()]
    return "\n".join([*lines, "", f"{PROGRAM} <job> --help lists the flags of a job."])


if __name__ == "__main__":
    sys.exit(main())
