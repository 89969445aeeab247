"""Finds the segments that wait behind an offset, and checks whether all of them are there."""

from collections.abc import Sequence
from itertools import takewhile
from pathlib import Path

from nsqfast.spark.source.listing import Listing
from nsqfast.spark.source.loss import LossPolicy
from nsqfast.spark.source.offset import Offset
from nsqfast.spark.source.planning import report_missing
from nsqfast.spark.spool.segments import Segment


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
