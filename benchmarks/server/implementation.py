"""The brokers that can be compared: how to start each, and what to report if one is missing."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
NSQFAST, GO = "nsqfast", "go"
NO_GO = (
    "There is no Go nsqd here, so its columns are empty: run `make go-nsq`, "
    "or set NSQFAST_GO_NSQD to an nsqd 1.3.0."
)


@dataclass(frozen=True, slots=True)
class Implementation:
    """A program that speaks NSQ's protocol and accepts the flags of its Go counterpart."""

    name: str
    command: tuple[str, ...]


def go_nsqd() -> Path | None:
    """Return Go's nsqd: the one that was named, else the one that `make go-nsq` built, else None."""
    named = os.environ.get("NSQFAST_GO_NSQD")
    if named:
        path = Path(named)
    else:
        folder = os.environ.get("NSQ_GO_BIN")
        path = (Path(folder) if folder else ROOT / ".go-nsq") / "nsqd"
    return path.resolve() if path.is_file() else None


def go_tool(name: str) -> Path | None:
    """Return another of Go's programs, from the same folder as its nsqd."""
    nsqd = go_nsqd()
    path = nsqd.with_name(name) if nsqd else None
    return path if path and path.is_file() else None


def implementations(program: str = "nsqd") -> list[Implementation]:
    """nsqfast first, then Go's if there is one."""
    found = [Implementation(NSQFAST, (sys.executable, "-m", f"nsqfast.{program}.main"))]
    theirs = go_nsqd() if program == "nsqd" else go_tool(program)
    if theirs:
        found.append(Implementation(GO, (str(theirs),)))
    return found


def go_version() -> str | None:
    """Return the version that Go's nsqd prints, such as "nsqd v1.3.0 (built w/go1.22.2)"."""
    nsqd = go_nsqd()
    if nsqd is None:
        return None
    said = subprocess.run([nsqd, "--version"], capture_output=True, text=True, check=True).stdout
    return re.sub(r"\s+", " ", said).strip()
