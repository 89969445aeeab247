"""A whole nsqlookupd: listeners, registry, and the connections between them. Start and stop follow NSQ's order."""

import asyncio
import logging
import socket
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from nsqfast.errors import OptionsError
from nsqfast.net import addresses
from nsqfast.net.addresses import warn_if_open
from nsqfast.net.browsers import BrowserRules
from nsqfast.net.descriptor_reserve import DescriptorReserve
from nsqfast.net.http_server import HttpProtocol
from nsqfast.net.listener import Ceiling, Factory, Listener
from nsqfast.net.refusal import refuse_http
from nsqfast.nsqlookupd.credentials import Credentials, read_credentials
from nsqfast.nsqlookupd.lookupd import HttpApiFactory
from nsqfast.nsqlookupd.options import (
    VERSION_LINE,
    Options,
    validate,
)
from nsqfast.nsqlookupd.registry import ROUNDS, Ceilings, Registry
from nsqfast.nsqlookupd.session import Desk
from nsqfast.nsqlookupd.tcp import PeerConnection, refuse
from nsqfast.version import NSQ_VERSION, own_line
from nsqfast.wire.gojson import encode

log = logging.getLogger("nsqlookupd")

ROUND_S_LEAST = 0.01


class Server:
    """Start it once, stop it once. Calls `make_http_api` once, with itself as the `Lookupd`."""

    desk: Desk
    _credentials: Credentials

    def __init__(self, options: Options, make_http_api: HttpApiFactory) -> None:
        self.options = options
        self._make_http_api = make_http_api
        self.start_time = time.time()
        self.registry = Registry(
            options.inactive_producer_timeout_ns,
            options.tombstone_lifetime_ns,
            Ceilings(
                options.max_names_per_peer, options.max_topics, options.max_channels_per_topic
            ),
        )
        self._sockets: dict[str, socket.socket] = {}
        self.listeners: dict[str, Listener] = {}  # by name
        self._reserve: DescriptorReserve | None = None
        self._peers: set[PeerConnection] = set()
        self._clients: set[HttpProtocol] = set()
        self._is_forgetting = False
        self._round: asyncio.TimerHandle | None = None

    async def start(self) -> None:
        """Serve on return; OptionsError says what the operator has to change, and nothing is left behind."""
        try:
            self._start()
        except BaseException:
            self._release()
            raise

    def _start(self) -> None:
        log.info("%s, %s", VERSION_LINE, own_line())
        try:
            validate(self.options)
            self._credentials = read_credentials(self.options)
            self._sockets["TCP"] = addresses.listen(self.options.tcp_address)
            self._sockets["HTTP"] = addresses.listen(self.options.http_address)
        except OptionsError as error:
            raise OptionsError(f"failed to instantiate nsqlookupd - {error}") from None
        warn_if_open(log, self.options.unprotected())
        self.desk = Desk(self.registry, self._identity(), self._credentials.secret)
        self._reserve = DescriptorReserve(asyncio.get_running_loop())
        self.registry.on_gone = self._forget_soon
        self._wait_round()
        peers, clients = self._peers, self._clients
        connect = partial(PeerConnection, self.desk, peers)
        refuse_peer = partial(refuse, self.options.max_connections)
        self._serve_on("TCP", connect, peers.__len__, refuse_peer)
        options = self.options
        browsers = BrowserRules(
            self.bound("HTTP"), options.allowed_hosts, log, options.broadcast_address
        )
        api = self._make_http_api(self, browsers)
        answer = partial(HttpProtocol, api, connections=clients, turns=self.desk.turns)
        self._serve_on("HTTP", answer, clients.__len__, refuse_http)

    def _wait_round(self) -> None:
        lifetime_s = self.options.inactive_producer_timeout_ns / 1e9
        round_s = max(ROUND_S_LEAST, lifetime_s / ROUNDS)
        self._round = asyncio.get_running_loop().call_later(round_s, self._begin_round)

    def _begin_round(self) -> None:
        self.registry.begin_round()
        self._wait_round()

    def _forget_soon(self) -> None:
        if not self._is_forgetting:
            self._is_forgetting = True
            asyncio.get_running_loop().call_soon(self._forget)

    def _forget(self) -> None:
        """Forget some of what nobody has any more; others are served before the next part."""
        self._is_forgetting = False
        if self.registry.forget_some():
            self._forget_soon()

    def _identity(self) -> bytes:
        """The answer to an nsqd's IDENTIFY, above all the HTTP address."""
        return encode(
            {
                "broadcast_address": self.options.broadcast_address,
                "hostname": socket.gethostname(),
                "http_port": addresses.port_number(self.bound("HTTP")),
                "tcp_port": addresses.port_number(self.bound("TCP")),
                "version": NSQ_VERSION,
            }
        )

    def bound(self, name: str) -> addresses.Bound:
        """Where it listens: TCP or HTTP."""
        return addresses.bound_address(self._sockets[name])

    def _serve_on(
        self, name: str, make: Factory, open_count: Callable[[], int], refusal: Factory
    ) -> None:
        assert self._reserve is not None
        if self._credentials.tls is not None:
            from nsqfast.net.tls_protocol import TlsProtocol  # late, like read_credentials

            def under_tls(make_inner: Factory, connections: set[Any] | None) -> TlsProtocol:
                # The current context: a reload counts for every connection after it.
                assert self._credentials.tls is not None
                return TlsProtocol(make_inner, self._credentials.tls, self.desk.turns, connections)

            connections: set[Any] = set()  # includes those whose handshake is not finished
            make, open_count = partial(under_tls, make, connections), connections.__len__
            refusal = partial(under_tls, refusal, None)
        count_max = self.options.max_connections
        ceiling = Ceiling(count_max, refusal) if count_max else None
        listener = Listener(name, self._sockets[name], make, self._reserve, open_count, ceiling)
        self.listeners[name] = listener
        listener.start()
        log.info("%s: listening on %s", name, addresses.format_bound(self.bound(name)))

    def reload(self) -> None:
        """Read certificates and secret again, for new connections; bad ones change nothing. NSQ's dies of it."""
        try:
            self._credentials = read_credentials(self.options)
        except OptionsError as error:
            log.error("SIGHUP: certificates and secret stay as they were: %s", error)  # noqa: TRY400
            return
        self.desk.secret = self._credentials.secret
        has_files = self.options.tls_cert or self.options.registration_secret_file
        what = "certificates and secret reloaded" if has_files else "nothing to reload"
        log.info("SIGHUP: %s", what)

    def status(self) -> str:
        """Where it listens."""
        return addresses.format_listeners(self._sockets)

    async def stop(self) -> None:
        """Stop listening to nsqd first, then stop answering requests."""
        self._close_listener("TCP")
        for peer in list(self._peers):
            peer.abort()
        self._release()
        for client in list(self._clients):
            client.close()
        # One turn of the loop for connections to end.
        await asyncio.sleep(0)

    def _close_listener(self, name: str) -> None:
        listener = self.listeners.pop(name, None)
        bound = self._sockets.pop(name, None)
        if bound is None:
            return
        address = addresses.bound_address(bound)
        if listener is not None:
            log.info("%s: closing %s", name, addresses.format_bound(address))
            listener.close()
        bound.close()
        addresses.remove_path(address)

    def _release(self) -> None:
        self._close_listener("TCP")
        self._close_listener("HTTP")
        if self._round is not None:
            self._round.cancel()
        if self._reserve is not None:
            self._reserve.close()
