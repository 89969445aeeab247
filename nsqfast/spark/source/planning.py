"""Lists the segments between two offsets, and divides them into tasks."""

import heapq
import itertools
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from nsqfast.spark.source.listing import Listing
from nsqfast.spark.source.loss import LossPolicy
from nsqfast.spark.source.offset import Offset
from nsqfast.spark.spool.segments import Segment

# A task costs Spark some 30 ms. Reading this much takes less, so smaller tasks are not worth it.
TASK_SIZE_MIN = 1 << 20
RANGES_NAMED_MAX = 10  # in one line of text


def segments_between(
    spool: Path, listing: Listing, start: Offset, end: Offset, loss: LossPolicy
) -> list[Segment]:
    """Return those behind `start`, to `end` inclusive; `loss` is told which are missing."""
    listing.refresh()
    found: list[Segment] = []
    for receiver, last in end.numbers.items():
        first = _number_before(listing, start, receiver, last)
        segments = [
            segment for segment in listing.segments_after(receiver, first) if segment.number <= last
        ]
        if len(segments) < last - first:
            report_missing(spool / receiver, first, last, segments, loss)
        found += segments
    return found


def _number_before(listing: Listing, start: Offset, receiver: str, last: int) -> int:
    if receiver in start.numbers:
        return start.numbers[receiver]
    released = listing.released(receiver)
    if last > released:
        return released
    # It was released. If this is the first batch, someone set the checkpoint back to it.
    return last if start.numbers else 0


def report_missing(
    folder: Path, first: int, last: int, found: Iterable[Segment], loss: LossPolicy
) -> None:
    """Report gaps: of the segments behind `first`, to `last` inclusive, only these exist."""
    numbers = {segment.number for segment in found}
    missing = [number for number in range(first + 1, last + 1) if number not in numbers]
    if missing:
        loss.report(
            f"{_name_segments(missing)} of {folder} {'is' if len(missing) == 1 else 'are'} gone, and nsqd has their"
            " messages no more",
            "what is there is read",
        )


def _name_segments(numbers: Sequence[int]) -> str:
    """Return `segments 3, 7 to 9`."""
    ranges = list(_ranges(numbers))
    named = ", ".join(
        str(low) if low == high else f"{low} to {high}" for low, high in ranges[:RANGES_NAMED_MAX]
    )
    more = len(ranges) - RANGES_NAMED_MAX
    plural = "s" if len(numbers) > 1 else ""
    return f"segment{plural} {named}{f' and {more} more ranges' if more > 0 else ''}"


def _ranges(numbers: Sequence[int]) -> Iterator[tuple[int, int]]:
    for _, group in itertools.groupby(enumerate(numbers), lambda pair: pair[1] - pair[0]):
        values = [number for _, number in group]
        yield values[0], values[-1]


def divide(segments: Sequence[Segment], task_count: int | None) -> list[list[Segment]]:
    """Divide into at most so many tasks of about the same size; None: this machine's number of cores, if worth it."""
    if not segments:
        return []
    if task_count is None:
        size = sum(segment.size for segment in segments)
        task_count = min(count_cores(), -(-size // TASK_SIZE_MIN))
    loads = [(0, position) for position in range(min(task_count, len(segments)))]
    tasks: list[list[Segment]] = [[] for _ in loads]
    for segment in sorted(segments, key=lambda segment: segment.size, reverse=True):
        size, position = loads[0]
        tasks[position].append(segment)
        heapq.heapreplace(loads, (size + segment.size, position))
    for task in tasks:
        task.sort(key=lambda segment: (segment.folder, segment.number))
    return tasks


def count_cores() -> int:
    """Count those of this process's machine: Spark tells a source nothing about its executors."""
    return len(os.sched_getaffinity(0))
