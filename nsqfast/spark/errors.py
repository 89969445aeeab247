"""What the operator can mend reaches him as one line, not behind Spark's traceback."""

import contextlib
import os
from collections.abc import Iterator

from nsqfast.errors import NsqfastError

# So begin variables that Spark gives to the processes that it starts for Python, and to nobody else.
WORKER_PREFIX = "PYTHON_WORKER_FACTORY_"
HIDE_VARIABLE = "SPARK_HIDE_TRACEBACK"


def is_spark_process() -> bool:
    """Whether Spark started this process, and ends it."""
    return any(name.startswith(WORKER_PREFIX) for name in os.environ)


@contextlib.contextmanager
def errors_as_lines() -> Iterator[None]:
    """Around what Spark calls in a process of its own, which ends with the error and so hides nobody else's."""
    try:
        yield
    except NsqfastError:
        if is_spark_process():
            os.environ[HIDE_VARIABLE] = "1"
        raise
