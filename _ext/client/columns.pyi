from typing import Any, NamedTuple, final

class Taken(NamedTuple):
    bodies: bytes
    offsets: bytes
    timestamps: bytes
    attempts: bytes
    identities: bytes
    sources: bytes
    connections: list[Any]

@final
class Columns:
    def __init__(self) -> None: ...
    @property
    def count(self) -> int: ...
    @property
    def connections(self) -> list[Any]: ...
    def take(self) -> Taken: ...
