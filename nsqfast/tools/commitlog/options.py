"""The flags of nsqfast-commitlog: one set of fields, of which each command uses a part."""

from dataclasses import dataclass

from nsqfast.errors import OptionsError
from nsqfast.program.command_line import flags_or_help
from nsqfast.program.options import (
    BOOL,
    FLOAT,
    INT,
    STRING,
    FlagError,
    declared,
    defaults,
    one_of,
    option,
)
from nsqfast.program.stdout import print_text
from nsqfast.version import own_line

PROGRAM = "nsqfast-commitlog"
ABOUT = (
    "Measures a disk for a commit log, and looks at a ring without changing it. "
    "nsqfast-commitlog <command> --help lists the flags of a command."
)
TEXT, JSON, JSONL = "text", "json", "jsonl"
SECONDS_MAX = 3600.0


@dataclass(slots=True)
class Options:
    """One run; `command` and `folder` are the words."""

    # fmt: off
    data_path: str = option(
        STRING, "", "probe: folder on the disk that is measured; empty = the current folder", group="Measuring")
    seconds: float = option(FLOAT, 1.0, "probe: time for each row of the table")

    from_batch: int = option(
        INT, 0, "dump: first batch; 0 = the first that a start needs, smaller numbers are what is left before it",
        flag="from", group="Records")
    limit: int = option(INT, 0, "dump: most records; 0 = all")
    bodies: bool = option(BOOL, False, "dump: show what is in them: the first bytes, in jsonl all, in base64")

    format: str = option(
        one_of(TEXT, JSON, JSONL), TEXT, "text, or for programs json (probe, check) or jsonl (dump)", group="Output")
    # fmt: on
    command: str = ""
    folder: str = ""

    def check(self) -> None:
        """OptionsError for what this command cannot do."""
        if self.command != PROBE and not self.folder:
            raise OptionsError(f"which ring? {PROGRAM} {self.command} <folder>")
        if not 0 < self.seconds <= SECONDS_MAX:
            raise OptionsError(f"--seconds is {self.seconds:g}; it is more than 0, up to 3600")
        if self.from_batch < 0 or self.limit < 0:
            raise OptionsError("--from and --limit are 0 or more")
        wanted = JSONL if self.command == DUMP else JSON
        if self.format not in (TEXT, wanted):
            raise OptionsError(
                f"--format is {self.format}; for {self.command} it is text or {wanted}"
            )


PROBE, CHECK, DUMP = "probe", "check", "dump"
COMMANDS = {
    PROBE: "measure how fast a disk commits, and which way a ring would use",
    CHECK: "say whether a ring is whole, and what is in it",
    DUMP: "print the batches of a ring and their records",
}
_FIELDS = {
    PROBE: ("data_path", "seconds", "format"),
    CHECK: ("format",),
    DUMP: ("from_batch", "limit", "bodies", "format"),
}


def parse(argv: list[str]) -> Options:
    """Parse the words after the program's name; --help and --version print and exit by SystemExit."""
    command, *rest = argv or [""]
    if command.lstrip("-") in {"h", "help"}:
        print_text(overview())
        raise SystemExit(0)
    if command.lstrip("-") == "version":
        print_text(own_line())
        raise SystemExit(0)
    if command not in COMMANDS:
        told = f"unknown command {command!r}" if command else "no command"
        raise OptionsError(f"{told}: the first word is one of {', '.join(COMMANDS)}")
    flags = [item for item in declared(Options) if item.attribute in _FIELDS[command]]
    about = f"{COMMANDS[command]}.".capitalize()
    if command != PROBE:
        about += " The word <folder>, before the flags or behind them, is the ring."
    asked = (flags, defaults(Options))
    values, words = flags_or_help(*asked, rest, f"{PROGRAM} {command}", about)
    folder = ""
    if words and command != PROBE:
        folder, *rest = words
        more, words = flags_or_help(*asked, rest, f"{PROGRAM} {command}", about)
        values.update(more)
    if words:
        raise FlagError(f"unexpected word {words[0]!r}: everything else is a flag or its value")
    return Options(**values, command=command, folder=folder)


def overview() -> str:
    """The help text of the program without a command."""
    lines = [f"Usage: {PROGRAM} <command> [<folder>] [flags]", "", ABOUT, "", "Commands:"]
    lines += [f"  {command:<7}{text}" for command, text in COMMANDS.items()]
    return "\n".join(lines)
