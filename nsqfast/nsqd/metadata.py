"""nsqd.dat: the list of topics and channels, and which of them are paused. It is the same file as Go's nsqd.

    {"topics":[{"name":"orders","paused":false,"channels":[{"name":"billing","paused":false}]}],"version":"1.3.0"}

Empty lists are null; ephemeral names are not included. The file is replaced as a whole: written under a temporary name,
synced, renamed, and the folder synced as well, so that after a power failure either the old or the new file exists.

An unreadable file is no reason to leave messages undelivered: topics and channels are then found by the files of their
queues, and the file is kept under another name. Nor is a full disk: failed writes are retried.
"""

import contextlib
import errno
import itertools
import json
import logging
import os
import random
import re
import stat
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nsqfast.errors import OptionsError
from nsqfast.nsqd.data_folder import describe_remedy
from nsqfast.nsqd.options import POLICIES_NAME
from nsqfast.nsqd.progress import StartProgress
from nsqfast.program.durable import sync_folder
from nsqfast.version import NSQ_VERSION
from nsqfast.wire.gotext import os_error
from nsqfast.wire.names import is_valid_name

if TYPE_CHECKING:
    from nsqfast._ext.broker.topics import Topics


FILE_NAME = "nsqd.dat"
# The files of a queue; a channel name follows the colon.
QUEUE = r"(?P<topic>[^:]+)(?::(?P<channel>[^:]+))?\.diskqueue\."
DATA_FILE = re.compile(QUEUE + r"[0-9]{6,}\.dat")
DATA_OR_POSITION_FILE = re.compile(QUEUE + r"(?:[0-9]{6,}|meta)\.dat")
LEFTOVER = re.compile(rf"(?:{re.escape(FILE_NAME)}|{re.escape(POLICIES_NAME)})\.[0-9]+\.tmp")
# Errors that the operator must fix before a start: permissions, a missing folder, too few descriptors.
REFUSED_READS = {errno.EACCES, errno.EPERM, errno.EMFILE, errno.ENFILE, errno.ENOMEM}
NO_SECOND_NAME = {
    errno.EPERM,
    errno.EOPNOTSUPP,
    errno.ENOSYS,
    errno.EMLINK,
}  # folders, and some file systems, answer so
REFUSED_WRITES = REFUSED_READS | {errno.EROFS, errno.ENOENT, errno.ENOTDIR}
log = logging.getLogger("nsqd")


@dataclass(slots=True)
class TopicEntry:
    """One topic of the file, duplicates merged."""

    paused: bool = False
    channels: dict[str, bool] = field(default_factory=dict)  # name → paused


def decode(data: bytes) -> dict[str, TopicEntry]:
    """The topics by name; ValueError if this is not metadata. Invalid names are skipped with a warning."""
    if not data.strip():
        raise ValueError("unexpected end of JSON input")
    try:
        value = json.loads(data.decode())  # json would take zeros for UTF-32
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


def encode(topics: "Topics") -> bytes:
    """The file's content for the current topics."""
    listing = Listing(topics)
    listing.note_all()
    for _ in listing.write():
        pass
    return listing.text()


def load(topics: "Topics", folder: str) -> bytes | None:
    """Create everything that the folder's file names, and everything that has messages in the folder without being
    named.

    Returns the file's content: empty if the file does not exist, None if it is unusable.
    """
    data: bytes | None = None
    try:
        data = read(folder)
        entries = decode(data) if data is not None else {}
        data = data or b""
    except ValueError as error:
        entries = _find_again(folder, str(error))
        data = None
    except OSError as error:
        entries = _find_again(folder, os_error(error))
    for name, channel in sorted(queues_in(folder, DATA_FILE, known=entries)):
        if topics.remove_cut(f"{name}:{channel}" if channel else name):
            continue
        # A kill came between the OK to a first message and the write of its name to the file.
        log.warning(
            "messages of %s are here, and %s does not name it", _shown(name, channel), FILE_NAME
        )
        _add(entries, name, channel)
    for queue in topics.logged_names():
        name, _, channel = queue.partition(":")
        if name not in entries or (channel and channel not in entries[name].channels):
            _add(entries, name, channel)
    progress = StartProgress()
    count = sum(1 + len(entry.channels) for entry in entries.values())
    opened = 0
    with topics.starting():
        for name, entry in entries.items():
            _create(topics, name, entry)
            opened += 1 + len(entry.channels)
            progress(count, opened)
    return data


