"""The program nsqfast-nsqd: settings, signals, exit status.

    SIGTERM, SIGINT   stop in order, exit 0; further ones change nothing
    SIGHUP            certificates are read again
    SIGUSR1           ignored

Exit status 2 for a command line that cannot be read, 1 for everything else that prevents the start.
"""

import asyncio
import gc
import signal
import sys
import time
from collections.abc import Callable

import uvloop

from nsqfast import logs
from nsqfast.errors import OptionsError
from nsqfast.nsqd.options import LOG_PREFIX, PROGRAM, Options, parse
from nsqfast.options import CoercionError, FlagError, PlainError

_STOPPING = (signal.SIGTERM, signal.SIGINT)


def main(argv: list[str] | None = None) -> int:
    """Runs a broker until it is told to stop; returns the exit status."""
    try:
        options = parse(sys.argv[1:] if argv is None else argv)
    except FlagError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    except (CoercionError, PlainError) as error:
        level = "ERROR: " if isinstance(error, CoercionError) else ""
        sys.stderr.write(f"{time.strftime('%Y/%m/%d %H:%M:%S')} {level}{error}\n")
        return 1
    except OptionsError as error:
        return _fatal(error, logs.FORMATS["text"])
    logs.set_up(PROGRAM, options.log_prefix, options.log_level, options.log_format)
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_run(options))
    except OptionsError as error:
        return _fatal(error, options.log_format)
    return 0


def _fatal(error: OptionsError, log_format: int) -> int:
    # A start that failed is reported under nsqd's own prefix, whatever --log-prefix says.
    logs.set_up(PROGRAM, LOG_PREFIX, logs.LEVELS["fatal"], log_format).critical("%s", error)
    return 1


async def _run(options: Options) -> None:
    # The compiled core is loaded late, so that --help and a wrong flag answer at once.
    from nsqfast._ext.message import keep_freed_memory
    from nsqfast.net.gate import raise_descriptor_limit
    from nsqfast.nsqd.server import Server

    keep_freed_memory()
    raise_descriptor_limit()

    loop = asyncio.get_running_loop()
    loop.set_exception_handler(_report)
    told_to_stop = asyncio.Event()
    server = Server(options)
    _watch_signals(loop, told_to_stop, server.reload)
    await server.start()
    # What was made so far stays: the collector need not look at it again.
    gc.collect()
    gc.freeze()
    await told_to_stop.wait()
    await server.stop()


def _watch_signals(
    loop: asyncio.AbstractEventLoop, told_to_stop: asyncio.Event, reload: Callable[[], None]
) -> None:
    def stop(_number: int, _frame: object) -> None:
        # Ignored rather than counted, so that also one that comes while the interpreter winds up does no harm.
        for number in _STOPPING:
            signal.signal(number, signal.SIG_IGN)
        loop.call_soon_threadsafe(told_to_stop.set)

    def read_again(_number: int, _frame: object) -> None:
        loop.call_soon_threadsafe(reload)

    for number in _STOPPING:
        signal.signal(number, stop)
    signal.signal(signal.SIGHUP, read_again)
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)


def _report(_loop: asyncio.AbstractEventLoop, context: dict[str, object]) -> None:
    error = context.get("exception")
    caught = error if isinstance(error, BaseException) else None
    logs.logger(PROGRAM).error("unexpected: %s", context.get("message"), exc_info=caught)


if __name__ == "__main__":
    sys.exit(main())
