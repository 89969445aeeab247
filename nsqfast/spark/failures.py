"""What fails in Spark, in one line for the operator without its traceback, and whether another attempt may succeed."""

import contextlib
import logging
import os
import re
from collections.abc import Iterator

from nsqfast.errors import NsqfastError

SHOWN_SIZE = 500

# The end of a Python traceback, which Spark puts inside the text of a Java exception.
_PYTHON = re.compile(
    r"^\s*(?:[\w.]+\.)?(\w+(?:Error|Exception|Exit|Interrupt)): (.+)$", re.MULTILINE
)
# From a data source Spark keeps the last line alone.
_SOURCE = re.compile(r"data source perform \w+: (?:[\w.]+\.)?(\w+(?:Error|Exception)): (.+)")
_CONDITION = re.compile(r"^\[[A-Z0-9_.]+\] ")
_PY4J = re.compile(r"\AAn error occurred while calling \S+\n")
_JAVA_CLASS = re.compile(r"^(?:: )?(?:[a-z][\w$]*\.)+[A-Z][\w$]*(?:Exception|Error): ")
_STATE = re.compile(r" ?SQLSTATE: \w+;?$")
# What Spark puts in front of the cause.
_WRAPPED = re.compile(
    r"^Query \[id = [^\]]*\] terminated with exception: |^Job aborted due to stage failure: |"
    r"^Task \d+ in stage [\d.]+ failed \d+ times, most recent failure: |"
    r"^Lost task [\d.]+ in stage [\d.]+ \(TID \d+\) \([^)]*\): |^An exception was raised by the Python Proxy\. "
)
# Errors of ours come without a traceback, behind a colon or, from PySpark 4.0, behind a sentence.
_OF_WORKER = (
    "Traceback (most recent call last)",
    "An exception was thrown from the Python worker",
)
_NO_WORKER = re.compile(r"Python worker (?:failed )?to connect back")
# Only the operator can resolve these: the next attempt fails alike.
_PERMANENT = frozenset(
    {
        "OptionsError",
        "PlainError",
        "FlagError",
        "CoercionError",
        "PackageMissingError",
        "JavaMissingError",
        "SpoolError",
        "RowError",
    }
)


# PySpark logs each error of a query by these, as JSON with the whole Java stack trace.
_LOGGERS = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")
# This one logs what a function for foreachBatch raises; the end of the query reports that as well.
_CALLBACK_LOGGER = "py4j.clientserver"


@contextlib.contextmanager
def without_traces() -> Iterator[None]:
    """Keep PySpark from logging errors that are raised and reported in one line anyway."""
    from pyspark.logger import PySparkLogger

    # Get them from its own function, which creates them with the expected class.
    loggers: list[logging.Logger] = [PySparkLogger.getLogger(name) for name in _LOGGERS]
    loggers.append(logging.getLogger(_CALLBACK_LOGGER))
    before = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        for logger, level in zip(loggers, before, strict=True):
            logger.setLevel(level)


_WAITING = "Exception thrown in awaitResult"
_CAUSE = re.compile(r"^Caused by: (.+)$", re.MULTILINE)


def spark_errors() -> tuple[type[Exception], ...]:
    """The exceptions that Spark raises in the driver."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    return PySparkException, Py4JError


def explain(error: BaseException) -> str:
    """Return one line: what the Python code in a worker raised, or else Spark's own text."""
    if isinstance(error, NsqfastError):
        return str(error)
    if _NO_WORKER.search(str(error)):
        return "a Python worker of Spark did not start in time, as happens on a busy machine; no message is lost"
    said = _python_error(error)
    if said is not None:
        name, text = said
        # The texts of Spark's own exceptions are complete, and so are ours.
        is_named = not (name in _PERMANENT or name.endswith("Exception"))
        return _shorten(f"{name}: {text}" if is_named else _unwrapped(text))
    return _shorten(_java_text(error))


def is_permanent(error: BaseException) -> bool:
    """Whether a query that ended with this error would fail again."""
    from pyspark.errors import AnalysisException, IllegalArgumentException, ParseException

    if isinstance(error, AnalysisException | IllegalArgumentException | ParseException):
        return True
    said = _python_error(error)
    return said is not None and said[0] in _PERMANENT


def _python_error(error: BaseException) -> tuple[str, str] | None:
    """Return the last Python exception in the text: the name of its class, and its message."""
    text = str(error)
    begin = next((place for mark in _OF_WORKER if (place := text.find(mark)) >= 0), -1)
    if begin < 0:
        of_source = _SOURCE.search(text)
        return (of_source[1], of_source[2]) if of_source else None
    # Spark's own frames follow it, and begin with a tab.
    lines = [line for line in text[begin:].splitlines() if not line.startswith("\tat ")]
    found = _PYTHON.findall("\n".join(lines))
    return found[-1] if found else None


def _java_text(error: BaseException) -> str:
    # What py4j puts in front only names our call.
    lines = [_JAVA_CLASS.sub("", line.strip()) for line in _PY4J.sub("", str(error)).splitlines()]
    text = _unwrapped(next((line for line in lines if line), type(error).__name__))
    if not text.startswith(_WAITING):
        return text
    # The actual error is further down, in the first of the causes.
    causes = _CAUSE.findall(str(error))
    return _unwrapped(causes[0]) if causes else text


def _unwrapped(text: str) -> str:
    while True:
        shorter = _STATE.sub("", _JAVA_CLASS.sub("", _WRAPPED.sub("", _CONDITION.sub("", text))))
        if shorter == text:
            return text
        text = shorter


def _shorten(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= SHOWN_SIZE else f"{line[:SHOWN_SIZE]} ..."


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