def _find_again(folder: str, reason: str) -> dict[str, TopicEntry]:
    """Find the topics by the files of their queues, because there is no readable list."""
    topics: dict[str, TopicEntry] = {}
    for name, channel in sorted(queues_in(folder, DATA_OR_POSITION_FILE, known=topics)):
        _add(topics, name, channel)
    try:
        kept = f"it is kept as {keep_aside(folder)}"
    except OSError as error:
        kept = f"it could not be put aside yet - {os_error(error)}"
    log.warning(
        "%s cannot be used - %s: %d topics and %d channels were found by their files, none of them is paused, "
        "those without files are gone; %s",
        os.path.join(folder, FILE_NAME),  # noqa: PTH118 - shown as text
        reason,
        len(topics),
        sum(len(entry.channels) for entry in topics.values()),
        kept,
    )
    return topics


def _add(topics: dict[str, TopicEntry], name: str, channel: str) -> None:
    entry = topics.setdefault(name, TopicEntry())
    if channel:
        entry.channels[channel] = False


def _create(topics: "Topics", name: str, entry: TopicEntry) -> None:
    topic = topics.ensure(name)
    # Paused until all its channels exist: its backlog is for each of them, not only for the first.
    topic.pause()
    for channel_name, paused in entry.channels.items():
        made = topic.channel(channel_name)
        if paused:
            made.pause()
    if not entry.paused:
        topic.unpause()


def _shown(topic: str, channel: str) -> str:
    return f"channel {channel} of topic {topic}" if channel else f"topic {topic}"


def queues_in(
    folder: str, kind: re.Pattern[str], known: dict[str, TopicEntry]
) -> set[tuple[str, str]]:
    """Yield (topic, channel) of every other queue with a non-empty file; the channel is '' for a topic's own queue."""
    found = set()
    with os.scandir(folder) as files:
        for file in files:
            match = kind.fullmatch(file.name)
            if match is None:
                continue
            topic, channel = match["topic"], match["channel"] or ""
            if topic in known and (not channel or channel in known[topic].channels):
                continue
            if not all(is_valid_name(name) for name in match.groups() if name):
                continue
            if file.is_file() and file.stat().st_size:
                found.add((topic, channel))
    return found


def read(folder: str, name: str = FILE_NAME) -> bytes | None:
    """The content of the folder's file, None if it does not exist; OSError if the disk does not return it."""
    path = os.path.join(folder, name)  # noqa: PTH118 - shown as text
    try:
        # A pipe of that name would block us.
        if not stat.S_ISREG(os.stat(path).st_mode):  # noqa: PTH116
            raise ValueError("it is no regular file")
        with open(path, "rb") as file:  # noqa: PTH123
            return file.read()
    except FileNotFoundError:
        return None
    except OSError as error:
        if error.errno in REFUSED_READS:
            text = f"failed to read metadata from {path} - {os_error(error)}"
            raise OptionsError(text) from None
        raise


def keep_aside(folder: str, name: str = FILE_NAME) -> str:
    """Give the file a name of its own before it is replaced; OSError."""
    path = os.path.join(folder, name)  # noqa: PTH118
    for number in itertools.count():
        aside = f"{path}.bad.{number}" if number else f"{path}.bad"
        if not os.path.lexists(aside):
            try:
                os.link(path, aside, follow_symlinks=False)
            except OSError as error:
                if error.errno not in NO_SECOND_NAME:
                    raise
                os.rename(path, aside)  # noqa: PTH104
            return os.path.basename(aside)  # noqa: PTH119
        if os.path.lexists(path) and os.path.samestat(os.lstat(path), os.lstat(aside)):
            return os.path.basename(aside)  # noqa: PTH119 - by a start that could not replace it
    raise AssertionError("numbers do not end")


def remove_leftovers(folder: str) -> None:
    """Remove temporary files of a killed broker."""
    with os.scandir(folder) as files:
        names = [
            file.name
            for file in files
            if file.name.endswith(".tmp") and LEFTOVER.fullmatch(file.name) and file.is_file()
        ]
    for name in names:
        with contextlib.suppress(OSError):
            os.unlink(os.path.join(folder, name))  # noqa: PTH108, PTH118


def write(folder: str, data: bytes, name: str = FILE_NAME) -> None:
    """Replace the file; OSError if that fails, in which case the old one is still there."""
    path = os.path.join(folder, name)  # noqa: PTH118
    with _written_beside(path, data, is_synced=True) as temporary:
        os.rename(temporary, path)  # noqa: PTH104
    sync_folder(Path(folder))


def try_writing(folder: str, data: bytes) -> None:
    """Check that `write` would find room for the file; OSError if not."""
    path = os.path.join(folder, FILE_NAME)  # noqa: PTH118
    with _written_beside(path, data, is_synced=False) as temporary:
        os.unlink(temporary)  # noqa: PTH108


def refuse_folder(folder: str) -> None:
    """Raise OptionsError if we may not write to the folder: accepted messages would be lost at the end.

    A full disk is no reason to refuse, since consumers can make room.
    """
    try:
        try_writing(folder, b"")
    except OSError as error:
        if error.errno in REFUSED_WRITES:
            raise OptionsError(
                f"{folder} cannot be written to - {os_error(error)}{describe_remedy(folder, error)}"
            ) from None


