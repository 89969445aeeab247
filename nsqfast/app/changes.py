"""Sources of a program that change, found by a look at all of them now and then."""

import asyncio
import os
from pathlib import Path

LOOK_S = 0.5
# Folders with other people's sources, and without any.
LEFT_OUT = frozenset({"__pycache__", "node_modules", "site-packages"})


def find_sources(folder: Path) -> dict[str, int]:
    """Each .py file below the folder, with the time of its last change."""
    found = {}
    for place, folders, files in os.walk(folder):
        folders[:] = [each for each in folders if each[0] != "." and each not in LEFT_OUT]
        for name in files:
            if name.endswith(".py"):
                path = Path(place, name)
                try:
                    found[str(path)] = path.stat().st_mtime_ns
                except OSError:  # removed, or a link to nothing
                    continue
    return found


class Changes:
    """Compares with what was found before."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._known = find_sources(folder)

    async def wait(self) -> str:
        """Return the path of one that has changed, once there is one."""
        while True:
            await asyncio.sleep(LOOK_S)
            found = await asyncio.to_thread(find_sources, self._folder)
            changed = dict(found.items() ^ self._known.items())
            self._known = found
            if changed:
                return min(changed)
