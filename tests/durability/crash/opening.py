"""Opens a rebuilt data folder with the real code, takes out all there is, and says what is missing.

`Opener` is fast (a forked child per folder) and may live in another boot of the machine; `open_with_program` starts
nsqd itself, ours or Go's, and reads it over sockets: a check of the fast way, and the control.
"""

from __future__ import annotations

import os
import pickle
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

from durability.crash.found import Found, Request
from durability.crash.ledger import topic_of
from durability.crash.modes import ALWAYS
from support.server import ROOT, start_nsqd
from support.web import post, stats, topic_stats
from support.wire import Client

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from durability.crash.boots import Boot
    from durability.crash.ledger import Ledger
    from support.server import Server

# Go counts what it cannot read, so that stillness has to do.
STILL_SECONDS, STILL_ROUNDS = 0.4, 60


class Opener:
    """A prepared process, in the boot that is given or in this one. Not for several threads."""

    def __init__(self, boot: Boot | None = None, preload: str = "") -> None:
        environment = dict(os.environ)
        environment["PYTHONPATH"] = f"{ROOT}{os.pathsep}{ROOT / 'tests'}"
        if preload:
            environment["LD_PRELOAD"] = preload
        self._process = subprocess.Popen(
            [sys.executable, "-m", "durability.crash.nursery"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=ROOT / "tests",
            env=environment,
            preexec_fn=boot.enter if boot else None,  # noqa: PLW1509 - no thread of ours takes locks
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._process.communicate()

    def open(
        self,
        folder: Path,
        flags: tuple[str, ...] = ALWAYS.flags,
        *,
        die_at: int = 0,
        start_only: bool = False,
        is_timed: bool = False,
    ) -> Found:
        """All that comes out of the folder, which is changed by it as by a start and a kill -9."""
        assert self._process.stdin
        assert self._process.stdout
        request = Request(str(folder), flags, die_at, start_only, is_timed)
        pickle.dump(request, self._process.stdin)
        self._process.stdin.flush()
        found = pickle.load(self._process.stdout)
        assert isinstance(found, Found)
        return found


def open_with_program(
    implementation: str,
    folder: Path,
    flags: tuple[str, ...] = ALWAYS.flags,
    prepare: Callable[[], None] | None = None,
) -> Found:
    """The same by a real nsqd ("nsqfast" or "go") that is killed afterwards."""
    found = Found()
    try:
        server = start_nsqd(implementation, folder, *flags, prepare=prepare)
    except AssertionError as error:
        found.error = str(error)
        return found
    try:
        found.is_started = True
        for topic in stats(server.http)["topics"]:
            name = topic["topic_name"]
            channels = [channel["channel_name"] for channel in topic["channels"]] or ["crash"]
            post(server.http, f"/topic/unpause?topic={name}")
            for channel in channels:
                target = f"{name}:{channel}"
                found.bodies[target], found.deferred[target] = _take_all(
                    server, name, channel, STILL_ROUNDS if implementation == "nsqfast" else 1
                )
    finally:
        server.kill()
    return found


def _take_all(server: Server, topic: str, channel: str, rounds: int) -> tuple[list[bytes], int]:
    """What there is, until nothing more came that often, and how many are deferred then."""
    bodies = []
    with Client(server.tcp) as client:
        client.identify(heartbeat_interval=60_000)  # or one would be what comes
        client.sub(topic, channel, 2500)
        for _ in range(rounds):
            while not client.is_still(STILL_SECONDS):
                message = client.read_message()
                client.fin(message)
                bodies.append(message.body)
            found = topic_stats(server.http, topic)
            queue = found["channels"][channel]
            if queue["paused"] or not found["depth"] + queue["depth"] + queue["in_flight_count"]:
                break
    return bodies, queue["deferred_count"]


@dataclass(slots=True)
class Verdict:
    """`missing` and `returned` by target; `foreign` was never published; `broken`: what a log promises besides."""

    missing: dict[str, set[bytes]] = field(default_factory=dict)
    returned: dict[str, set[bytes]] = field(default_factory=dict)
    foreign: set[bytes] = field(default_factory=set)
    broken: list[str] = field(default_factory=list)
    error: str = ""

    @property
    def missing_count(self) -> int:
        return sum(map(len, self.missing.values()))

    @property
    def returned_count(self) -> int:
        return sum(map(len, self.returned.values()))

    def __bool__(self) -> bool:
        """Whether something is wrong."""
        return bool(self.missing or self.returned or self.foreign or self.broken or self.error)

    def __str__(self) -> str:
        return (
            f"missing {_counts(self.missing)}, finished and back {_counts(self.returned)}, "
            f"never published {len(self.foreign)}{', ' + self.error if self.error else ''}"
            f"{', ' + '; '.join(self.broken[:4]) if self.broken else ''}"
        )


def _counts(bodies: dict[str, set[bytes]]) -> str:
    return ", ".join(f"{target}: {len(some)}" for target, some in bodies.items()) or "0"


def judge(
    found: Found,
    owed: dict[str, set[bytes]],
    finished: dict[str, set[bytes]] | None = None,
    sent: set[bytes] | None = None,
) -> Verdict:
    """`owed` is Ledger.must_have, `finished` Ledger.must_not_have (after a kill -9 alone), `sent` Ledger.all_sent.

    What is owed by a topic may stand in any of its channels; what is owed by a channel that the crash made unknown has
    to be in the topic's own queue, which the opening gave a channel named crash.
    """
    verdict = Verdict(error=found.error or (f"{found.left} stuck" if found.left else ""))
    in_channel = {target: set(bodies) for target, bodies in found.bodies.items()}
    for target, bodies in owed.items():
        topic = topic_of(target)
        if target == topic:
            there = {
                body
                for other in in_channel
                if topic_of(other) == topic
                for body in in_channel[other]
            }
        else:
            there = in_channel.get(target, in_channel.get(f"{topic}:crash", set()))
        missing = bodies - there
        if missing and len(missing) > found.deferred.get(target, 0):
            verdict.missing[target] = missing
    for target, bodies in (finished or {}).items():
        back = bodies & in_channel.get(target, set())
        if back:
            verdict.returned[target] = back
    if sent is not None:
        verdict.foreign = set().union(*in_channel.values()) - sent
    return verdict


def judge_by_ledger(
    found: Found, ledger: Ledger, state_ns: int, *, is_kill: bool = False
) -> Verdict:
    finished = ledger.must_not_have(state_ns) if is_kill else None
    return judge(found, ledger.must_have(state_ns), finished, ledger.all_sent())


def clear(folder: Path) -> Path:
    """An empty folder of that name."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder
