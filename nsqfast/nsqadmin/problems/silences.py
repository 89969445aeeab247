"""What nobody wants to be told of for a while, and why; with --history-file this survives a restart."""

from collections.abc import Iterator
from enum import StrEnum

import msgspec

from nsqfast.nsqadmin.cluster.kept_file import KeptFile
from nsqfast.nsqadmin.options import Options

SILENCES_MAX = 1000


class Scope(StrEnum):
    PROBLEM = "problem"
    NODE = "node"
    TOPIC = "topic"
    EVERYTHING = "everything"


class Silence(msgspec.Struct, frozen=True):
    """One; times are Unix times."""

    scope: Scope
    target: str  # id of a problem, key of a node, name of a topic; '' for everything
    until: float
    reason: str = ""
    user: str = ""
    since: float = 0.0

    @property
    def id(self) -> str:
        """A new one with the same id replaces it."""
        return f"{self.scope}/{self.target}"


class _Kept(msgspec.Struct):
    nsqadmin_mutes: dict[str, float]  # by the id of a problem, all that nsqfast 0.2.0 knows
    silences: list[Silence] = []


class Silences:
    """Those of one nsqadmin. Call `read` at the start, `save` after each change."""

    def __init__(self, options: Options) -> None:
        self._file = KeptFile(options, "mutes", _Kept)
        self._by_id: dict[str, Silence] = {}

    def __iter__(self) -> Iterator[Silence]:
        return iter(self._by_id.values())

    def find(self, problem_id: str, node: str, topic: str) -> Silence | None:
        """The one that lasts longest for such a problem."""
        if not self._by_id:
            return None
        ids = f"{Scope.PROBLEM}/{problem_id}", f"{Scope.EVERYTHING}/"
        more = f"{Scope.NODE}/{node}" if node else "", f"{Scope.TOPIC}/{topic}" if topic else ""
        found = [self._by_id[each] for each in (*ids, *more) if each in self._by_id]
        return max(found, key=lambda silence: silence.until, default=None)

    def begin(self, silence: Silence) -> bool:
        """False: there are too many."""
        if silence.id not in self._by_id and len(self._by_id) >= SILENCES_MAX:
            return False
        self._by_id[silence.id] = silence
        return True

    def end(self, scope: Scope, target: str) -> bool:
        """End it before its time; False: there is none."""
        return self._by_id.pop(f"{scope}/{target}", None) is not None

    def forget(self, now: float) -> None:
        """Forget those that are over at this Unix time."""
        if any(silence.until <= now for silence in self):
            self._by_id = {silence.id: silence for silence in self if silence.until > now}

    async def read(self) -> None:
        kept = await self._file.read()
        if kept is None:
            return
        old = [Silence(Scope.PROBLEM, name, until) for name, until in kept.nsqadmin_mutes.items()]
        self._by_id = {silence.id: silence for silence in (*old, *kept.silences)}

    async def save(self) -> None:
        mutes = {one.target: one.until for one in self if one.scope is Scope.PROBLEM}
        await self._file.save(msgspec.json.encode(_Kept(mutes, list(self))))
