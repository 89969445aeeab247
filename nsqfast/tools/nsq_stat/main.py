"""The program nsqfast-nsq-stat."""

import sys

from nsqfast.tools.nsq_stat.options import Options, parse
from nsqfast.tools.shared.program import run, set_up_log


def main(argv: list[str] | None = None) -> int:
    """Returns the exit status."""
    return run(lambda: parse(sys.argv[1:] if argv is None else argv), live)


async def live(options: Options) -> int:
    """Report until the end, or until told to stop."""
    import asyncio

    from nsqfast.program.signals import watch_signals
    from nsqfast.tools.nsq_stat.reports import watch

    set_up_log()
    loop = asyncio.get_running_loop()
    work = loop.create_task(watch(options))

    def stop() -> None:
        work.cancel()

    watch_signals(loop, stop, stop)
    await asyncio.wait([work])
    if not work.cancelled():
        work.result()
    return 0


if __name__ == "__main__":
    sys.exit(main())
