"""A progress bar on stderr, if somebody is watching."""

import sys
import time
from types import TracebackType
from typing import Self

INTERVAL_S = 0.25


def is_watched() -> bool:
    """Whether a bar would be seen."""
    return sys.stderr.isatty()


class Progress:
    """`total` is the number of bytes to read, or None if unknown. Shows messages, their rate and the time left."""

    def __init__(self, title: str, total: int | None) -> None:
        # Imported late, because most runs have nobody watching.
        from rich.console import Console
        from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as Bar

        self._begun_s = time.monotonic()
        self._next_s = 0.0
        self._bar = Bar(
            TextColumn(title, markup=False),
            BarColumn(),
            TextColumn("{task.fields[messages]} messages, {task.fields[rate]}/s, left"),
            TimeRemainingColumn(),
            console=Console(stderr=True),
            auto_refresh=False,
            transient=True,
        )
        self._task = self._bar.add_task(title, total=total, messages="0", rate="0")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        place: TracebackType | None,
    ) -> None:
        self._bar.stop()

    def show(self, done: int, messages: int) -> None:
        """This many bytes and messages are done; drawn a few times a second, however often it is called."""
        now_s = time.monotonic()
        if now_s < self._next_s:
            return
        self._next_s = now_s + INTERVAL_S
        # Not earlier: lines about connections should appear above the bar.
        self._bar.start()
        rate = messages / (now_s - self._begun_s) if now_s > self._begun_s else 0.0
        self._bar.update(self._task, completed=done, messages=f"{messages:,}", rate=f"{rate:,.0f}")
        self._bar.refresh()
