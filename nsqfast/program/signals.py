"""Handle the signals that stop or reload a program."""

import asyncio
import signal
from collections.abc import Callable

_STOPPING = (signal.SIGTERM, signal.SIGINT)


def watch_signals(
    loop: asyncio.AbstractEventLoop, stop: Callable[[], None], reload: Callable[[], None] | None
) -> None:
    """Call `stop` on the loop at the first SIGTERM or SIGINT, and `reload` at each SIGHUP.

    Without `reload`, SIGHUP keeps its meaning.
    """

    def stop_once(_number: int, _frame: object) -> None:
        # Ignored rather than counted, so that a signal during the interpreter's shutdown does no harm either.
        for number in _STOPPING:
            signal.signal(number, signal.SIG_IGN)
        loop.call_soon_threadsafe(stop)

    for number in _STOPPING:
        signal.signal(number, stop_once)
    if reload is not None:
        call = reload
        signal.signal(signal.SIGHUP, lambda *_: loop.call_soon_threadsafe(call))
