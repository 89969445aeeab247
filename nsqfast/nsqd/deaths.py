"""What is known of dead letters, in a database in the data folder, which Go's nsqd does not look at.

A row has what died for one topic in one turn, or a piece of that, as the broker's core packed it
(_ext/broker/deaths.pxd): few rows are written, however many messages die. One thread does all of it, in order. A kill
takes what that has not written yet, and never a message; a broker without a dead letter has no such file.
"""

import asyncio
import logging
import sqlite3
import struct
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from nsqfast._ext.broker.dead_letters import REASONS
from nsqfast._ext.broker.topics import Topics
from nsqfast.net.http_reply import encode_json
from nsqfast.nsqd.metadata import keep_aside
from nsqfast.nsqd.options import DEATHS_NAME

UNWRITTEN_MAX = 64 << 20  # bytes that wait for the thread; more is left out
ID_MAX = (1 << 63) - 1  # of ours, and of what a database compares
PRUNE_PERIOD_S = 60
PRUNE_MARGIN_NS = 10**9
_HEAD = struct.Struct("<QqQqIHBBBBBxI")
_COLUMNS = "topic TEXT, first_id INTEGER, last_id INTEGER, died_ns INTEGER, packed BLOB"

log = logging.getLogger("nsqd")

# First id, last id, when that died, what is known (Deaths.take).
Piece = tuple[int, int, int, bytes]
Death = dict[str, int | str]


