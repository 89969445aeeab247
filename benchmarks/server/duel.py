"""Runs one scenario on every broker, in turn: A B, B A, A B.

All of them stay up meanwhile, so that memory is warm and the machine's state is the same for all; those not being
measured are idle. Samples of one round belong together: ratios compare them.
"""

from __future__ import annotations

import os
import time
from contextlib import ExitStack
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from server.admin import Admin
from server.broker import Broker
from server.device import DEVICE
from server.implementation import GO, Implementation, implementations
from server.lookupd import Lookupd
from server.redis import REDIS, Redis, has_redis
from server.sink import Sink
from server.usage import cpu_ns

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from server.loads import Sample
    from server.scenario import Row, Scale

    Samples = Mapping[Row, Sample | None]
    Start = Callable[..., Broker]  # flags, and `prepare` by name

# Of a core; Go's timers alone take half of it with ten thousand topics.
QUIET_SHARE_MAX = 0.1
QUIET_WINDOW_SECONDS = 0.05
QUIET_SECONDS_MAX = 5.0
# Twice that of NSQ's own bench.sh: a load that is limited by time, not number, must not overflow to disk.
MEMORY_FLAGS = ("--mem-queue-size=2000000",)
DISK_FLAGS = ("--mem-queue-size=0",)


class Results:
    """Samples by row and implementation, one entry for each round."""

    def __init__(self) -> None:
        self._rows: dict[Row, dict[str, list[Sample | None]]] = {}

    def add(self, name: str, samples: Samples) -> None:
        """Add what one implementation reached in one round."""
        for row, sample in samples.items():
            self._rows.setdefault(row, {}).setdefault(name, []).append(sample)

    def as_json(self) -> dict[str, Any]:
        """Return them for pytest-benchmark's extra_info."""
        rows = [row.as_json() | {"samples": samples} for row, samples in self._rows.items()]
        return {"suite": "server", "rows": rows}


class Duel:
    """One scenario."""

    def __init__(self, benchmark: Any, scale: Scale, folder: Path) -> None:
        self._benchmark = benchmark
        self.scale = scale
        self._folder = folder

    def run(
        self,
        measure: Callable[[Broker], Samples],
        flags: Sequence[str] = MEMORY_FLAGS,
        prepare: Callable[[Path], None] | None = None,
        sink_sizes: tuple[int, int] | None = None,
        go_flags: Sequence[str] | None = None,
        redis: Callable[[Redis], Samples] | None = None,
    ) -> None:
        """Run brokers with these flags; `prepare` puts something into their folders first.

        With `sink_sizes` (of a command, of a message) the null limit takes part. `go_flags` are for rows that show
        another mode of Go's; `redis` is what Redis does in their place, if there is one.
        """
        with ExitStack() as stack:
            brokers = []
            for implementation in implementations():
                folder = self._folder / implementation.name
                folder.mkdir(parents=True)
                if prepare:
                    prepare(folder)
                own_flags = go_flags if go_flags and implementation.name == GO else flags
                broker = Broker(implementation, folder, tuple(own_flags))
                brokers.append(broker)
                # Thousands of prepared topics would take seconds to save, for nothing.
                stack.push(broker) if prepare is None else stack.callback(broker.kill)
            if sink_sizes:
                brokers.append(stack.enter_context(Sink(*sink_sizes)))
            contestants: list[Any] = [*brokers]
            if redis and has_redis():
                contestants.append(stack.enter_context(Redis(self._folder / REDIS)))
            pids = [contestant.pid for contestant in contestants]

            def measure_quietly(contestant: Any) -> Samples:
                wait_until_quiet(pids)
                return (
                    redis(contestant) if redis and contestant.name == REDIS else measure(contestant)
                )

            self._fight(contestants, measure_quietly)

    def run_device(self, measure: Callable[[Path], Samples]) -> None:
        """Measure the disk itself, in the folder where brokers would have their data."""
        self._fight([SimpleNamespace(name=DEVICE)], lambda _: measure(self._folder))

    def run_fresh(self, measure: Callable[[Start], Samples]) -> None:
        """Let each measurement start its broker itself, by calling its argument with flags."""
        self._fight(implementations(), lambda one: self._start_fresh(one, measure))

    def run_fresh_each(
        self, measures: Mapping[Row, Callable[[Start], Sample]], *, is_ours: bool = False
    ) -> None:
        """The same for several rows, each in a folder of its own, one row after the other and only once; `is_ours`:
        without Go's."""
        results = Results()
        contestants = [one for one in implementations() if not (is_ours and one.name == GO)]

        def one_round() -> None:
            for row, measure in measures.items():
                for one in contestants:
                    if self.scale.has_warm_up:
                        wait_until_quiet(())
                    results.add(one.name, {row: self._start_fresh(one, measure)})

        self._benchmark.pedantic(one_round, rounds=1, iterations=1)
        self._benchmark.extra_info.update(results.as_json())

    def run_lookupd(self, measure: Callable[[Lookupd], Samples]) -> None:
        """Give each measurement an nsqlookupd of its own."""

        def measure_fresh(implementation: Implementation) -> Samples:
            with Lookupd(implementation, fresh_folder(self._folder), ()) as lookupd:
                return measure(lookupd)

        # Go's takes most of a minute for each, and nothing could be warm.
        self._fight(implementations("nsqlookupd"), measure_fresh, has_warm_up=False)

    def run_admins(self, measure: Callable[[Admin], Samples], flags: Sequence[str]) -> None:
        """Run an nsqadmin of each kind, with these flags."""
        with ExitStack() as stack:
            admins = [
                stack.enter_context(Admin(implementation, flags))
                for implementation in implementations("nsqadmin")
            ]
            self._fight(admins, measure)

    def _start_fresh(self, implementation: Implementation, measure: Callable[[Start], Any]) -> Any:
        folder = fresh_folder(self._folder)
        return measure(
            lambda *flags, prepare=None: _prepared(implementation, folder, flags, prepare)
        )

    def _fight(
        self,
        contestants: Sequence[Any],
        measure: Callable[[Any], Samples],
        has_warm_up: bool = True,
    ) -> None:
        results = Results()
        order = list(contestants)

        def one_round() -> None:
            for contestant in order:
                results.add(contestant.name, measure(contestant))
            order.reverse()

        if has_warm_up and self.scale.has_warm_up:
            for contestant in contestants:
                measure(contestant)
        self._benchmark.pedantic(one_round, rounds=self.scale.rounds, iterations=1)
        self._benchmark.extra_info.update(results.as_json())


def _prepared(
    implementation: Implementation,
    folder: Path,
    flags: tuple[str, ...],
    prepare: Callable[[Path], None] | None,
) -> Broker:
    if prepare:
        prepare(folder)
    return Broker(implementation, folder, flags)


def fresh_folder(parent: Path) -> Path:
    """Create an empty one with a number for a name."""
    parent.mkdir(parents=True, exist_ok=True)
    folder = parent / str(len(list(parent.iterdir())))
    folder.mkdir()
    return folder


def wait_until_quiet(pids: Sequence[int]) -> None:
    """Wait until the work left by the last round is done: garbage, and pages on their way to the disk."""
    os.sync()
    deadline = time.monotonic() + QUIET_SECONDS_MAX
    share = 1.0
    while share > QUIET_SHARE_MAX and time.monotonic() < deadline:
        before = sum(map(cpu_ns, pids))
        time.sleep(QUIET_WINDOW_SECONDS)
        share = (sum(map(cpu_ns, pids)) - before) / 1e9 / QUIET_WINDOW_SECONDS
