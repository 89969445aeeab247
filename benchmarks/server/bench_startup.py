"""From the start of the process until GET /ping is answered."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from server.idle import write_metadata
from server.scenario import NOTHING, OTHER, Row, at_most

if TYPE_CHECKING:
    from pathlib import Path

    from server.duel import Duel, Samples, Start

TARGETS = {0: (at_most("startup_seconds", 0.4),), 5000: ()}


@pytest.mark.parametrize("topics", TARGETS)
def bench_startup(duel: Duel, topics: int) -> None:
    """An empty folder, and one with many topics."""
    targets = TARGETS[topics]
    topics = duel.scale.count(topics) if topics else 0
    row_name = f"start-up, {topics:,} topics" if topics else "start-up, empty"
    row = Row(row_name, "none", NOTHING, OTHER, targets)

    def prepare(folder: Path) -> None:
        if topics:
            write_metadata(folder, topics)

    def measure(start: Start) -> Samples:
        broker = start(prepare=prepare)
        # An orderly stop would save all topics, which takes longer than the start.
        broker.kill()
        return {row: {"startup_seconds": broker.startup_seconds}}

    duel.run_fresh(measure)
