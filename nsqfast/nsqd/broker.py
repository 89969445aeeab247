"""What nsqd's HTTP API needs of the broker: the server implements it, and handlers do not import the server."""

from typing import TYPE_CHECKING, Protocol

from nsqfast._ext.broker.registry import Registry
from nsqfast._ext.core.histogram import Histogram
from nsqfast._ext.server.http_shortcut import PublishShortcut
from nsqfast.net.addresses import Bound
from nsqfast.net.browsers import BrowserRules
from nsqfast.net.http_receiver import Handler
from nsqfast.net.listener import Listener
from nsqfast.nsqd.data_folder import RunFile
from nsqfast.nsqd.drain import Drain
from nsqfast.nsqd.lookup import Lookup
from nsqfast.nsqd.options import Options

if TYPE_CHECKING:  # it imports an HTTP client, which only a broker with auth servers needs
    from nsqfast.nsqd.auth import AuthClient
    from nsqfast.nsqd.deaths import DeathFile
    from nsqfast.nsqd.policies import Policies
    from nsqfast.nsqd.redrives import Redrives


class Broker(Protocol):
    """A running broker."""

    options: Options
    registry: Registry
    lookup: Lookup
    drain: Drain
    run_file: RunFile
    auth: "AuthClient | None"
    deaths: "DeathFile | None"  # None: nothing died here
    start_time: float  # seconds since 1970
    tcp_address: Bound | None
    http_address: Bound | None
    https_address: Bound | None
    listeners: dict[str, Listener]  # by name

    @property
    def lag(self) -> Histogram:
        """How late the loop's timers fired."""

    def watch_lag(self) -> None:
        """Measure the lag for a while even if no timer is due."""

    def health(self) -> str:
        """OK, or NOK with the last disk error."""

    def load_policies(self) -> "Policies":
        """Its policies, of which there may be none."""

    def load_redrives(self) -> "Redrives":
        """Its redrives, of which there may be none."""

    async def persist_metadata(self, topic: str | None = None) -> None:
        """Return when nsqd.dat is up to date; OSError if it could not be written."""


class BrokerHandler(Handler, Protocol):
    """The handler of one listener."""

    shortcut: PublishShortcut | None  # answers plain publishes without calling it


class HttpApiFactory(Protocol):
    """Makes the HTTP API of one listener."""

    def __call__(
        self, broker: Broker, browsers: BrowserRules, is_plain: bool, serves_admin: bool
    ) -> BrokerHandler:
        """`is_plain`: its clients do not use TLS; `serves_admin`: it serves the endpoints for operators, too."""
