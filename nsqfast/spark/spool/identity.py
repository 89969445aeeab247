"""The identity of a spool: the subscription that filled it, and a unique epoch.

A checkpoint names the epoch. So a checkpoint of another spool, or of one that was deleted and created again, is
detected before its numbers are taken for those of other messages.
"""

import contextlib
import fcntl
import json
import os
import socket
import uuid
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

from nsqfast.errors import NsqfastError
from nsqfast.program.durable import PRIVATE_FOLDER_MODE, open_private, sync_folder
from nsqfast.wire.gotext import os_error

VERSION = 1
FILE = "SPOOL.json"


class SpoolError(NsqfastError):
    """The operator has to change something; one line says what."""


@dataclass(frozen=True, slots=True)
class Identity:
    """`subscription` is either topics, sorted and separated by commas, or /pattern/."""

    subscription: str
    channel: str
    epoch: str


def list_subscription(topics: list[str]) -> str:
    """Return the subscription to those topics."""
    return ",".join(sorted(set(topics)))


def read_identity(spool: Path) -> Identity | None:
    """None if there is no spool in that folder, or no folder; SpoolError if it cannot be read."""
    path = spool / FILE
    try:
        fields = json.loads(path.read_bytes())
        if fields.pop("version") != VERSION:
            raise SpoolError(f"{path} is of another version of nsqfast; use another folder")
        return Identity(**fields)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise SpoolError(f"{path}: {os_error(error)}") from None
    except (ValueError, KeyError, TypeError, AttributeError):
        raise SpoolError(f"{path} cannot be read; use another folder for the spool") from None


def open_spool(spool: Path, subscription: str, channel: str) -> Identity:
    """Return the identity of that spool, created if need be; SpoolError if it is another subscription's."""
    try:
        spool.mkdir(PRIVATE_FOLDER_MODE, parents=True, exist_ok=True)
        identity = read_identity(spool) or _create(spool, subscription, channel)
    except OSError as error:
        raise SpoolError(f"spool {spool}: {os_error(error)}") from None
    if (identity.subscription, identity.channel) != (subscription, channel):
        raise SpoolError(
            f"spool {spool} holds {identity.subscription} of channel {identity.channel}, not {subscription} of channel"
            f" {channel}: each subscription has a spool (and a checkpoint) of its own"
        )
    return identity


def _create(spool: Path, subscription: str, channel: str) -> Identity:
    """Return a new one, or that of a concurrent process that was faster."""
    identity = Identity(subscription, channel, str(uuid.uuid4()))
    draft = spool / f".{FILE}.{identity.epoch}"
    try:
        with open(draft, "x", opener=open_private) as file:
            json.dump({"version": VERSION} | asdict(identity), file)
            file.flush()
            os.fsync(file.fileno())
        with contextlib.suppress(FileExistsError):
            os.link(draft, spool / FILE)
    finally:
        draft.unlink(missing_ok=True)
    sync_folder(spool)
    sync_folder(spool.parent)
    found = read_identity(spool)
    assert found is not None
    return found


QUERY = "QUERY.lock"
RECEIVER = "LOCK"
_HOLDER_SIZE = 200


def is_held(path: Path) -> bool:
    """Whether a living process has it."""
    try:
        fd = os.open(path, os.O_RDONLY)
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False


class Lock:
    """Locked from `take` until `release` or the end of the process."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    @classmethod
    def take(cls, path: Path, what: str) -> Self:
        """SpoolError if a living process has it; `what` begins that line, the owner's process ends it."""
        try:
            fd = open_private(path, os.O_RDWR | os.O_CREAT)
        except OSError as error:
            raise SpoolError(f"{path}: {os_error(error)}") from None
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(fd, _HOLDER_SIZE, 0).decode(errors="replace").strip()
            os.close(fd)
            raise SpoolError(f"{what} ({holder or 'another process'})") from None
        os.ftruncate(fd, 0)
        os.pwrite(fd, f"process {os.getpid()} on {socket.gethostname()}\n".encode(), 0)
        return cls(fd)

    def release(self) -> None:
        """Unlock; a second call does nothing."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
