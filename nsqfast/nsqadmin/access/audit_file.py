"""--audit-file: a thread appends lines, one batch after the other."""

import asyncio
import logging
import os
from typing import Final

from nsqfast.errors import OptionsError
from nsqfast.wire.gotext import os_error

log = logging.getLogger("nsqadmin")

LINES_MAX: Final = 10_000  # waiting while the disk does not answer
MODE: Final = 0o640


class AuditFile:
    """Opened anew for each batch, so that the file may be renamed at any time (logrotate needs no signal)."""

    def __init__(self, path: str) -> None:
        """OptionsError if it cannot be opened."""
        self._path = path
        self._lines: list[bytes] = []
        self._lost = 0
        self._is_torn = False
        self._task: asyncio.Task[None] | None = None
        try:
            os.close(self._open())
        except OSError as error:
            raise OptionsError(f"failed to open --audit-file {path}: {os_error(error)}") from None

    def add(self, line: bytes) -> None:
        """Add one line with its newline, without waiting; a line that cannot be kept is counted and logged."""
        if len(self._lines) >= LINES_MAX:
            self._lost += 1
            return
        self._lines.append(line)
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._write_all())

    async def close(self, wait_s: float) -> None:
        """Write waiting lines, but not for longer than this."""
        if self._task is not None:
            await asyncio.wait([self._task], timeout=wait_s)

    async def _write_all(self) -> None:
        while self._lines:
            batch, self._lines = self._lines, []
            try:
                await asyncio.to_thread(self._append, b"".join(batch))
            except OSError as error:
                self._lost += len(batch)
                log.error(  # noqa: TRY400 - the disk's fault
                    "%s: %s; %d lines are lost", self._path, os_error(error), self._lost
                )
            else:
                self._report_lost()

    def _report_lost(self) -> None:
        if self._lost:
            log.error("%s: can be written again; %d lines are lost", self._path, self._lost)
            self._lost = 0

    def _append(self, data: bytes) -> None:
        file = self._open()
        try:
            if self._is_torn:
                data = b"\n" + data
            rest = memoryview(data)
            while rest:
                self._is_torn = len(rest) < len(data)
                rest = rest[os.write(file, rest) :]
            self._is_torn = False
        finally:
            os.close(file)

    def _open(self) -> int:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        return os.open(self._path, flags, MODE)
