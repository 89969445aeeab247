"""The program nsqfast-replay.

0   everything was published 1   not everything was: the operator has to change something, no nsqd took it, or it was
told to stop 2   the command line cannot be read 3   everything except damaged or refused records and unfinished files,
each named on stderr, was published
"""

import logging
import sys
from typing import TYPE_CHECKING

from nsqfast.tools.shared.program import run, set_up_log

if TYPE_CHECKING:
    from nsqfast.tools.replay.options import Options


def main(argv: list[str] | None = None) -> int:
    """One run; returns the exit status."""
    words = sys.argv[1:] if argv is None else argv
    return run(lambda: _parse(words), live)


def _parse(words: list[str]) -> "Options":
    # Late: it names the formats of archives, and those bring numpy.
    from nsqfast.tools.replay.options import parse

    return parse(words)


async def live(options: "Options") -> int:
    """From the options to the exit status."""
    # Imported late, so that --help and wrong flags are answered at once.
    from nsqfast.tools.replay.replay import Replay

    set_up_log(logging.WARNING)
    return await Replay(options).run()


if __name__ == "__main__":
    sys.exit(main())
