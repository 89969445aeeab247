"""The program nsqfast-nsq-tail."""

import sys

from nsqfast.tools.nsq_tail.options import Options, parse
from nsqfast.tools.shared.program import run, set_up_log


def main(argv: list[str] | None = None) -> int:
    """Returns the exit status."""
    return run(lambda: parse(sys.argv[1:] if argv is None else argv), live)


async def live(options: Options) -> int:
    """Print until the end."""
    import asyncio

    from nsqfast.program.signals import watch_signals
    from nsqfast.tools.nsq_tail.tail import Tail

    set_up_log()
    tail = Tail(options)
    watch_signals(asyncio.get_running_loop(), tail.stop, None)
    await tail.run()
    return 0


if __name__ == "__main__":
    sys.exit(main())
