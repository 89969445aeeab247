from nsqfast._ext.broker.channel import Channel
from nsqfast._ext.broker.topic import Topic

IDS_MAX: int
ACTIONS: tuple[str, ...]

class Picker:
    examined: int
    changed: int
    ticket: int
    def __init__(
        self,
        channel: Channel,
        state: str,
        action: str,
        target: Topic | None = None,
        ids: tuple[bytes, ...] = (),
        needle: bytes = b"",
        place: tuple[int, ...] | None = None,
        since_ns: int = 0,
        terms: tuple[tuple[bytes, bytes], ...] = (),
    ) -> None: ...
    @property
    def is_over(self) -> bool: ...
    @property
    def must_wait(self) -> bool: ...
    @property
    def needs_thread(self) -> bool: ...
    @property
    def place_after(self) -> tuple[int, ...] | None: ...
    @property
    def remark(self) -> str | None: ...
    def search(self) -> None: ...
    def go_on(self) -> None: ...
