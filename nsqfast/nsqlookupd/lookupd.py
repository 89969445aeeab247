"""What nsqlookupd's HTTP API needs of it: the server implements it, and the handlers do not import the server."""

from collections import Counter
from collections.abc import Callable
from typing import Protocol

from nsqfast.net.door import Door
from nsqfast.net.http_receiver import Handler
from nsqfast.nsqlookupd.registry import Registry
from nsqfast.nsqlookupd.session import Desk


class Lookupd(Protocol):
    """A running nsqlookupd."""

    registry: Registry
    desk: Desk
    start_time: float  # seconds since 1970
    doors: dict[str, Door]  # by listener
    # HTTP requests by path, "other" for what leads nowhere, and status; the HTTP API counts them.
    requests: Counter[tuple[str, int]]


HttpApiFactory = Callable[[Lookupd], Handler]
