"""One broker per data folder: an exclusive flock on the folder itself, as in Go's nsqd.

So no two brokers, ours or Go's, can open the same files. The kernel releases the lock when the process ends, however it
ends.
"""

import errno
import fcntl
import os
import shlex

from nsqfast.errors import OptionsError
from nsqfast.wire.gotext import os_error

_ADVICE = {
    errno.ENOENT: "mkdir -p {path}, or give --data-path another folder",
    errno.ENOTDIR: "give --data-path a folder",
    errno.EACCES: "chown {user} {path}, as nsqd runs as this user, or give --data-path another folder",
    errno.EROFS: "mount it for writing, or give --data-path another folder",
}


def advise(path: str, error: OSError) -> str:
    """What the operator can do about a data folder that is refused for this error, after a colon; or nothing."""
    text = _ADVICE.get(error.errno or 0, "").format(path=shlex.quote(path), user=os.geteuid())
    return f": {text}" if text else ""


class DirectoryLock:
    """Held from construction to release."""

    def __init__(self, path: str) -> None:
        path = path or os.getcwd()  # noqa: PTH109 - shown to the operator as text
        try:
            self._fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise OptionsError(
                f"failed to lock data-path: open {path}: {os_error(error)}{advise(path, error)}"
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
