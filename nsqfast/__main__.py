"""python -m nsqfast: says what there is, or runs a program.

    python -m nsqfast                  versions, programs, packages, documents
    python -m nsqfast --version        the versions alone
    python -m nsqfast nsqd [flags]     the same as nsqfast-nsqd [flags]

Exit status 0, 2 for a word that is no program; otherwise the program's own.
"""

import importlib
import sys

from nsqfast.program.overview import PREFIX, PROGRAMS, VERSION_LINES, compose_overview
from nsqfast.program.stdout import print_text

_HELP = ("--help", "-help", "-h")
_VERSION = ("--version", "-version")


def main(argv: list[str] | None = None) -> int:
    """Return the exit status."""
    words = sys.argv[1:] if argv is None else argv
    if not words or words[0] in _HELP:
        print_text(compose_overview())
        return 0
    if words[0] in _VERSION:
        print_text(VERSION_LINES)
        return 0
    # Also nsqfast-nsq-to-file, and nsq_to_file, as NSQ calls it.
    command = words[0].removeprefix(PREFIX).replace("_", "-")
    modules = {each.command: each.module for each in PROGRAMS}
    if command not in modules:
        known = ", ".join(modules)
        sys.stderr.write(f"python -m nsqfast: there is no program {words[0]}; there are {known}\n")
        return 2
    status: int = importlib.import_module(modules[command]).main(words[1:])
    return status


if __name__ == "__main__":
    sys.exit(main())
