from typing import Any, NamedTuple, final

class Taken(NamedTuple):
    bodies: bytes
    offsets: bytes
    timestamps: bytes
    attempts: bytes
    identities: bytes
    sources: bytes
    links: list[Any]

@final
class Columns:
    def __init__(self) -> None: ...
    @property
    def count(self) -> int: ...
    @property
    def links(self) -> list[Any]: ...
    def take(self) -> Taken: ...
