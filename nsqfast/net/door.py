"""Makes what serves a connection, and counts who came in."""

from collections.abc import Callable
from typing import Any


class Door:
    """Of one listener: asyncio calls it for each connection it accepted. `open_count` says how many are there now."""

    def __init__(self, make: Callable[[], Any], open_count: Callable[[], int]) -> None:
        self.accepted_count = 0
        self.open_count = open_count
        self._make = make

    def __call__(self) -> Any:
        self.accepted_count += 1
        return self._make()
