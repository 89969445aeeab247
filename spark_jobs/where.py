"""Prints the path of a job's script, for spark-submit: python -m nsqfast.spark_jobs.where JOB"""

import sys
from importlib.util import find_spec

from nsqfast.spark_jobs.main import JOBS


def main(argv: list[str] | None = None) -> int:
    """The result is the exit status."""
    words = sys.argv[1:] if argv is None else argv
    if len(words) != 1 or words[0] not in JOBS:
        sys.stderr.write(f"{__doc__}\nJOB is one of {', '.join(JOBS)}\n")
        return 2
    spec = find_spec(JOBS[words[0]])
    assert spec is not None
    print(spec.origin)
    return 0


if __name__ == "__main__":
    sys.exit(main())
