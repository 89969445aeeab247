"""Messages in and out by their size, in commands of about 40 kB."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from server.generators import NSQFAST_BENCH
from server.loads import Publish, batch_for, consume, fill, publish
from server.scenario import MEMORY, SIZES, Row

if TYPE_CHECKING:
    from server.broker import Broker
    from server.duel import Duel, Samples

COUNT_MAX = 1_000_000
BYTES_MAX = 250_000_000
NAMES = {16: "16 B", 200: "200 B", 1 << 10: "1 KiB", 16 << 10: "16 KiB", 256 << 10: "256 KiB"}


@pytest.mark.parametrize("size", NAMES)
def bench_size(duel: Duel, size: int) -> None:
    """As many messages as fit into bounded memory."""
    row_in, row_out = (
        Row(f"messages of {NAMES[size]}, {way}", NSQFAST_BENCH, MEMORY, SIZES, size=size)
        for way in ("in", "out")
    )
    batch_size = batch_for(size)
    count = duel.scale.count(min(COUNT_MAX, BYTES_MAX // size), multiple=batch_size)
    load = Publish(count, size, batch_size)

    def measure(broker: Broker) -> Samples:
        return {
            row_in: publish(broker, load),
            row_out: consume(broker, fill(broker, load), size=size),
        }

    duel.run(measure)
