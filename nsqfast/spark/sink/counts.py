"""Counts of published messages, for log lines and for the driver."""

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self


@dataclass(slots=True)
class Counts:
    """`rows` and `size` (bytes of bodies) have an nsqd's OK; `publishes` counts their MPUBs, PUBs and DPUBs.

    `resent_rows` were sent again because a connection broke before the answer, and may be duplicates. `retried_rows`
    were published by an attempt of a task that was not its first, and may be duplicates, too. `unknown_rows` were sent
    and never answered: they may be there although the task failed.
    """

    rows: int = 0
    size: int = 0
    publishes: int = 0
    resent_rows: int = 0
    retried_rows: int = 0
    unknown_rows: int = 0

    @classmethod
    def total(cls, parts: Iterable[Self]) -> Self:
        """Return the sum of several."""
        found = cls()
        for part in parts:
            for field in dataclasses.fields(cls):
                value = getattr(found, field.name) + getattr(part, field.name)
                setattr(found, field.name, value)
        return found

    def __str__(self) -> str:
        text = f"{self.rows} rows of {self.size} bytes in {self.publishes} publishes"
        if self.resent_rows:
            text += f"; {self.resent_rows} rows were sent again and may be there twice"
        if self.retried_rows:
            text += f"; {self.retried_rows} rows are of retried tasks and may be there twice"
        if self.unknown_rows:
            text += f"; {self.unknown_rows} more were sent without an answer and may be there"
        return text
