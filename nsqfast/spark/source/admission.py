"""Chooses what one batch of a stream takes: whole segments, oldest first over all receivers, up to a limit."""

import heapq
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from nsqfast.spark.spool.segments import Segment


@dataclass(frozen=True, slots=True)
class Limit:
    """None: no limit. A segment is never divided, and at least one is taken."""

    row_count: int | None = None
    size: int | None = None

    def admits(self, row_count: int, size: int) -> bool:
        """Whether a batch may have so many rows and bytes."""
        return (self.row_count is None or row_count <= self.row_count) and (
            self.size is None or size <= self.size
        )


def admit(waiting: Mapping[str, Sequence[Segment]], limit: Limit) -> dict[str, int]:
    """Return the numbers of the last segments to take, by receiver; receivers not named provide none."""
    filled = {receiver: segments for receiver, segments in waiting.items() if segments}
    row_count = sum(segment.row_count for segments in filled.values() for segment in segments)
    size = sum(segment.size for segments in filled.values() for segment in segments)
    if limit.admits(row_count, size):
        return {receiver: segments[-1].number for receiver, segments in filled.items()}
    # A missing segment, which the planning reports, comes first so that it delays none; one receiver needs no order.
    return _admit_oldest(filled, limit, Segment.sealed_ns if len(filled) > 1 else lambda _: 0)


def _admit_oldest(
    filled: Mapping[str, Sequence[Segment]], limit: Limit, time_of: Callable[[Segment], int]
) -> dict[str, int]:
    taken: dict[str, int] = {}
    row_count = size = 0
    heads = [(time_of(segments[0]), receiver, 0) for receiver, segments in filled.items()]
    heapq.heapify(heads)
    while heads:
        _, receiver, position = heads[0]
        segment = filled[receiver][position]
        row_count += segment.row_count
        size += segment.size
        if taken and not limit.admits(row_count, size):
            break
        taken[receiver] = segment.number
        if position + 1 < len(filled[receiver]):
            following = filled[receiver][position + 1]
            heapq.heapreplace(heads, (time_of(following), receiver, position + 1))
        else:
            heapq.heappop(heads)
    return taken
