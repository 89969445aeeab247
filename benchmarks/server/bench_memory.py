"""Resident memory of queued messages."""

from __future__ import annotations

from typing import TYPE_CHECKING

from server.duel import MEMORY_FLAGS
from server.loads import Publish, fill
from server.scenario import MEMORY, OTHER, Row, at_most
from server.usage import resident_bytes

if TYPE_CHECKING:
    from server.duel import Duel, Samples, Start


def bench_queued_memory(duel: Duel) -> None:
    """The memory that half a million messages of 200 bytes add to an empty broker."""
    row = Row(
        "resident memory per queued 200-byte message",
        "none",
        MEMORY,
        OTHER,
        (at_most("bytes_per_message", 270),),
    )
    load = Publish(count=duel.scale.count(500_000, multiple=400))

    def measure(start: Start) -> Samples:
        with start(*MEMORY_FLAGS) as broker:
            before_bytes = resident_bytes(broker.pid)
            messages = fill(broker, load)
            used_bytes = resident_bytes(broker.pid) - before_bytes
            broker.delete("bench")
        return {row: {"bytes_per_message": used_bytes / messages}}

    duel.run_fresh(measure)
