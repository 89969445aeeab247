"""The program nsqfast-commitlog.

0   done; of check and dump: the ring is whole
1   the ring is damaged, or the disk refuses
2   the command line cannot be read, or there is no ring, or none that can be read
130 probe was ended by SIGINT; 143 by SIGTERM
"""

import contextlib
import signal
import sys
from collections.abc import Callable, Iterator
from types import FrameType

from nsqfast.errors import OptionsError
from nsqfast.program.logs import escape_controls
from nsqfast.program.options import FlagError
from nsqfast.tools.commitlog.options import DUMP, PROBE, PROGRAM, Options, parse
from nsqfast.wire.gotext import os_error

FAILED, WRONG_USE = 1, 2
_STOPPING = (signal.SIGINT, signal.SIGTERM)


def main(argv: list[str] | None = None) -> int:
    """One run; returns the exit status."""
    try:
        options = parse(sys.argv[1:] if argv is None else argv)
        options.check()
    except FlagError as error:
        print(error, file=sys.stderr)
        return WRONG_USE
    except OptionsError as error:
        return _end(f"{error} (see {PROGRAM} --help)", WRONG_USE)
    try:
        return (_probe if options.command == PROBE else _look)(options)
    except OSError as error:
        return _end(f"{error.filename or 'standard output'}: {os_error(error)}", FAILED)


def _end(text: str, status: int) -> int:
    print(f"{PROGRAM}: {escape_controls(text)}", file=sys.stderr)
    return status


def _probe(options: Options) -> int:
    """A signal ends it behind a commit, so that what it wrote is removed in any case."""
    from nsqfast.tools.commitlog.probe import ProbeError, probe

    came: list[int] = []

    def note(number: int, _frame: FrameType | None) -> None:
        came.append(number)

    def look() -> None:
        if came:
            raise _StoppedError

    try:
        with _handled(dict.fromkeys(_STOPPING, note)):
            return probe(options, look)
    except ProbeError as error:
        return _end(str(error), error.status)
    except _StoppedError:
        return 128 + came[0]


def _look(options: Options) -> int:
    """By a check or a dump. Neither leaves anything behind, so signals end it at once."""
    from nsqfast.tools.commitlog.check import check
    from nsqfast.tools.commitlog.dump import dump
    from nsqfast.tools.commitlog.ring import RingError

    try:
        with _handled(dict.fromkeys((*_STOPPING, signal.SIGPIPE), signal.SIG_DFL)):
            return (dump if options.command == DUMP else check)(options)
    except RingError as error:
        return _end(str(error), error.status)


class _StoppedError(Exception):
    """By a signal."""


_Handler = Callable[[int, FrameType | None], None] | signal.Handlers


@contextlib.contextmanager
def _handled(handlers: dict[signal.Signals, _Handler]) -> Iterator[None]:
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


if __name__ == "__main__":
    sys.exit(main())
