"""How a daemon begins and ends: settings, signals, exit status.

    SIGTERM, SIGINT   clean stop, exit 0; further ones change nothing
    SIGHUP            reload, if the daemon has something to reload
    SIGUSR1           ignored

Under systemd it says when it serves, reloads and stops, and that it is alive (`systemd`).

Exit status 2 for a command line that cannot be read, 1 for everything else that prevents the start and for a stop that
could not save everything.
"""

import asyncio
import gc
import signal
import sys
import time
from collections.abc import Callable, Coroutine
from typing import Any, Protocol, TypeVar

from nsqfast.errors import NsqfastError, OptionsError
from nsqfast.program import extras, logs
from nsqfast.program.config_file import UnknownKeysError
from nsqfast.program.options import FlagError, PlainError
from nsqfast.program.signals import watch_signals
from nsqfast.program.systemd import Service, Watchdog

# Partial collections, of about 7,000 new objects each, between two full ones.
FULL_COLLECTION_COUNT = 10_000


class Settings(Protocol):
    """The options that every daemon has."""

    check: bool
    log_prefix: str
    log_level: int
    log_format: int


S = TypeVar("S", bound=Settings)


class StopFailedError(NsqfastError):
    """Something could not be saved; a log line says what."""


class Server(Protocol):
    """Start it once, stop it once."""

    async def start(self) -> None:
        """Serve on return; OptionsError if the operator has to change something."""

    async def stop(self) -> None:
        """Stop cleanly and completely; OSError if a disk did not take everything."""

    def reload(self) -> None:
        """Handle SIGHUP."""

    def status(self) -> str:
        """What it does, in a few words for the service manager."""


def run(
    program: str,
    prefix: str,
    parse: Callable[[], S],
    live: Callable[[S], Coroutine[Any, Any, int | None]],
    check: Callable[[S], int],
    extra: str = "server",
) -> int:
    """From the command line to the exit status; `prefix` precedes the line about a failed start.

    `check` does what --check asks for, and returns its exit status. `extra` is the one that has to be installed. `live`
    is run in a loop of its own until the daemon has stopped, and may return an exit status; see `serve`.
    """
    try:
        options = parse()
    except FlagError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    except PlainError as error:
        sys.stderr.write(f"{time.strftime('%Y/%m/%d %H:%M:%S')} {error}\n")
        return 1
    except OptionsError as error:
        return _fatal(program, prefix, error, logs.FORMATS["text"])
    logs.set_up(program, options.log_prefix, options.log_level, options.log_format)
    gc.disable()  # until it serves: a start makes hardly anything that does not stay
    try:
        extras.check(f"nsqfast-{program}", extra)
        if options.check:
            return check(options)
        import uvloop

        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(live(options)) or 0
    except OptionsError as error:
        return _fatal(program, prefix, error, options.log_format)
    except StopFailedError:
        return 1
    finally:
        gc.enable()


def _fatal(program: str, prefix: str, error: OptionsError, log_format: int) -> int:
    # A failed start is reported under NSQ's own prefix, whatever --log-prefix says.
    log = logs.set_up(program, prefix, logs.LEVELS["fatal"], log_format)
    for line in error.lines if isinstance(error, UnknownKeysError) else [error]:
        log.critical("%s", line)
    return 1


def collect_seldom() -> None:
    """Collect old objects less often, for a daemon that leaves no cycles of them behind.

    With 10,000 connections the collector takes 40 ms, during which nobody is served, and finds nothing.
    """
    gc.set_threshold(*gc.get_threshold()[:2], FULL_COLLECTION_COUNT)


async def serve(program: str, server: Server) -> None:
    """Start, wait for the signal to stop, stop."""
    loop = asyncio.get_running_loop()

    def report(_loop: asyncio.AbstractEventLoop, context: dict[str, object]) -> None:
        error = context.get("exception")
        caught = error if isinstance(error, BaseException) else None
        logs.logger(program).error("unexpected: %s", context.get("message"), exc_info=caught)

    loop.set_exception_handler(report)
    told_to_stop = asyncio.Event()
    service, watchdog = Service(), Watchdog(loop)

    def reload() -> None:
        with service.reloading():
            server.reload()

    watch_signals(loop, told_to_stop.set, reload)
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    await server.start()
    # Everything made so far stays, so the collector need not examine it again.
    gc.collect()
    gc.freeze()
    gc.enable()
    service.ready(server.status())
    watchdog.start()
    await told_to_stop.wait()
    service.stopping()
    try:
        await server.stop()
    except OSError as error:
        logs.logger(program).error("stopped, but %s", error.strerror or error)
        raise StopFailedError from None
    finally:
        watchdog.stop()
