from typing import Any

from nsqfast._ext.broker.message_queue import MessageQueue

LIMIT_MAX: int
OFFSET_MAX: int
NEEDLE_SIZE_MAX: int
PIECE_SIZE_MAX: int
STATES: tuple[str, ...]

class Snapshot:
    depth: int
    taken_ns: int
    scanned: int
    def __init__(
        self,
        queue: MessageQueue,
        state: str,
        limit: int = 20,
        offset: int = 0,
        piece_max: int = ...,
        needle: bytes = b"",
        place: tuple[int, ...] | None = None,
        since_ns: int = 0,
        terms: tuple[tuple[bytes, bytes], ...] = (),
    ) -> None: ...
    @property
    def needs_thread(self) -> bool: ...
    def complete(self) -> None: ...
    @property
    def is_complete(self) -> bool: ...
    @property
    def next_offset(self) -> int | None: ...
    @property
    def next_place(self) -> tuple[int, ...] | None: ...
    @property
    def remark(self) -> str | None: ...
    def __len__(self) -> int: ...
    def keep_first(self, count: int) -> None: ...
    def ids(self) -> list[str]: ...
    def row(self, index: int) -> dict[str, Any]: ...
