"""Files of JSON lines that somebody may be writing."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path


def read_json_lines(path: Path) -> list[Any]:
    """Those that are whole: what stands behind the last end of a line is still being written."""
    whole, _, _ = path.read_bytes().rpartition(b"\n")
    return [json.loads(line) for line in whole.splitlines()]
