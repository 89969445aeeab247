"""nsqd.dat: which topics and channels there are and which of them are paused. Same file as Go's nsqd.

    {"topics":[{"name":"orders","paused":false,"channels":[{"name":"billing","paused":false}]}],"version":"1.3.0"}

Empty lists are null; ephemeral names are not in it. It is replaced whole: written beside, synced, renamed, and the
folder synced as well, so that after a power failure there is either the old or the new one.
"""

import asyncio
import contextlib
import json
import logging
import os
import random
import re
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from nsqfast import NSQ_VERSION
from nsqfast.errors import OptionsError
from nsqfast.gotext import os_error
from nsqfast.names import is_ephemeral, is_valid_name

if TYPE_CHECKING:
    from nsqfast._ext.registry import Registry

FILE_NAME = "nsqd.dat"
RETRY_S = 1.0
# Of a queue; what follows a colon is a channel.
DATA_FILE = re.compile(r"(?P<topic>[^:]+)(?::(?P<channel>[^:]+))?\.diskqueue\.[0-9]{6,}\.dat")
log = logging.getLogger("nsqd")


@dataclass(slots=True)
class TopicEntry:
    """One topic of the file, duplicates merged."""

    paused: bool = False
    channels: dict[str, bool] = field(default_factory=dict)  # name → paused


def decode(data: bytes) -> dict[str, TopicEntry]:
    """The topics by name; ValueError if this is no metadata. Names that are not valid are skipped with a warning."""
    if not data.strip():
        raise ValueError("unexpected end of JSON input")
    try:
        value = json.loads(data)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    topics: dict[str, TopicEntry] = {}
    for raw_topic in _entries(_object(value), "topics"):
        name, paused = _name_and_paused(raw_topic)
        raw_channels = _entries(raw_topic, "channels")
        if not is_valid_name(name):
            log.warning("skipping creation of invalid topic %s", name)
            continue
        entry = topics.setdefault(name, TopicEntry())
        entry.paused |= paused
        for raw_channel in raw_channels:
            channel, channel_paused = _name_and_paused(raw_channel)
            if not is_valid_name(channel):
                log.warning("skipping creation of invalid channel %s", channel)
                continue
            entry.channels[channel] = entry.channels.get(channel, False) or channel_paused
    return topics


def _object(value: Any) -> dict[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise ValueError(f"an object was expected, not {json.dumps(value)[:60]}")  # noqa: TRY004 - the file, not the caller
    return value


def _entries(owner: dict[str, Any], key: str) -> list[dict[str, Any]]:
    value = owner.get(key)
    if value is None:
        return []
    if not isinstance(value, list):
        raise ValueError(f"{key}: a list was expected, not {json.dumps(value)[:60]}")  # noqa: TRY004 - the file, not the caller
    return [_object(item) for item in value]


def _name_and_paused(entry: dict[str, Any]) -> tuple[str, bool]:
    name = entry.get("name") or ""
    paused = entry.get("paused") or False
    if not isinstance(name, str) or not isinstance(paused, bool):
        raise ValueError(f"name or paused of the wrong type in {json.dumps(entry)[:60]}")  # noqa: TRY004 - the file, not the caller
    return name, paused


def encode(registry: "Registry") -> bytes:
    """The file's content for what the registry holds now."""
    topics = [
        {
            "name": topic.name,
            "paused": topic.paused,
            "channels": [
                {"name": channel.name, "paused": channel.paused}
                for channel in topic.channels()
                if not channel.ephemeral
            ]
            or None,
        }
        for topic in registry.topics()
        if not topic.ephemeral
    ]
    return json.dumps(
        {"topics": topics or None, "version": NSQ_VERSION}, separators=(",", ":")
    ).encode()


def load(registry: "Registry", folder: str) -> None:
    """Creates what the file of that folder names, and what has messages in the folder without being named."""
    topics = read(folder)
    for name, channel in sorted(queues_in(folder)):
        if name not in topics or channel not in topics[name].channels | {"": False}:
            # A kill came between the OK to a first message and the name's way into the file.
            log.warning(
                "messages of %s are here, and %s does not name it", _shown(name, channel), FILE_NAME
            )
            entry = topics.setdefault(name, TopicEntry())
            if channel:
                entry.channels[channel] = False
    for name, entry in topics.items():
        topic = registry.topic(name)
        # Paused until all its channels are there: its backlog is for each of them, not for the first.
        topic.pause()
        for channel_name, paused in entry.channels.items():
            made = topic.channel(channel_name)
            if paused:
                made.pause()
        if not entry.paused:
            topic.unpause()


def _shown(topic: str, channel: str) -> str:
    return f"channel {channel} of topic {topic}" if channel else f"topic {topic}"


def queues_in(folder: str) -> set[tuple[str, str]]:
    """(topic, channel) of every queue that has data in the folder; the channel is '' for a topic's own."""
    found = set()
    with os.scandir(folder) as files:
        for file in files:
            match = DATA_FILE.fullmatch(file.name)
            if match is None or not all(is_valid_name(name) for name in match.groups() if name):
                continue
            if file.stat().st_size:
                found.add((match["topic"], match["channel"] or ""))
    return found


def read(folder: str) -> dict[str, TopicEntry]:
    """What the file of that folder names; no file is a fresh start."""
    path = os.path.join(folder, FILE_NAME)  # noqa: PTH118 - shown as text
    try:
        with open(path, "rb") as file:  # noqa: PTH123
            data = file.read()
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise OptionsError(f"failed to read metadata from {path} - {os_error(error)}") from None
    try:
        return decode(data)
    except ValueError as error:
        raise OptionsError(f"failed to parse metadata in {path} - {error}") from None


def write(folder: str, data: bytes) -> None:
    """Replaces the file; OSError if that fails, and then the old one is still there."""
    path = os.path.join(folder, FILE_NAME)  # noqa: PTH118
    temporary = f"{path}.{random.randrange(1 << 63)}.tmp"  # noqa: S311 - a name, no secret
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.rename(temporary, path)  # noqa: PTH104
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(temporary)  # noqa: PTH108
        raise
    folder_fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder_fd)
    finally:
        os.close(folder_fd)


