"""What the drivers share: their arguments and the line that they print.

python DRIVER SCENARIO HOST:PORT TOPIC COUNT SIZE
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

IN_FLIGHT = 256
OUTSTANDING = 100
BATCH = 100
CHANNEL = "channel"


class Load(NamedTuple):
    """The load to run."""

    scenario: str
    host: str
    port: int
    topic: str
    count: int
    body: bytes

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"


def arguments() -> Load:
    """Parse the command line."""
    scenario, address, topic, count, size = sys.argv[1:]
    host, port = address.split(":")
    return Load(scenario, host, int(port), topic, int(count), b"x" * int(size))


class Watch:
    """Measures from here to `stop`."""

    def __init__(self, load: Load) -> None:
        self._load = load
        self._cpu_ns = time.process_time_ns()
        self._start_ns = time.perf_counter_ns()

    def stop(self) -> None:
        """Print what it took."""
        print(
            json.dumps(
                {
                    "messages": self._load.count,
                    "seconds": (time.perf_counter_ns() - self._start_ns) / 1e9,
                    "cpu_seconds": (time.process_time_ns() - self._cpu_ns) / 1e9,
                }
            ),
            flush=True,
        )


async def publish_many(
    publish: Callable[[], Awaitable[object]], count: int, outstanding: int
) -> None:
    """Keep so many publishes in progress, each in a task that waits for its answer."""
    left = count

    async def work() -> None:
        nonlocal left
        while left > 0:
            left -= 1
            await publish()

    await asyncio.gather(*[work() for _ in range(outstanding)])
