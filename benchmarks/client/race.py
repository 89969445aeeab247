"""The available client libraries, and one run of one of them: a process of its own, all on the same broker."""

from __future__ import annotations

import importlib.metadata
import json
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from nsqfast.client.sync import Producer
from server.implementation import ROOT

if TYPE_CHECKING:
    from server.broker import Broker

DRIVERS = Path(__file__).resolve().parent / "drivers"
SIZE = 200
IN_FLIGHT = 256
SECONDS_MAX = 120
# Name and package on PyPI, and the loads that they do not support: they all need an event loop.
PYTHON_CLIENTS = (("pynsq", "pynsq"), ("ansq", "ansq"), ("asyncnsq", "asyncnsq"))
CANNOT = ("pub_piped", "consume_arrays", "pub_one_sync", "consume_sync")
# Go's has no event loop: its results one at a time are in the rows above.
GO_CANNOT = ("consume_arrays", "pub_one_sync", "consume_sync")
OURS, GO = "nsqfast", "go-nsq"

Sample = dict[str, float]


@dataclass(frozen=True, slots=True)
class Client:
    """A driver that can be run."""

    name: str
    version: str
    command: tuple[str, ...]
    cannot: tuple[str, ...] = ()


def clients() -> tuple[list[Client], list[str]]:
    """Return the available ones, ours first, and a line for each of the others."""
    ours = (sys.executable, str(DRIVERS / "drive_nsqfast.py"))
    found, missing = [Client(OURS, importlib.metadata.version("nsqfast"), ours)], []
    program = ROOT / ".go-nsq" / "client_driver"
    if program.is_file():
        found.append(Client(GO, go_version(), (str(program.resolve()),), GO_CANNOT))
    else:
        missing.append(f"{GO} is not here: make go-client")
    for name, package in PYTHON_CLIENTS:
        try:
            version = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            missing.append(f"{name} is not here: pip install --group bench-clients")
            continue
        command = (sys.executable, str(DRIVERS / f"drive_{name}.py"))
        found.append(Client(name, version, command, CANNOT))
    return found, missing


def go_version() -> str:
    """Return the version of go-nsq that the Go driver is built with."""
    text = (DRIVERS.parent / "go" / "go.mod").read_text(encoding="utf-8")
    found = re.search(r"go-nsq v(\S+)", text)
    assert found is not None
    return found[1]


def run(client: Client, broker: Broker, scenario: str, topic: str, count: int) -> Sample:
    """Run it once; a consumer's messages are published before."""
    broker.create(topic, ("channel",))
    if scenario.startswith("consume"):
        fill(broker.tcp, topic, count)
    arguments = [scenario, broker.tcp, topic, str(count), str(SIZE)]
    done = subprocess.run(
        [*client.command, *arguments],
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )
    lines = done.stdout.splitlines()
    if done.returncode or not lines:
        raise RuntimeError(f"{client.name}, {scenario}:\n{done.stdout}{done.stderr}")
    said = json.loads(lines[-1])
    check(broker, scenario, topic, count)
    broker.delete(topic)
    return {
        "rate": said["messages"] / said["seconds"],
        "cpu_us": said["cpu_seconds"] / said["messages"] * 1e6,
    }


def fill(address: str, topic: str, count: int) -> None:
    """Make a backlog in memory."""
    with Producer(address) as producer:
        for _ in range(count // 100):
            producer.publish_many(topic, [b"x" * SIZE] * 100)


def check(broker: Broker, scenario: str, topic: str, count: int) -> None:
    """Check that it did what it reported."""
    if scenario.startswith(("pub", "mpub")):
        broker.wait_queued(topic, count)
        return
    # Some drivers end before their last FINs were sent.
    left = ("depth", "in_flight_count", "deferred_count")
    broker.wait_for(
        topic,
        lambda found: (
            found["message_count"] == count
            and sum(found["channels"][0][name] for name in left) <= IN_FLIGHT
        ),
    )
