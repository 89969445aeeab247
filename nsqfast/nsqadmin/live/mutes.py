"""Until when problems are muted; with --history-file this survives a restart."""

import msgspec

from nsqfast.nsqadmin.live.kept_file import KeptFile
from nsqfast.nsqadmin.options import Options


class _Kept(msgspec.Struct):
    nsqadmin_mutes: dict[str, float]  # by the id of a problem: Unix time


class Mutes:
    """The mutes of one nsqadmin. Call `read` at the start, `save` after each `set`."""

    def __init__(self, options: Options) -> None:
        self._file = KeptFile(options, "mutes", _Kept)
        self._until: dict[str, float] = {}

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
        """Read those of the previous nsqadmin."""
        kept = await self._file.read()
        if kept is not None:
            self._until = kept.nsqadmin_mutes

    async def save(self) -> None:
        """Write them."""
        await self._file.save(msgspec.json.encode(_Kept(self._until)))