class DeathFile:
    """One broker's; its methods are called by the loop."""

    def __init__(self, folder: str, topics: Topics) -> None:
        self.lost_count = 0  # bytes that were not written
        self._folder, self._topics = folder, topics
        self._path = Path(folder, DEATHS_NAME)
        self._thread = ThreadPoolExecutor(1, "deaths")
        self._base: sqlite3.Connection | None = None
        self._lock = threading.Lock()  # for the next two
        self._unwritten: list[tuple[str, int, int, int, bytes]] = []
        self._unwritten_size = 0
        self._pruned_s: dict[str, float] = {}  # of each topic, when it was last done
        self._has_failed = False

    def load(self) -> None:
        """Let the topics that have dead letters know it. Nobody is served yet."""
        for (name,) in self._read("SELECT DISTINCT topic FROM deaths"):
            topic = self._topics.find(name)
            if topic is None:
                self.forget(name)
            else:
                topic.take_dead_letters()

    def add(self, topic: str, pieces: list[Piece]) -> None:
        """Let them be written soon."""
        size = sum(len(piece[3]) for piece in pieces)
        with self._lock:
            is_first = not self._unwritten
            if self._unwritten_size + size > UNWRITTEN_MAX:
                self.lost_count += size
                return
            self._unwritten += [(topic, *piece) for piece in pieces]
            self._unwritten_size += size
        if is_first:
            self._thread.submit(self._write)
        self._prune(topic)

    async def find(self, topic: str, ids: Iterable[str]) -> dict[str, Death]:
        """What is known of those of the topic's dead letters, by id."""
        wanted = [int(each, 16) for each in ids]
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, self._find, topic, wanted)

    def find_encoded(self, topic: str, ids: list[int]) -> asyncio.Future[bytes]:
        """The same as JSON."""
        loop = asyncio.get_running_loop()
        return loop.run_in_executor(self._thread, lambda: encode_json(self._find(topic, ids)))

    def forget(self, topic: str) -> None:
        """It is deleted."""
        self._pruned_s.pop(topic, None)
        self._thread.submit(self._run, "DELETE FROM deaths WHERE topic = ?", (topic,))

    def close(self) -> None:
        """Write the rest."""
        self._thread.submit(self._close)
        self._thread.shutdown()

    def _prune(self, name: str) -> None:
        """Now and then: what died before the oldest message that the topic or a channel of it still has."""
        topic, now_s = self._topics.find(name), time.monotonic()
        if topic is None or now_s - self._pruned_s.setdefault(name, now_s) < PRUNE_PERIOD_S:
            return
        self._pruned_s[name] = now_s
        queues = [topic, *topic.channels()]
        ages_ns = [queue.age_ns() for queue in queues]
        if min(ages_ns) < 0 or any(channel.deferred_count for channel in topic.channels()):
            return
        until_ns = time.time_ns() - max(ages_ns) - PRUNE_MARGIN_NS
        self._thread.submit(
            self._run, "DELETE FROM deaths WHERE topic = ? AND died_ns < ?", (name, until_ns)
        )

    # In the thread

    def _open(self) -> sqlite3.Connection:
        if self._base is None:
            base = sqlite3.connect(self._path, isolation_level=None, check_same_thread=False)
            try:
                base.execute("PRAGMA journal_mode = WAL")
                base.execute("PRAGMA synchronous = NORMAL")
                base.execute(
                    f"CREATE TABLE IF NOT EXISTS deaths ({_COLUMNS}, PRIMARY KEY (topic, first_id))"
                )
            except sqlite3.Error:
                base.close()
                raise
            self._base = base
        return self._base

    def _try(self, do: Callable[[sqlite3.Connection], Any]) -> Any:
        """None after an error, which a line in the log tells; one that cannot be read is kept aside, once."""
        for is_last in (False, True):
            try:
                done = do(self._open())
            except sqlite3.DatabaseError as error:
                is_broken = not isinstance(error, sqlite3.OperationalError)
                if not self._has_failed:
                    log.error("DEATHS: %s cannot be used - %s", self._path, error)  # noqa: TRY400
                self._has_failed = True
                if is_last or not is_broken:
                    return None
                self._put_aside()
            else:
                self._has_failed = False
                return done
        return None

    def _put_aside(self) -> None:
        if self._base is not None:
            self._base.close()
            self._base = None
        try:
            log.error("DEATHS: it is kept as %s", keep_aside(self._folder, DEATHS_NAME))
            for end in ("", "-wal", "-shm"):
                Path(f"{self._path}{end}").unlink(missing_ok=True)
        except OSError as error:
            log.error("DEATHS: it cannot be put aside - %s", error)  # noqa: TRY400

    def _read(self, text: str, values: tuple[Any, ...] = ()) -> list[Any]:
        return self._try(lambda base: base.execute(text, values).fetchall()) or []

    def _run(self, text: str, values: tuple[Any, ...]) -> None:
        self._try(lambda base: base.execute(text, values))

    def _write(self) -> None:
        with self._lock:
            rows, self._unwritten, self._unwritten_size = self._unwritten, [], 0
        text = "INSERT OR REPLACE INTO deaths VALUES (?, ?, ?, ?, ?)"

        def insert(base: sqlite3.Connection) -> bool:
            with base:
                base.execute("BEGIN")
                base.executemany(text, rows)
            return True

        if not self._try(insert):
            self.lost_count += sum(len(row[4]) for row in rows)

    def _find(self, topic: str, ids: list[int]) -> dict[str, Death]:
        found: dict[str, Death] = {}
        wanted = {each for each in ids if each <= ID_MAX}
        text = (
            "SELECT packed FROM deaths WHERE topic = ? AND first_id <= ? AND last_id >= ?"
            " ORDER BY first_id DESC LIMIT 1"
        )
        while wanted and self._path.exists():
            next_id = min(wanted)
            for (packed,) in self._read(text, (topic, next_id, next_id)):
                try:
                    deaths = dict(_unpack(packed, wanted))
                except (struct.error, IndexError):
                    log.error("DEATHS: %s is damaged at %016x", self._path, next_id)  # noqa: TRY400
                    continue
                found |= {f"{number:016x}": death for number, death in deaths.items()}
                wanted -= deaths.keys()
            wanted.discard(next_id)
        return found

    def _close(self) -> None:
        self._write()
        if self._base is not None:
            self._base.close()


def _unpack(packed: bytes, ids: set[int]) -> Iterator[tuple[int, Death]]:
    """Those of these ids; the others cost little."""
    place = 0
    while place < len(packed):
        number, _, _, _, size, *_ = head = _HEAD.unpack_from(packed, place)
        if number in ids:
            yield number, _read_death(packed, place + _HEAD.size, *head)
        place += max(size, _HEAD.size)


def _read_death(
    packed: bytes,
    place: int,  # of the texts
    _number: int,
    died_ns: int,
    first_id: int,
    published_ns: int,
    _size: int,
    attempts: int,
    failures: int,
    reason: int,
    *sizes: int,
) -> Death:
    texts = []
    for size in sizes:
        texts.append(packed[place : place + size].decode(errors="replace"))
        place += size
    topic, channel, client, error = texts
    return {
        "reason": REASONS[reason],
        "topic": topic,
        "channel": channel,
        "failures": failures,
        "attempts": attempts,
        "client": client,
        "error": error,
        "first_id": f"{first_id:016x}",
        "published": published_ns,
        "died": died_ns,
    }
