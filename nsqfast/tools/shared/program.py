"""How a tool runs: its settings, its log lines, its exit status.

    0   done, or told to stop
    1   the operator has to change something, or a peer refused; one dated line on stderr says what
    2   the command line cannot be read; a line says where the help is

When nobody reads standard output any more, the program ends by SIGPIPE instead.

Standard output is for a tool's results; everything else goes to stderr.
"""

import asyncio
import logging
import os
import signal
import sys
import time
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from nsqfast.errors import NsqfastError
from nsqfast.program import extras
from nsqfast.program.logs import escape_controls
from nsqfast.program.options import FlagError

T = TypeVar("T")

_LEVELS = {
    logging.DEBUG: "DBG ",
    logging.WARNING: "WRN ",
    logging.ERROR: "ERR ",
    logging.CRITICAL: "ERR ",
}

log = logging.getLogger("nsqfast.tools")


class ToolError(NsqfastError):
    """Ends a tool before it is done: one line, exit status 1."""


class OutputClosedError(ToolError):
    """Nobody reads standard output any more."""


class GoFormatter(logging.Formatter):
    """Lines dated like those of Go's log package; the client's have a level, a tool's own have none."""

    def format(self, record: logging.LogRecord) -> str:
        """One line, whatever a peer put into it; a traceback follows on its own lines."""
        level = _LEVELS.get(record.levelno, "" if record.name == log.name else "INF ")
        line = f"{stamp(record.created)} {level}{escape_controls(record.getMessage())}"
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


def stamp(time_s: float) -> str:
    """Local time, to the second."""
    return time.strftime("%Y/%m/%d %H:%M:%S", time.localtime(time_s))


def set_up_log(level: int = logging.INFO, formatter: logging.Formatter | None = None) -> None:
    """Send nsqfast's log to stderr."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(formatter or GoFormatter())
    root = logging.getLogger("nsqfast")
    root.handlers[:] = [handler]
    root.propagate = False
    root.setLevel(level)
    # If a log line cannot be written (stderr closed, disk full), print no traceback.
    logging.raiseExceptions = False


def run(
    parse: Callable[[], T],
    live: Callable[[T], Coroutine[Any, Any, int]],
    say: Callable[[str], None] | None = None,
) -> int:
    """From the command line to the exit status, which `live` returns; it runs in a loop of its own.

    `say` writes the line of an error, by default as Go's log package does.
    """
    say = say or _say
    fill_descriptors()
    try:
        with extras.needs("this program", "server"):
            options = parse()
        extras.check("this program", "server")
        import uvloop

        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(live(options))
    except FlagError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    except OutputClosedError:
        return _end_by_sigpipe()
    except NsqfastError as error:
        say(str(error))
        return 1


def failure_of(task: "asyncio.Task[None]") -> NsqfastError | None:
    """Why a task ended, unless it did its work or was cancelled; what nobody expected is logged with its traceback."""
    if task.cancelled() or (error := task.exception()) is None:
        return None
    if isinstance(error, NsqfastError):
        return error
    log.critical("unexpected", exc_info=error)
    return ToolError(f"unexpected: {error!r}")


def fill_descriptors() -> None:
    """Put /dev/null where stdin, stdout or stderr were closed before the start, as Go's programs do.

    Otherwise the next socket would get that number, and output would go there.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            # The lowest free number is this one.
            descriptor = os.open(os.devnull, os.O_RDWR)
            setattr(sys, name, open(descriptor, "w" if number else "r", encoding="utf-8"))  # noqa: SIM115, PTH123


def _end_by_sigpipe() -> int:
    """End quietly, as a program does whose output nobody reads. Returns only if the signal is blocked."""
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGPIPE)
    return 128 + signal.SIGPIPE


def _say(text: str) -> None:
    sys.stderr.write(f"{stamp(time.time())} {escape_controls(text)}\n")
