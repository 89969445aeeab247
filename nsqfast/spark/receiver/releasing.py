"""Which segments a query over Spark's own file source has processed: its checkpoint tells.

    metadata             which query it is
    commits/N            batch N is done
    offsets/N            a line of it for each source, after two others: {"logOffset": K}
    sources/I/K          the files that the source I took with its offset K, a line of JSON for each
    sources/I/K.compact  and this all of them up to K

Spark writes each of these files under another name first (`HDFSMetadataLog` and `CompactibleFileStreamLog` of Spark
4.0 to 4.3 are the source of this format).
"""

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote, urlsplit

import orjson

from nsqfast.spark.spool.release import release_names
from nsqfast.tools.shared.program import log
from nsqfast.wire.gotext import os_error

_COMPACT = ".compact"


class Checkpoint:
    """The progress of one query."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._query = b""
        self._read: dict[str, int] = {}  # the last offset of each source that was returned

    def list_new(self) -> Iterator[str]:
        """Yield the URIs of what the query has processed since the last call; the first time, all it still names.

        OSError, ValueError, KeyError: something cannot be read; what was not returned comes with the next call.
        """
        batch = max(_numbers(self._folder / "commits"), default=None)
        if batch is None:
            return
        query = (self._folder / "metadata").read_bytes()
        if query != self._query:
            # Another query in the place of a removed one begins again.
            self._query, self._read = query, {}
        for source, offset in self._offsets(batch):
            yield from self._list_source(source, offset)
            self._read[source] = offset

    def _offsets(self, batch: int) -> Iterator[tuple[str, int]]:
        """Yield each file source of the query, with its offset after that batch."""
        lines = (self._folder / "offsets" / str(batch)).read_text().splitlines()[2:]
        for number, line in enumerate(lines):
            fields = orjson.loads(line) if line.startswith("{") else {}
            if "logOffset" in fields:
                yield str(number), int(fields["logOffset"])

    def _list_source(self, source: str, offset: int) -> Iterator[str]:
        read = self._read.get(source, -1)
        folder = self._folder / "sources" / source
        logs = {number: name for number, name in _logs(folder).items() if read < number <= offset}
        first = max((number for number, name in logs.items() if name.endswith(_COMPACT)), default=0)
        for number in sorted(logs):
            if number >= first:
                yield from _files(folder / logs[number], read)


def _numbers(folder: Path) -> list[int]:
    return [int(name) for name in _names(folder) if name.isdecimal()]


def _logs(folder: Path) -> dict[int, str]:
    found = {}
    for name in _names(folder):
        number = name.removesuffix(_COMPACT)
        if number.isdecimal():
            found[int(number)] = name
    return found


def _names(folder: Path) -> list[str]:
    try:
        return [path.name for path in folder.iterdir()]
    except FileNotFoundError:
        return []


def _files(log: Path, after: int) -> Iterator[str]:
    """Yield those of later offsets: a compacted one names the earlier ones again."""
    for line in log.read_bytes().splitlines()[1:]:
        fields = orjson.loads(line)
        if fields["batchId"] > after:
            yield fields["path"]


class Releaser:
    """For the folder of one receiver; what is wrong with the checkpoint releases nothing, and is named once."""

    def __init__(self, folder: Path, checkpoint: Path) -> None:
        self._folder = folder
        self._path = checkpoint
        self._checkpoint = Checkpoint(checkpoint)
        self._places: dict[str, Path] = {}  # folders by their URIs
        self._is_of_spool = False  # the query reads this spool
        self._said = ""

    def run(self) -> None:
        """Release what was committed since the last call."""
        try:
            release_names(self._folder, self._list_new())
        except (OSError, ValueError, KeyError) as error:
            reason = os_error(error) if isinstance(error, OSError) else repr(error)
            self._warn(f"cannot be read, so nothing is released: {reason}")

    def _list_new(self) -> Iterator[str]:
        """Yield the names of those in the receiver's folder."""
        folder = self._folder.resolve()
        others = None
        for uri in self._checkpoint.list_new():
            place, _, name = uri.rpartition("/")
            if place not in self._places:
                self._places[place] = Path(unquote(urlsplit(place).path)).resolve()
            path = self._places[place]
            if path == folder:
                yield name
            if path.parent == folder.parent:
                self._is_of_spool = True
            else:
                others = path
        if others is not None and not self._is_of_spool:
            self._warn(f"is of a query that reads {others}, so nothing is released")

    def _warn(self, text: str) -> None:
        if text != self._said:
            log.warning("checkpoint %s %s", self._path, text)
        self._said = text
