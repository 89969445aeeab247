"""The program nsqfast-bench: flags, signals, output, exit status.

Exit status 0, 2 for an invalid command line, 1 when the broker cannot be reached, refuses, or ends the connection, 130
after Ctrl-C (143 after SIGTERM); the measurements so far are printed in any case.
"""

import contextlib
import json
import signal
import sys
from typing import TYPE_CHECKING, Self

from nsqfast.errors import OptionsError, PackageMissingError
from nsqfast.program import extras
from nsqfast.program.logs import escape_controls
from nsqfast.program.stdout import print_text
from nsqfast.tools.bench.options import PROGRAM, Options, make_plan, parse, validate
from nsqfast.wire.gotext import os_error

if TYPE_CHECKING:
    from nsqfast.tools.bench.crew import Crew
    from nsqfast.tools.bench.report import Result

INTERRUPTED = "interrupted"
_STOPPING = (signal.SIGINT, signal.SIGTERM)


def main(argv: list[str] | None = None) -> int:
    """One run; returns the exit status."""
    try:
        options = parse(sys.argv[1:] if argv is None else argv)
        validate(options)
    except OptionsError as error:
        print(f"{PROGRAM}: {error} (see {PROGRAM} --help)", file=sys.stderr)
        return 2
    try:
        extras.check(PROGRAM, "server")
        with _Signals() as signals:
            return _run(options, signals)
    except PackageMissingError as error:
        print(f"{PROGRAM}: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"{PROGRAM}: {os_error(error)}", file=sys.stderr)
        return 1


class _Signals:
    """The first SIGINT or SIGTERM ends the run cleanly, a second one at once; `came` lists the signals received.

    Installed before anything else: a KeyboardInterrupt during the setup would leave semaphores behind.
    """

    def __init__(self) -> None:
        self.came: list[int] = []
        self._crew: Crew | None = None

    def __enter__(self) -> Self:
        self._before = {number: signal.signal(number, self._note) for number in _STOPPING}
        return self

    def __exit__(self, *_exception: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def watch_over(self, crew: "Crew") -> None:
        """From here on there is something to stop."""
        self._crew = crew
        if self.came:
            crew.stop()

    def _note(self, number: int, _frame: object) -> None:
        self.came.append(number)  # first, because another signal may interrupt this
        if self._crew and len(self.came) > 1:
            self._crew.kill()
        elif self._crew:
            self._crew.stop()


def _run(options: Options, signals: _Signals) -> int:
    # Imported late, so that --help and wrong flags are answered at once.
    from nsqfast.tools.bench.crew import Crew
    from nsqfast.tools.bench.report import Meter, first_error, make_result, remarks
    from nsqfast.tools.shared.output import is_watched

    plan = make_plan(options)
    with contextlib.closing(Crew(plan)) as crew:
        signals.watch_over(crew)
        crew.start()
        if is_watched():
            with Meter(plan, crew) as meter:
                reports = crew.listen(meter.look)
        else:
            reports = crew.listen(None)
        error = INTERRUPTED if signals.came else first_error(reports)
        result = make_result(plan, crew.totals(), reports, error)
    _print(options, result, remarks(result, plan.goal))
    if signals.came:
        return 128 + signals.came[0]
    return 0 if error is None else 1


def _print(options: Options, result: "Result", said: list[str]) -> None:
    """Print the result and remarks on stdout, and an error on stderr, in one line."""
    from nsqfast.tools.bench.report import table

    if options.json:
        print_text(json.dumps(result.to_json()))
        for line in said:
            print(f"{PROGRAM}: {line}", file=sys.stderr)
    elif result.seconds or result.error is None:
        print_text("\n".join([table(result), *said]))
    if result.error is not None:
        print(f"{PROGRAM}: {escape_controls(result.error)}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
