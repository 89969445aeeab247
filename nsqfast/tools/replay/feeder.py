"""Read in a separate thread while the event loop publishes; a few items wait in between."""

import asyncio
import threading
from collections.abc import Iterator
from typing import Generic, TypeVar

T = TypeVar("T")

DEPTH = 4
JOIN_TIMEOUT_S = 1.0  # for the item being read


class Feeder(Generic[T]):
    """Passes on the items of an iterator. The thread may hang in a read for ever; it dies with the process."""

    def __init__(self, items: Iterator[T]) -> None:
        self._items = items
        self._loop = asyncio.get_running_loop()
        self._room = threading.Semaphore(DEPTH)
        self._is_closed = False
        self._queue: asyncio.Queue[T | BaseException | None] = asyncio.Queue()
        self._thread = threading.Thread(target=self._read, name="nsqfast: reader", daemon=True)

    def start(self) -> None:
        """Start reading."""
        self._thread.start()

    def _read(self) -> None:
        try:
            for item in self._items:
                self._room.acquire()
                if self._is_closed:
                    return
                self._hand_over(item)
        except BaseException as error:
            self._hand_over(error)
        else:
            self._hand_over(None)

    def _hand_over(self, item: T | BaseException | None) -> None:
        try:
            self._loop.call_soon_threadsafe(self._queue.put_nowait, item)
        except RuntimeError:  # the loop has ended, so the item is not needed
            if not self._is_closed:
                raise

    async def next(self) -> T | None:
        """The next item, None at the end. Errors of reading are raised here."""
        item = await self._queue.get()
        if isinstance(item, BaseException):
            raise item
        self._room.release()
        return item

    def close(self) -> None:
        """Stop asking for items."""
        self._is_closed = True
        self._room.release()
        self._thread.join(JOIN_TIMEOUT_S)
