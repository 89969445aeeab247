"""A progress bar on stderr, if somebody is watching."""

import time
from types import TracebackType
from typing import Self

from nsqfast.tools.bench.crew import Crew, counted
from nsqfast.tools.bench.options import NS_PER_S
from nsqfast.tools.bench.plan import Plan


class Meter:
    """Shows the count if there is one, otherwise the time."""

    def __init__(self, plan: Plan, crew: Crew) -> None:
        # Imported late, because most runs have nobody watching.
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

        self._crew = crew
        self._mode = plan.options.mode
        self._runfor_s = plan.options.runfor_ns / NS_PER_S
        self._goal = plan.goal
        self._before = (0.0, 0)
        self._bar = Progress(
            TextColumn(self._mode),
            BarColumn(),
            TextColumn("{task.fields[messages]} messages, {task.fields[rate]}/s, left"),
            TimeRemainingColumn(),
            console=Console(stderr=True),
            auto_refresh=False,
            transient=True,
        )
        self._task = self._bar.add_task(
            self._mode, total=self._goal or self._runfor_s, messages="0", rate="0"
        )

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        place: TracebackType | None,
    ) -> None:
        self._bar.stop()

    def look(self) -> None:
        """Show the progress; the rate is that since the last call."""
        totals = self._crew.totals()
        if not totals.started_ns:
            return
        now_s, messages = time.monotonic(), counted(totals, self._mode)
        before_s, before = self._before
        self._before = (now_s, messages)
        rate = (messages - before) / (now_s - before_s) if before_s else 0.0
        elapsed_s = now_s - totals.started_ns / NS_PER_S
        done = messages if self._goal else min(elapsed_s, self._runfor_s)
        self._bar.update(self._task, completed=done, messages=f"{messages:,}", rate=f"{rate:,.0f}")
        self._bar.refresh()
