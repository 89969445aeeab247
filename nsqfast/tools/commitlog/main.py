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
from nsqfast.tools.commitlog.options import CHECK, DUMP, PROBE, PROGRAM, Options, parse
from nsqfast.tools.shared.program import fill_descriptors

WRONG_USE = 2
_STOPPING = (signal.SIGINT, signal.SIGTERM)


def main(argv: list[str] | None = None) -> int:
    """One run; returns the exit status."""
    fill_descriptors()
    try:
        options = parse(sys.argv[1:] if argv is None else argv)
        options.check()
    except FlagError as error:
        sys.stderr.write(f"{error}\n")
        return WRONG_USE
    except OptionsError as error:
        return _end(f"{error} (see {PROGRAM} --help)", WRONG_USE)
    return _RUNS[options.command](options)


def _end(text: str, status: int) -> int:
    sys.stderr.write(f"{PROGRAM}: {escape_controls(text)}\n")
    return status


def _probe(options: Options) -> int:
    from nsqfast.tools.commitlog.probe import ProbeError, probe

    try:
        with _handled(dict.fromkeys(_STOPPING, _stop)):
            return probe(options)
    except ProbeError as error:
        return _end(str(error), error.status)
    except _StoppedError as error:
        return 128 + error.number


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


_RUNS = {PROBE: _probe, CHECK: _look, DUMP: _look}


class _StoppedError(BaseException):
    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number


def _stop(number: int, _frame: FrameType | None) -> None:
    for each in _STOPPING:
        signal.signal(each, signal.SIG_IGN)  # what a probe wrote is removed in peace
    raise _StoppedError(number)


@contextlib.contextmanager
def _handled(
    handlers: dict[signal.Signals, Callable[[int, FrameType | None], None] | signal.Handlers],
) -> Iterator[None]:
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


if __name__ == "__main__":
    sys.exit(main())
