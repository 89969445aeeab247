"""Files of JSON lines that somebody may be writing."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from support.waiting import wait_until

if TYPE_CHECKING:
    from pathlib import Path


def wait_for_entries(path: Path, action: str, topic: str, count: int = 1) -> list[Any]:
    """Lines of an audit, so many at least; they come a moment after the answer."""

    def found() -> list[Any]:
        every = read_json_lines(path) if path.exists() else []
        return [e for e in every if e["action"] == action and e["target"].get("topic") == topic]

    wait_until(lambda: len(found()) >= count, f"{action} of {topic} in the audit")
    return found()


def read_json_lines(path: Path) -> list[Any]:
    """Those that are whole: what stands behind the last end of a line is still being written."""
    whole, _, _ = path.read_bytes().rpartition(b"\n")
    return [json.loads(line) for line in whole.splitlines()]
