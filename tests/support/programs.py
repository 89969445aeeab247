"""Runs the programs in examples/ as a user would, and looks at what they leave at the broker."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any, Self

from nsqfast.client.sync import Producer
from support.server import ROOT
from support.web import topic_stats

if TYPE_CHECKING:
    from pathlib import Path

    from support.server import Server

EXAMPLES = ROOT / "examples"
SECONDS_MAX = 50


def command(name: str, *arguments: object) -> list[str]:
    return [sys.executable, str(EXAMPLES / name), *map(str, arguments)]


def publish(address: str, topic: str, *bodies: bytes) -> None:
    with Producer(address) as producer:
        producer.publish_many(topic, bodies)


def left(broker: Server, topic: str, channel: str = "c") -> int:
    """What the channel still holds, wherever it is."""
    found: dict[str, Any] = topic_stats(broker.http, topic)["channels"][channel]
    names = ("depth", "in_flight_count", "deferred_count")
    return sum(int(found[name]) for name in names)


def heed_interrupts() -> None:
    """A shell has those that it starts in the background ignore SIGINT, and tests would hand that on."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


class Program:
    """One that runs until it is told to end; `lines` are what it has said so far, on both outputs."""

    def __init__(self, *command: str, cwd: Path = ROOT, **environment: str) -> None:
        self.lines: list[str] = []
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=cwd,
            env=os.environ | {"PYTHONUNBUFFERED": "1"} | environment,
            preexec_fn=heed_interrupts,  # noqa: PLW1509 - it sets one signal
            text=True,
        )

    def read_until(self, pattern: str) -> re.Match[str]:
        """Read on to a line in which that is found."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line.rstrip("\n"))
            if found := re.search(pattern, line):
                return found
        raise AssertionError(f"no {pattern!r} in:\n{self.text}")

    def end(self, number: int | None = signal.SIGTERM) -> int:
        """Send the signal, if any; return how the program ended, with all that it said in `lines`."""
        assert self.process.stdout is not None
        if number is not None:
            self.process.send_signal(number)
        self.lines += self.process.stdout.read().splitlines()
        return self.process.wait(SECONDS_MAX)

    @property
    def text(self) -> str:
        return "\n".join(self.lines)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()
