"""A batch on its way into a file: pieces, each as large as the file may take before it is full."""

from collections.abc import Callable
from typing import Any, Protocol

import orjson

from nsqfast._ext.client.text_lines import JsonLines, Lines
from nsqfast.client.batch import ArrayBatch


class Pieces(Protocol):
    """The rows of one batch, in order."""

    @property
    def count(self) -> int:
        """Number of rows in the batch."""

    @property
    def next(self) -> int:
        """Index of the first row not taken yet."""

    def take(self, size_max: int) -> Any:
        """Take the next rows, up to the one that exceeds this size."""


MakePieces = Callable[[ArrayBatch], Pieces]


def text_pieces(text_format: str, topic: str) -> MakePieces:
    """For `lines` or `jsonl`."""
    if text_format == "lines":
        return lambda batch: Lines(batch.taken.bodies, batch.taken.offsets)
    head = b'{"topic":' + orjson.dumps(topic) + b',"id":"'

    def json_lines(batch: ArrayBatch) -> Pieces:
        tails = [b',"nsqd":' + orjson.dumps(address) + b"," for address in batch.nsqd]
        return JsonLines(batch.taken, head, tails)

    return json_lines


def is_json_record(line: bytes) -> bool:
    """Whether all of it is there."""
    try:
        return isinstance(orjson.loads(line), dict)
    except orjson.JSONDecodeError:
        return False
