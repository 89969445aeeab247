"""The program nsqfast-nsq-spool."""

import asyncio
import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable

from nsqfast.errors import NsqfastError
from nsqfast.program import logs
from nsqfast.program.extras import needs
from nsqfast.program.signals import watch_signals
from nsqfast.spark.receiver.options import PROGRAM, Options, parse
from nsqfast.tools.shared import program

STDIN = 0
READ_SIZE = 1 << 12


def main(argv: list[str] | None = None) -> int:
    """Receive until told to stop; return the exit status."""
    words = sys.argv[1:] if argv is None else argv
    return program.run(lambda: parse(words), _live)


async def _live(options: Options) -> int:
    logs.set_up(PROGRAM, options.log_prefix, logs.LEVELS[options.log_level])
    try:
        await _receive(options)
    except NsqfastError as error:
        program.log.critical("%s", error)
        return 1
    return 0


async def _receive(options: Options) -> None:
    # Late, so that --help and a wrong flag answer at once.
    with needs("the spool", "arrow"):
        from nsqfast.spark.receiver.service import Service, ServiceFigures
    from nsqfast.net.descriptor_reserve import raise_descriptor_limit
    from nsqfast.tools.shared.metrics import MetricsServer

    raise_descriptor_limit()
    service = Service(options)
    loop = asyncio.get_running_loop()
    watch_signals(loop, service.stop, None)
    if options.until_eof:
        _watch_input(loop, service.stop)
    with MetricsServer(options.metrics_address, ServiceFigures(service, time.time())):
        await service.run()


def _watch_input(loop: asyncio.AbstractEventLoop, stop: Callable[[], None]) -> None:
    """Call `stop` once standard input ends; it may be a file, which an event loop cannot watch."""

    def read_on() -> None:
        with contextlib.suppress(OSError):
            while os.read(STDIN, READ_SIZE):
                pass
        with contextlib.suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(stop)

    threading.Thread(target=read_on, daemon=True, name="nsq_spool: input").start()


if __name__ == "__main__":
    sys.exit(main())
