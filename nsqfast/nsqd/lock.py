"""One broker per data folder: an exclusive flock on the folder itself, as in Go's nsqd.

So no two brokers, ours or Go's, can open the same files. The kernel releases the lock when the process ends, however it
ends.
"""

import fcntl
import os

from nsqfast.errors import OptionsError
from nsqfast.gotext import os_error


class DirectoryLock:
    """Held from construction to release."""

    def __init__(self, path: str) -> None:
        path = path or os.getcwd()  # noqa: PTH109 - shown to the operator as text
        try:
            self._fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise OptionsError(
                f"failed to lock data-path: open {path}: {os_error(error)}"
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
