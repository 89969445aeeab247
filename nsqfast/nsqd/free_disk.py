"""--min-free-disk: new messages are refused before the disk of the data path is full.

    refuses      PUB, MPUB and DPUB by E_PUB_FAILED and its kin, HTTP by 503 DISK_FULL: clients try another broker
    says so      /ping is NOK, as when a write has failed

Consumers go on, and make room; what they do (a requeue, a deferred message) is written as before. Messages are taken
again when a tenth more than the limit is free, so that the broker does not change its mind with each file.
"""

import asyncio
import logging
import os

from nsqfast._ext.storage.health import Health

log = logging.getLogger("nsqd")

CHECK_S = 1.0
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
            await asyncio.sleep(CHECK_S)
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
