"""Releases what a query over Spark's own file source has committed."""

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote, urlsplit

from nsqfast.spark.spool.checkpoint import Checkpoint
from nsqfast.spark.spool.release import release_names
from nsqfast.tools.shared.program import log
from nsqfast.wire.gotext import os_error


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
