"""Files beside --history-file, for what has to outlive this nsqadmin; they are replaced atomically."""

import asyncio
import contextlib
import logging
import os
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import BinaryIO, Generic, TypeVar

import msgspec

from nsqfast.nsqadmin.options import Options
from nsqfast.program.durable import sync_folder

log = logging.getLogger("nsqadmin")

SIZE_MAX = 64 << 20

T = TypeVar("T")


@contextlib.contextmanager
def replace_file(path: str) -> Iterator[BinaryIO]:
    """A stream whose content replaces PATH at the end of the block; OSError."""
    beside = Path(f"{path}.new")
    with beside.open("wb") as stream:
        yield stream
        stream.flush()
        os.fsync(stream.fileno())
    beside.replace(path)
    sync_folder(Path(path).parent)


class Saver:
    """Saves something now and then, and for the last time when it is stopped."""

    def __init__(self, save: Callable[[], Awaitable[None]], interval_s: float) -> None:
        self._save = save
        self._interval_s = interval_s
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        """Without a start nothing is saved."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
            self._task = None
            await self._save()

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._interval_s)
            await self._save()


class KeptFile(Generic[T]):
    """HISTORY_FILE.ENDING, which holds a `kind`; without --history-file nothing is read or written."""

    def __init__(self, options: Options, ending: str, kind: type[T]) -> None:
        self._path = f"{options.history_file}.{ending}" if options.history_file else ""
        self._what = ending
        self._kind = kind
        self._turn = asyncio.Lock()

    def __bool__(self) -> bool:
        return bool(self._path)

    async def read(self) -> T | None:
        """What the previous nsqadmin wrote; None without it. A faulty file is one line in the log."""
        if not self._path:
            return None
        try:
            return await asyncio.to_thread(self._read)
        except FileNotFoundError:
            return None
        except (OSError, ValueError, RecursionError) as error:
            log.warning("problems: the %s in %s are ignored: %s", self._what, self._path, error)
            return None

    async def save(self, body: bytes) -> None:
        """Replace it; an error is one line in the log."""
        if not self._path:
            return
        async with self._turn:
            try:
                await asyncio.to_thread(_write, self._path, body)
            except OSError as error:
                log.warning("problems: the %s could not be written: %s", self._what, error)

    def _read(self) -> T:
        with Path(self._path).open("rb") as stream:
            body = stream.read(SIZE_MAX + 1)
        if len(body) > SIZE_MAX:
            raise ValueError("the file is too large")
        return msgspec.json.decode(body, type=self._kind)


def _write(path: str, body: bytes) -> None:
    with replace_file(path) as stream:
        stream.write(body)
