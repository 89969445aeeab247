"""Messages in over HTTP, measured with wrk."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from server.generators import WRK, WRK_CONNECTIONS
from server.loads import publish_http
from server.scenario import MEMORY, Row, at_least, cpu_at_most

if TYPE_CHECKING:
    from server.duel import Duel

TARGETS = {"pub": (at_least(1.4), cpu_at_most(0.65)), "mpub": ()}
MESSAGES = {"pub": 1, "mpub": 20}


@pytest.mark.usefixtures("needs_wrk")
@pytest.mark.parametrize("path", TARGETS)
def bench_http(duel: Duel, path: str) -> None:
    """Keep-alive connections that POST 200 bytes, or twenty lines of them."""
    what = "" if MESSAGES[path] == 1 else f", {MESSAGES[path]} × 200 B"
    row = Row(
        f"HTTP /{path}{what}, {WRK_CONNECTIONS} keep-alive connections",
        WRK,
        MEMORY,
        targets=TARGETS[path],
    )
    seconds = duel.scale.seconds(1.0)
    # wrk counts whole seconds, and what does not stay in memory is no sample.
    flags = ("--mem-queue-size=8000000",)
    duel.run(lambda broker: {row: publish_http(broker, path, MESSAGES[path], seconds)}, flags)
