"""Reports what the operator can fix as one line, without Spark's traceback."""

import contextlib
import os
from collections.abc import Iterator

from nsqfast.errors import NsqfastError

# Variables with this prefix exist only in the Python processes that Spark starts.
WORKER_PREFIX = "PYTHON_WORKER_FACTORY_"
HIDE_VARIABLE = "SPARK_HIDE_TRACEBACK"


def is_spark_process() -> bool:
    """Whether Spark started this process, and ends it."""
    return any(name.startswith(WORKER_PREFIX) for name in os.environ)


@contextlib.contextmanager
def errors_as_lines() -> Iterator[None]:
    """Wrap what Spark calls in a process of its own; the error ends that process, so it hides no other error."""
    try:
        yield
    except NsqfastError:
        if is_spark_process():
            os.environ[HIDE_VARIABLE] = "1"
        raise
