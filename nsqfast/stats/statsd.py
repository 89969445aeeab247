"""statsd's lines and packets: `key:value|c` for counts since the last push, `key:value|g` for current values.

Nothing here knows about a socket or a broker.
"""

from collections.abc import Iterable, Iterator


class Counters:
    """Turns growing counters into differences between pushes."""

    def __init__(self) -> None:
        self._last: dict[str, int] = {}
        self._next: dict[str, int] = {}

    def difference(self, key: str, count: int) -> int:
        """The difference since the last push; a smaller value belongs to a new object of the same name."""
        self._next[key] = count
        last = self._last.get(key, 0)
        return count - last if count >= last else count

    def end_push(self) -> None:
        """Forget the counters that this push did not ask for: they are gone."""
        self._last, self._next = self._next, {}


def packets(lines: Iterable[str], size_max: int) -> Iterator[bytes]:
    """Yield as many whole lines together as fit into `size_max` bytes; a longer line goes by itself."""
    gathered: list[bytes] = []
    size = 0
    for line in lines:
        data = line.encode("utf-8", "surrogateescape") + b"\n"
        if gathered and size + len(data) > size_max:
            yield b"".join(gathered)
            gathered, size = [], 0
        gathered.append(data)
        size += len(data)
    if gathered:
        yield b"".join(gathered)
