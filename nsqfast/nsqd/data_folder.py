"""The data folder of a broker: who may open it, how much is free there, and how the run before this one ended."""

import asyncio
import contextlib
import errno
import fcntl
import logging
import os
import shlex
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import orjson

from nsqfast._ext.broker.shutdown import count_unstored
from nsqfast._ext.broker.topics import Topics
from nsqfast._ext.storage.health import Health
from nsqfast.errors import OptionsError
from nsqfast.program.durable import sync_folder
from nsqfast.wire.gotext import os_error

log = logging.getLogger("nsqd")

_ADVICE = {
    errno.ENOENT: "mkdir -p {path}, or give --data-path another folder",
    errno.ENOTDIR: "give --data-path a folder",
    errno.EACCES: "chown {user} {path}, as nsqd runs as this user, or give --data-path another folder",
    errno.EROFS: "mount it for writing, or give --data-path another folder",
}


def describe_remedy(path: str, error: OSError) -> str:
    """What the operator can do about a data folder that is refused for this error, after a colon; or nothing."""
    text = _ADVICE.get(error.errno or 0, "").format(path=shlex.quote(path), user=os.geteuid())
    return f": {text}" if text else ""


class DirectoryLock:
    """One broker per data folder: an exclusive flock on the folder itself, as in Go's nsqd, held until `release`.

    So no two brokers, ours or Go's, can open the same files. The kernel releases the lock when the process ends,
    however it ends.
    """

    def __init__(self, path: str) -> None:
        path = path or os.getcwd()  # noqa: PTH109 - shown to the operator as text
        try:
            self._fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise OptionsError(
                f"failed to lock data-path: open {path}: {os_error(error)}{describe_remedy(path, error)}"
            ) from None
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._fd)
            raise OptionsError(
                f"failed to lock data-path: cannot flock directory {path} - {os_error(error)} "
                "(possibly in use by another instance of nsqd)"
            ) from None

    def release(self) -> None:
        """Release the lock; a second call does nothing."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


# --min-free-disk: new messages are refused before the disk of the data path is full.
#
#     refuses      PUB, MPUB and DPUB by E_PUB_FAILED and its kin, HTTP by 503 DISK_FULL: clients try another broker
#     says so      /ping is NOK, as when a write has failed
#
# Consumers go on, and make room; what they do (a requeue, a deferred message) is written as before. Messages are taken
# again when a tenth more than the limit is free, so that the broker does not change its mind with each file.

FREE_DISK_CHECK_S = 1.0
RESUME_SHARE = 1.1


class FreeDisk:
    """Watches from `begin` to `close`; without a limit it does nothing."""

    def __init__(self, health: Health, folder: str, bytes_min: int) -> None:
        self._health = health
        self._folder = folder or "."
        self._bytes_min = bytes_min
        self._watch: asyncio.Task[None] | None = None
        self._error = ""

    async def begin(self) -> None:
        """It is known on return whether messages are taken."""
        if self._bytes_min:
            await self._look()
            self._watch = asyncio.get_running_loop().create_task(self._look_again())

    def close(self) -> None:
        """Stop watching."""
        if self._watch is not None:
            self._watch.cancel()

    async def _look_again(self) -> None:
        while True:
            await asyncio.sleep(FREE_DISK_CHECK_S)
            await self._look()

    async def _look(self) -> None:
        try:
            # A file system in the network may make us wait.
            found = await asyncio.to_thread(os.statvfs, self._folder)
        except OSError as error:
            if str(error) != self._error:
                self._error = str(error)
                log.warning("DISK: how much is free cannot be told: %s", error)
            return
        self._judge(found.f_bavail * found.f_frsize)

    def _judge(self, free_bytes: int) -> None:
        health = self._health
        if health.low_disk is None and free_bytes < self._bytes_min:
            text = f"less than --min-free-disk ({self._bytes_min} bytes) is free on the disk"
            health.low_disk = text
            log.error("DISK: %s (%d); new messages are refused", text, free_bytes)
        elif health.low_disk is not None and free_bytes >= self._bytes_min * RESUME_SHARE:
            health.low_disk = None
            log.warning("DISK: %d bytes are free, new messages are taken again", free_bytes)


# nsqfast.running in the data folder: it is there while nsqd runs, so that the next start knows of a kill.
#
#     {"unclean_starts": 0, "messages": 30000}
#
# `messages` are those that are only in memory, as a look each second finds them; a kill -9 leaves the last number, a
# power cut perhaps an older one. Spaces fill the file up to RUN_FILE_SIZE, so that each number replaces the one before
# in one write.
RUN_FILE_SIZE = 128  # bytes
RUN_FILE_INTERVAL_S = 1.0
TOPICS_AT_ONCE = 256  # counted in a tenth of a millisecond
COUNT_MAX = 1 << 53


class RunFile:
    """Of one run."""

    def __init__(self, folder: str, topics: Topics) -> None:
        self.unclean_starts = 0  # in a row, this one included
        self.is_lossy = False  # the run before was killed, and nobody has acknowledged that yet
        self.lost_count: int | None = 0  # messages that it had only in memory; None: not known
        self._path = Path(folder, "nsqfast.running")
        self._topics = topics
        self._written = b""
        self._task: asyncio.Task[None] | None = None
        # A thread writes, for a file system that is busy may let us wait for a page.
        self._thread = ThreadPoolExecutor(1, "run file")

    def begin(self) -> None:
        """Say what became of the run before this one; from now on this one is known."""
        self._read()
        try:
            self._create()
        except OSError as error:
            log.warning(
                "%s: %s; the next start will not know of a kill", self._path, os_error(error)
            )
        else:
            self._task = asyncio.get_running_loop().create_task(self._watch())

    def acknowledge(self) -> None:
        """Somebody knows of the loss."""
        self.is_lossy, self.lost_count = False, 0

    def end(self) -> None:
        """Nothing is in memory any more; what a full disk did not take, the stop itself has told."""
        self._thread.shutdown()
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(OSError):
                # A power cut may bring the file back.
                _store(self._path, self._content(0), is_synced=True)
                self._path.unlink()

    def _read(self) -> None:
        try:
            # What is there may be a pipe, or a link.
            with open(self._path, "rb", opener=_open_own) as file:
                starts, self.lost_count = _decode(file.read(RUN_FILE_SIZE))
        except FileNotFoundError:
            return
        except OSError:
            starts, self.lost_count = 0, None
        self.unclean_starts, self.is_lossy = starts + 1, True
        log.warning("NSQ: the run before this one did not stop cleanly: %s", _loss(self.lost_count))

    def _create(self) -> None:
        temporary = self._path.with_name(self._path.name + ".tmp")
        self._written = self._content(0)
        _store(temporary, self._written, os.O_CREAT | os.O_TRUNC, is_synced=True)
        temporary.rename(self._path)
        sync_folder(self._path.parent)

    def _content(self, messages: int) -> bytes:
        text = orjson.dumps({"unclean_starts": self.unclean_starts, "messages": messages})
        return text.ljust(RUN_FILE_SIZE - 1) + b"\n"

    async def _watch(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            content = self._content(await self._count())
            if content != self._written:
                self._written = content
                await loop.run_in_executor(self._thread, self._write, content)
            await asyncio.sleep(RUN_FILE_INTERVAL_S)

    def _write(self, content: bytes) -> None:
        with contextlib.suppress(OSError):  # on a full disk it has its block already
            _store(self._path, content)

    async def _count(self) -> int:
        topics, count = self._topics.sorted(), 0
        for first in range(0, len(topics), TOPICS_AT_ONCE):
            if first:
                await asyncio.sleep(0)  # others are served before the next part
            count += count_unstored(topics[first : first + TOPICS_AT_ONCE])
        return count


def _open_own(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK | os.O_NOFOLLOW)


def _store(path: Path, content: bytes, flags: int = 0, *, is_synced: bool = False) -> None:
    """It is open no longer than this takes: nothing of nsqd's hinders an operator who remounts the disk read-only."""
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW | flags, 0o600)
    try:
        os.pwrite(fd, content, 0)
        if is_synced:
            os.fsync(fd)
    finally:
        os.close(fd)


def _decode(data: bytes) -> tuple[int, int | None]:
    """Unclean starts, and messages; None: not known."""
    try:
        found = orjson.loads(data)
        starts, messages = found["unclean_starts"], found["messages"]
    except (ValueError, KeyError, TypeError):
        return 0, None
    if any(type(each) is not int or not 0 <= each < COUNT_MAX for each in (starts, messages)):
        return 0, None
    return starts, messages


def _loss(count: int | None) -> str:
    if count is None:
        return "how many messages were only in memory, and are lost, is not known"
    if not count:
        return "no message was only in memory"
    return f"up to {count:,} messages were only in memory, and are lost"