@contextlib.contextmanager
def _written_beside(path: str, data: bytes, *, is_synced: bool) -> Iterator[str]:
    """Write a temporary file with that content; it is removed if anything fails."""
    temporary = f"{path}.{random.randrange(1 << 63)}.tmp"  # noqa: S311 - a name, no secret
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(data)
            file.flush()
            if is_synced:
                os.fsync(file.fileno())
        yield temporary
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(temporary)  # noqa: PTH108
        raise


# The text of nsqd.dat for the current topics, made a part at a time, and only for the parts that changed.
#
# Topics are sorted by name into blocks, each with its text. A change marks its block, so one more topic among a hundred
# thousand costs the text of about fifty.

BLOCK_COUNT_MAX = 64  # topics per block
CHANNEL_COUNT = 64  # channels of a topic in one piece of text
_BOOL = {False: "false", True: "true"}


class _Block:
    """Neighbours by name, and their text in the file."""

    __slots__ = ("is_changed", "names", "text")

    def __init__(self, names: list[str]) -> None:
        self.names = names
        self.text = b""
        self.is_changed = True


class Listing:
    """The text for all topics and channels that are not ephemeral."""

    def __init__(self, topics: "Topics") -> None:
        self._topics = topics
        self._by_name: dict[str, Any] = {}  # those that are listed
        self._blocks: list[_Block] = []
        self._firsts: list[str] = []  # first name of each block
        self._texts: list[bytes] = []
        self._is_known = False  # whether the blocks hold the current topics

    def note_all(self) -> None:
        """Mark everything as changed."""
        self._is_known = False

    def note(self, kind: str, name: str) -> None:
        """A topic that is not ephemeral, or one of its channels, was created or removed."""
        if not self._is_known:
            return
        if kind == "topic+":
            self._by_name[name] = self._topics.ensure(name)
        elif name not in self._by_name:
            return
        block = self._blocks[max(bisect_right(self._firsts, name) - 1, 0)]
        block.is_changed = True
        place = bisect_left(block.names, name)
        is_listed = place < len(block.names) and block.names[place] == name
        if kind == "topic+" and not is_listed:
            block.names.insert(place, name)
        elif kind == "topic-":
            del self._by_name[name]
            if is_listed:
                del block.names[place]

    def write(self) -> Iterator[None]:
        """Make the texts that changed, one piece per step; changes between two steps are left for the next time."""
        if not self._is_known:
            topics = [topic for topic in self._topics.sorted() if not topic.ephemeral]
            self._by_name = {topic.name: topic for topic in topics}
            self._blocks = [_Block(list(self._by_name))]
            self._is_known = True
        self._arrange()
        blocks = self._blocks
        for block in blocks:
            if block.is_changed:
                yield from self._write_block(block)
        self._texts = [block.text for block in blocks if block.text]

    def text(self) -> bytes:
        """The file's content as of the last completed `write`."""
        topics = b",".join(self._texts)
        return b'{"topics":%b,"version":"%b"}' % (
            b"[%b]" % topics if topics else b"null",
            NSQ_VERSION.encode(),
        )

    def _arrange(self) -> None:
        """Split blocks that grew, drop empty ones."""
        blocks: list[_Block] = []
        for block in self._blocks:
            if len(block.names) <= BLOCK_COUNT_MAX:
                blocks += [block] if block.names else []
                continue
            size = BLOCK_COUNT_MAX // 2
            starts = range(0, len(block.names), size)
            blocks += [_Block(block.names[start : start + size]) for start in starts]
        self._blocks = blocks or [_Block([])]
        self._firsts = [block.names[0] if block.names else "" for block in self._blocks]

    def _write_block(self, block: _Block) -> Iterator[None]:
        block.is_changed = False
        texts = []
        for name in list(block.names):
            topic = self._by_name.get(name)
            if topic is None:
                continue
            pieces = []
            for piece in topic_pieces(topic):
                pieces.append(piece)
                yield
            texts.append("".join(pieces))
        block.text = ",".join(texts).encode()


def topic_pieces(topic: Any) -> Iterator[str]:
    """The text of one topic. Valid names need no escapes."""
    channels = [channel for channel in topic.channels() if not channel.ephemeral]
    head = f'{{"name":"{topic.name}","paused":{_BOOL[topic.paused]},"channels":'
    if not channels:
        yield head + "null}"
        return
    yield head + "["
    for start in range(0, len(channels), CHANNEL_COUNT):
        some = channels[start : start + CHANNEL_COUNT]
        entries = [f'{{"name":"{each.name}","paused":{_BOOL[each.paused]}}}' for each in some]
        yield ("," if start else "") + ",".join(entries)
    yield "]}"
