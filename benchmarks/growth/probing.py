"""Runs the probe beside work on a broker."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from server.loads import Sample

PROGRAM = Path(__file__).with_name("probe.py")
LEAST_SECONDS = 0.3  # some hundred answers, however short the work is


class Probed:
    """`sample` has the figures after the block."""

    def __init__(self, address: str, kind: str = "nsqd") -> None:
        self.sample: Sample = {}
        self._process = subprocess.Popen(
            [sys.executable, str(PROGRAM), kind, address],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> Self:
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "ready\n"
        self._begun_s = time.monotonic()
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is not None:
            self._process.kill()
            self._process.communicate()
            return
        seconds = time.monotonic() - self._begun_s
        time.sleep(max(0.0, LEAST_SECONDS - seconds))
        said, _ = self._process.communicate()
        self.sample = json.loads(said) | {"seconds": seconds}
