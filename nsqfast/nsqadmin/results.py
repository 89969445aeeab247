"""The outcome of an action: a result for each node that got it, and one word for all of them."""

from collections.abc import Sequence
from typing import Literal

import msgspec

Outcome = Literal["ok", "failed", "partial", "refused"]


class Result(msgspec.Struct, frozen=True):
    """The result of an action on one node; `text` is the error if it is not `ok`."""

    node: str
    ok: bool
    text: str = ""


def outcome_of(results: Sequence[Result]) -> Outcome:
    """Sum up the results in one word; without any the action is `ok`."""
    failed = sum(not result.ok for result in results)
    if not failed:
        return "ok"
    return "failed" if failed == len(results) else "partial"
