"""What a broker says of a fault: its lines, and /ping."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from support.web import get

if TYPE_CHECKING:
    from support.server import Server


def complaints(server: Server) -> list[str]:
    """Its lines that are no INFO, without the time; a traceback fails the test."""
    assert "Traceback" not in server.stderr, server.stderr
    return [line for line in server.lines if " INFO: " not in line]


def only_complaint(server: Server) -> str:
    found = complaints(server)
    assert len(found) == 1, server.stderr
    return found[0]


def wait_for_ping(server: Server, status: int, seconds_max: float = 50.0) -> str:
    """What /ping says once it has that status."""
    end = time.monotonic() + seconds_max
    while (answer := get(server.http, "/ping")).status != status:
        assert time.monotonic() < end, answer
    return answer.body.decode()
