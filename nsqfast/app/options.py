"""The flags of nsqfast-run."""

from dataclasses import dataclass

from nsqfast.program.command_line import flags_or_help, refuse_words
from nsqfast.program.logs import LEVEL, LEVEL_HELP, LEVELS
from nsqfast.program.options import (
    BOOL,
    INT,
    STRING,
    Common,
    FlagError,
    PlainError,
    declared,
    defaults,
    option,
)
from nsqfast.program.stdout import print_text
from nsqfast.version import own_line

PROGRAM = "nsqfast-run"
ABOUT = (
    "Runs the handlers of an nsqfast.App. The word MODULE:APP, before the flags or behind them, names it: "
    "worker:app is the variable app of worker.py in the current folder."
)
WORKERS_MAX = 1000


@dataclass(slots=True)
class Options:
    """One run; `target` is the word."""

    # fmt: off
    workers: int = option(INT, 1, "processes that handle messages; one that ends is started again", group="Processes")
    reload: bool = option(BOOL, False, "start again when a .py file below the current folder changes")

    http_address: str = option(
        STRING, "", "serve GET /healthz and /metrics, of all processes, on this <addr>:<port>; empty = off",
        group="Looking at it")
    log_level: int = option(LEVEL, LEVELS["info"], LEVEL_HELP)
    # fmt: on
    target: str = ""

    @property
    def is_supervised(self) -> bool:
        """Whether this process starts others, which do the work."""
        return self.reload or self.workers > 1


def parse(argv: list[str]) -> Options:
    """Parse the command line; FlagError if it cannot be read, PlainError if it is invalid."""
    version = [each for each in declared(Common) if each.flag == "version"]
    flags = [*version, *declared(Options)]
    plain = {**defaults(Common), **defaults(Options)}
    given, words = flags_or_help(flags, plain, argv, PROGRAM, ABOUT)
    target, *rest = words or [""]
    more, words = flags_or_help(flags, plain, rest, PROGRAM, ABOUT)
    given.update(more)
    if given.pop("version", False):
        print_text(own_line())
        raise SystemExit(0)
    refuse_words(PROGRAM, rest, words)
    if not target:
        raise FlagError(f"which app? {PROGRAM} MODULE:APP\nsee {PROGRAM} --help")
    options = Options(**given, target=target)
    if not 1 <= options.workers <= WORKERS_MAX:
        raise PlainError(f"--workers is {options.workers}; it is 1 to {WORKERS_MAX}")
    return options
