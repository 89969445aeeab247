"""What a broker says of a fault: its lines, and /ping."""

from __future__ import annotations

from typing import TYPE_CHECKING

from support.waiting import wait_until
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


def wait_for_ping(server: Server, status: int) -> str:
    """What /ping says once it has that status."""

    def ask() -> str | None:
        answer = get(server.http, "/ping")
        return answer.body.decode() if answer.status == status else None

    return wait_until(ask, lambda: get(server.http, "/ping")) or ""
