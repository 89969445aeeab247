"""How far a query has come in a spool, what lies between two offsets, and what happens where segments are missing."""

import heapq
import itertools
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Any, Self

from nsqfast.program.logs import logger
from nsqfast.spark.source.listing import Listing
from nsqfast.spark.spool.identity import Identity, SpoolError
from nsqfast.spark.spool.segments import Segment

SAID_MAX = 1000  # texts that are remembered, so as not to be repeated

log = logger("nsqfast.spark.source")


class LossPolicy:
    """The option failOnDataLoss."""

    def __init__(self, *, is_strict: bool) -> None:
        self.is_strict = is_strict
        self._said: set[str] = set()

    def report(self, loss: str, otherwise: str) -> None:
        """Raise SpoolError if it is strict; else warn once, with `otherwise` as what is done instead."""
        if self.is_strict:
            raise SpoolError(f"{loss}; with failOnDataLoss=false {otherwise}")
        if len(self._said) == SAID_MAX:
            self._said.clear()
        if loss not in self._said:
            self._said.add(loss)
            log.warning("%s; failOnDataLoss=false: %s", loss, otherwise)


# Offsets: for each receiver of a spool, the number of the last segment that a query has taken.
#
#     {"v": 1, "epoch": "…", "subscription": "orders", "channel": "spark", "spools": {"r0": 46, "r1": 15}}
#
# Spark keeps them in its checkpoint. A receiver that is not named begins with its first segment that was not released.


VERSION = 1


@dataclass(frozen=True, slots=True)
class Offset:
    """`numbers` by the receiver's name."""

    identity: Identity
    numbers: Mapping[str, int]

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> Self:
        """SpoolError unless it is one of ours."""
        try:
            if fields["v"] != VERSION:
                raise SpoolError(
                    f"the checkpoint is of another version of nsqfast (v {fields['v']!r}); use a new checkpoint"
                )
            identity = Identity(fields["subscription"], fields["channel"], fields["epoch"])
            numbers = {str(name): int(number) for name, number in fields["spools"].items()}
        except (KeyError, TypeError, ValueError, AttributeError):
            raise SpoolError(
                "the checkpoint is not one of the nsq source; use a new checkpoint"
            ) from None
        return cls(identity, numbers)

    def to_json(self) -> dict[str, Any]:
        """Equal offsets must give equal texts: Spark compares them."""
        return {
            "v": VERSION,
            "epoch": self.identity.epoch,
            "subscription": self.identity.subscription,
            "channel": self.identity.channel,
            "spools": dict(sorted(self.numbers.items())),
        }

    def check_subscription(self, subscription: str, channel: str) -> None:
        """SpoolError if it is from another query's checkpoint."""
        own = self.identity
        if (own.subscription, own.channel) != (subscription, channel):
            raise SpoolError(
                f"the checkpoint is of {own.subscription} of channel {own.channel}, not of {subscription} of channel"
                f" {channel}: each subscription has a checkpoint (and a spool) of its own"
            )


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


# Chooses what one batch of a stream takes: whole segments, oldest first over all receivers, up to a limit.


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


def find_waiting(
    spool: Path, listing: Listing, start: Offset, loss: LossPolicy
) -> tuple[Offset, dict[str, Sequence[Segment]]]:
    """Return where to begin, which is `start` unless something was lost, and the segments behind it by receiver.

    `loss` is told what is missing. Segments before a gap are taken first.
    """
    listing.refresh()
    numbers = dict(start.numbers)
    waiting: dict[str, Sequence[Segment]] = {}
    for receiver in sorted({*listing.receivers(), *numbers}):
        released = listing.released(receiver)
        number = numbers.get(receiver, released)
        segments = listing.segments_after(receiver, number)
        last = segments[-1].number if segments else released
        if not segments and number > max(released, listing.last(receiver)):
            loss.report(
                f"{spool / receiver} ends before segment {number}, which the checkpoint has read: it was emptied, or"
                " comes from an older copy",
                "what is there is read",
            )
            numbers[receiver] = number = released
            segments = listing.segments_after(receiver, number)
            last = segments[-1].number if segments else released
        if last - number > len(segments):
            segments = _before_gap(spool / receiver, number, last, segments, loss)
        waiting[receiver] = segments
    return Offset(start.identity, numbers), waiting


def _before_gap(
    folder: Path, number: int, last: int, segments: Sequence[Segment], loss: LossPolicy
) -> Sequence[Segment]:
    """Return the consecutive ones; all, if there are none and `loss` accepts that."""
    whole = [
        segment
        for _, segment in takewhile(
            lambda pair: pair[0] == pair[1].number, enumerate(segments, number + 1)
        )
    ]
    if not whole:
        report_missing(folder, number, last, segments, loss)
    return whole or segments
