"""What nsqlookupd's HTTP API needs of it: the server implements it, and the handlers do not import the server."""

from collections.abc import Callable
from typing import Protocol

from nsqfast.net.browsers import BrowserRules
from nsqfast.net.http_receiver import Handler
from nsqfast.net.listener import Listener
from nsqfast.nsqlookupd.registry import Registry
from nsqfast.nsqlookupd.session import Desk


class Lookupd(Protocol):
    """A running nsqlookupd."""

    registry: Registry
    desk: Desk
    start_time: float  # seconds since 1970
    listeners: dict[str, Listener]  # by name


HttpApiFactory = Callable[[Lookupd, BrowserRules], Handler]
