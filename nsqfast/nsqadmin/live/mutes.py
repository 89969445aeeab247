"""Until when problems are muted; with --history-file this survives a restart, in a JSON file beside it."""

import asyncio
import logging
from pathlib import Path

import msgspec

from nsqfast.nsqadmin.live.replacing import replacing
from nsqfast.nsqadmin.options import Options

log = logging.getLogger("nsqadmin")

SIZE_MAX = 16 << 20


class _Kept(msgspec.Struct):
    nsqadmin_mutes: dict[str, float]  # by the id of a problem: Unix time


class Mutes:
    """The mutes of one nsqadmin. Call `read` at the start, `save` after each `set`."""

    def __init__(self, options: Options) -> None:
        self._path = f"{options.history_file}.mutes" if options.history_file else ""
        self._until: dict[str, float] = {}
        self._turn = asyncio.Lock()

    def until(self, problem_id: str) -> float:
        """Unix time; 0: it is not muted."""
        return self._until.get(problem_id, 0.0)

    def set(self, problem_id: str, until: float) -> None:
        """0 ends it."""
        self._until.pop(problem_id, None)
        if until:
            self._until[problem_id] = until

    def forget(self, now: float) -> None:
        """Forget mutes that are over at this Unix time."""
        if any(until <= now for until in self._until.values()):
            self._until = {name: until for name, until in self._until.items() if until > now}

    async def read(self) -> None:
        """Read those of the previous nsqadmin; a faulty file is one line in the log."""
        if not self._path:
            return
        try:
            self._until = await asyncio.to_thread(_read, self._path)
        except FileNotFoundError:
            pass
        except (OSError, ValueError) as error:
            log.warning("problems: the mutes in %s are ignored: %s", self._path, error)

    async def save(self) -> None:
        """Call this in a thread; an error is one line in the log."""
        if not self._path:
            return
        async with self._turn:
            body = msgspec.json.encode(_Kept(self._until))
            try:
                await asyncio.to_thread(_write, self._path, body)
            except OSError as error:
                log.warning("problems: the mutes could not be written: %s", error)


def _read(path: str) -> dict[str, float]:
    with Path(path).open("rb") as stream:
        body = stream.read(SIZE_MAX + 1)
    if len(body) > SIZE_MAX:
        raise ValueError("the file is too large")
    return msgspec.json.decode(body, type=_Kept).nsqadmin_mutes


def _write(path: str, body: bytes) -> None:
    with replacing(path) as stream:
        stream.write(body)
