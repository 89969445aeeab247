"""What a program does when it is told to stop, or to look again."""

import asyncio
import signal
from collections.abc import Callable

_STOPPING = (signal.SIGTERM, signal.SIGINT)


def watch_signals(
    loop: asyncio.AbstractEventLoop, stop: Callable[[], None], reload: Callable[[], None] | None
) -> None:
    """Call `stop` on the loop at the first SIGTERM or SIGINT, and `reload` at each SIGHUP.

    Without `reload`, SIGHUP stays what it was.
    """

    def stop_once(_number: int, _frame: object) -> None:
        # Ignored rather than counted, so that also one that comes while the interpreter winds up does no harm.
        for number in _STOPPING:
            signal.signal(number, signal.SIG_IGN)
        loop.call_soon_threadsafe(stop)

    for number in _STOPPING:
        signal.signal(number, stop_once)
    if reload is not None:
        call = reload
        signal.signal(signal.SIGHUP, lambda *_: loop.call_soon_threadsafe(call))