class MetadataFile:
    """Keeps the file up to date: at once when asked, behind the loop's back after a change, and again if that failed.

    Each snapshot has a number, and an older one never replaces a newer one, whoever comes first to the disk. While one
    is being written, further changes wait and are written together.
    """

    def __init__(self, registry: "Registry", folder: str) -> None:
        self.path = os.path.join(folder, FILE_NAME)  # noqa: PTH118
        self._registry = registry
        self._folder = folder
        self._taken = 0
        self._written = 0
        self._writing = threading.Lock()
        self._executor: ThreadPoolExecutor | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_wanted = False
        self._is_busy = False

    def watch(self, loop: asyncio.AbstractEventLoop) -> None:
        """From now on `changed` has every change of a name that is kept written soon."""
        self._loop = loop
        self._executor = ThreadPoolExecutor(1, "metadata")

    def close(self) -> None:
        """Waits for a write on its way; changes after this are not written."""
        self._loop = None
        if self._executor is not None:
            self._executor.shutdown()
            self._executor = None

    def persist(self) -> None:
        """Writes what is true now, before it returns."""
        self._write(*self._snapshot())

    def changed(self, _kind: str, topic: str, channel: str | None) -> None:
        """A topic or a channel came or went."""
        if is_ephemeral(topic) or (channel is not None and is_ephemeral(channel)):
            return
        if self._loop is not None and not self._is_wanted:
            self._is_wanted = True
            if not self._is_busy:
                self._loop.call_soon(self._start)

    def _start(self) -> None:
        if self._loop is None or self._executor is None or self._is_busy:
            return
        self._is_wanted = False
        self._is_busy = True
        self._loop.run_in_executor(
            self._executor, self._write, *self._snapshot()
        ).add_done_callback(self._done)

    def _done(self, result: "asyncio.Future[None]") -> None:
        self._is_busy = False
        if not result.cancelled() and (error := result.exception()) is not None:
            text = os_error(error) if isinstance(error, OSError) else repr(error)
            log.error("failed to persist metadata - %s", text)
            # A topic that is on disk and in no list would be forgotten by a restart.
            if self._loop is not None:
                self._is_wanted = True
                self._loop.call_later(RETRY_S, self._start)
        elif self._is_wanted:
            self._start()

    def _snapshot(self) -> tuple[int, bytes]:
        log.info("NSQ: persisting topic/channel metadata to %s", self.path)
        self._taken += 1
        return self._taken, encode(self._registry)

    def _write(self, number: int, data: bytes) -> None:
        with self._writing:
            if number > self._written:
                write(self._folder, data)
                self._written = number
