"""A whole broker: lock, listeners, metadata, registry, and the connection of the compiled core with the event loop.

Start and stop follow nsqd's order. The sockets listen before metadata is loaded, so a client that connects early waits
in the kernel's queue instead of being refused.
"""

import asyncio
import contextlib
import logging
import os
import ssl
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nsqfast._ext.broker.registry import Registry
from nsqfast._ext.broker.topics import Topics
from nsqfast._ext.core.histogram import Histogram
from nsqfast._ext.protocol.v2 import encode
from nsqfast._ext.server.connection import BrokerConnection
from nsqfast.errors import OpenLogError, OptionsError
from nsqfast.net import addresses
from nsqfast.net.addresses import warn_if_open
from nsqfast.net.browsers import BrowserRules
from nsqfast.net.descriptor_reserve import DescriptorReserve
from nsqfast.net.http_server import HttpProtocol
from nsqfast.net.listener import Ceiling, Factory, Listener
from nsqfast.net.refusal import Refusal, refuse_http
from nsqfast.net.slices import Turns
from nsqfast.net.tls import ServerTls, client_context
from nsqfast.net.tls_protocol import TlsProtocol
from nsqfast.nsqd.broker import HttpApiFactory
from nsqfast.nsqd.data_folder import DirectoryLock, FreeDisk, RunFile
from nsqfast.nsqd.drain import Drain
from nsqfast.nsqd.lookup import Credentials, Lookup, read_credentials
from nsqfast.nsqd.metadata import encode as encode_metadata
from nsqfast.nsqd.metadata import write as write_metadata
from nsqfast.nsqd.metadata_file import MetadataFile
from nsqfast.nsqd.options import (
    DEATHS_NAME,
    POLICIES_NAME,
    REDRIVES_NAME,
    TLS_REQUIRED,
    VERSION_LINE,
    Options,
    expand_statsd_prefix,
    validate,
)
from nsqfast.nsqd.progress import StopProgress
from nsqfast.nsqd.statsd import Statsd
from nsqfast.nsqd.timers import DeadlineTimer, LagProbe
from nsqfast.version import own_line
from nsqfast.wire.gotext import os_error
from nsqfast.wire.protocol import FRAME_ERROR

if TYPE_CHECKING:
    import socket

    from nsqfast.nsqd.auth import AuthClient
    from nsqfast.nsqd.deaths import DeathFile, Piece
    from nsqfast.nsqd.policies import Policies
    from nsqfast.nsqd.redrives import Redrives

# The answer to TCP clients beyond --max-connections.


def refuse_tcp(count_max: int) -> Refusal:
    """An error that any client takes as the end of the connection, so that it tries another broker."""
    text = b"E_INVALID too many connections, the limit is %d" % count_max
    return Refusal(encode(FRAME_ERROR, text))


log = logging.getLogger("nsqd")

HTTP_ADMIN = "HTTP-ADMIN"  # the listener of --http-admin-address


class Server:
    """Start it once, stop it once. Calls `make_http_api` for each HTTP listener, with itself as the `Broker`."""

    topics_type = Topics
    connection_type = BrokerConnection
    registry: Registry
    lookup: Lookup
    drain: Drain
    run_file: RunFile
    _turns: Turns
    _credentials: Credentials

    def __init__(self, options: Options, make_http_api: HttpApiFactory) -> None:
        self.options = options
        self._make_http_api = make_http_api
        self.start_time = time.time()
        self.tcp_address: addresses.Bound | None = None
        self.http_address: addresses.Bound | None = None
        self.https_address: addresses.Bound | None = None
        self.http_admin_address: addresses.Bound | None = None
        self.tls_context: ssl.SSLContext | None = None
        self._lock: DirectoryLock | None = None
        self._metadata: MetadataFile | None = None
        self._timer: DeadlineTimer | None = None
        self._lag_probe: LagProbe | None = None
        self._sockets: dict[str, socket.socket] = {}
        self.listeners: dict[str, Listener] = {}
        self._reserve: DescriptorReserve | None = None
        self._clients: list[set[HttpProtocol]] = []  # of each HTTP listener
        self._sync_fd = -1
        self._statsd: Statsd | None = None
        self.auth: AuthClient | None = None
        self._policies: Policies | None = (
            None  # None: nobody has asked for them, and there are none
        )
        self.deaths: DeathFile | None = None  # None: nothing died here
        self._redrives: Redrives | None = None

    async def start(self) -> None:
        """Serve on return; OptionsError says what the operator has to change, and nothing is left behind."""
        try:
            self._claim()
            self._load()
            await self.lookup.load_client()
            await self._free_disk.begin()
            self._serve()
            if self.auth is not None:
                self.auth.begin()
            self.run_file.begin()
        except BaseException:
            if self.auth is not None:
                await self.auth.close()
            self._release()
            raise

    def _claim(self) -> None:
        options = self.options
        try:
            self._lock = DirectoryLock(options.data_path)
            validate(options)
            self.tls_context = self._read_certificates()
            self._check_authorities()
            self._credentials = read_credentials(options)
            if options.policy_file:
                from nsqfast.nsqd.policies import read_file

                read_file(options.policy_file)  # before anything of the folder is touched
            log.info("%s, %s", VERSION_LINE, own_line())
            log.info("ID: %d", options.node_id)
            if options.auth_http_addresses:
                # Imported late, so that a broker without auth servers starts without an HTTP client.
                from nsqfast.nsqd.auth import AuthClient

                self.auth = AuthClient(options)
            self.tcp_address = self._listen("TCP", options.tcp_address)
            if options.http_address:
                self.http_address = self._listen("HTTP", options.http_address)
            if self.tls_context is not None and options.https_address:
                self.https_address = self._listen("HTTPS", options.https_address)
            if options.http_admin_address:
                self.http_admin_address = self._listen(HTTP_ADMIN, options.http_admin_address)
            warn_if_open(log, options.unprotected())
        except OptionsError as error:
            raise OptionsError(f"failed to instantiate nsqd - {error}") from None
        if not options.broadcast_tcp_port:
            options.broadcast_tcp_port = _port(self.tcp_address)
        if not options.broadcast_http_port:
            options.broadcast_http_port = _port(self.http_address)
        options.statsd_prefix = expand_statsd_prefix(
            options.statsd_prefix, options.broadcast_address, options.broadcast_http_port
        )

    def _read_certificates(self) -> ssl.SSLContext | None:
        options = self.options
        if not options.has_tls:
            return None
        files = ServerTls(
            options.tls_cert,
            options.tls_key,
            options.tls_client_auth_policy,
            options.tls_root_ca_file,
            options.tls_min_version,
        )
        try:
            return files.context()
        except OptionsError as error:
            raise OptionsError(f"failed to build TLS config - {error}") from None

    def _check_authorities(self) -> None:
        if self.options.tls_root_ca_file:
            try:
                client_context(self.options.tls_root_ca_file, self.options.tls_min_version)
            except OptionsError as error:
                raise OptionsError(f"failed to build client TLS config - {error}") from None

    def reload(self) -> None:
        """Read certificates and secrets again, for new connections; bad ones change nothing."""
        try:
            context, credentials = self._read_certificates(), read_credentials(self.options)
            if self._policies is not None:
                self._policies.reload()
        except OptionsError as error:
            log.error("SIGHUP: certificates stay as they were: %s", error)  # noqa: TRY400
            return
        self.tls_context = self.registry.tls_context = context
        self.lookup.credentials = credentials
        if context is not None or credentials != Credentials():
            log.info("SIGHUP: certificates reloaded")
        elif not self.options.policy_file:
            log.info("SIGHUP: nothing to reload")

    def status(self) -> str:
        """Where it listens."""
        return addresses.format_listeners(self._sockets)

    def _listen(self, name: str, text: str) -> addresses.Bound:
        listener = addresses.listen(text)
        self._sockets[name] = listener
        return addresses.bound_address(listener)

    def _load(self) -> None:
        folder = self.options.data_path or os.getcwd()  # noqa: PTH109 - shown as text
        loop = asyncio.get_running_loop()
        try:
            self.registry = registry = Registry(self.options, self.topics_type)
        except OpenLogError as error:
            log.warning("NSQ: %s; it is repeated and closed first", error)
            self._close_log(folder)
            self.registry = registry = Registry(self.options, self.topics_type)
        self._turns = Turns(registry.memory)
        registry.tls_context = self.tls_context
        registry.authorizer = self.auth.ask if self.auth is not None else None
        self._timer = DeadlineTimer(loop, registry.timers.run)
        self._lag_probe = LagProbe(loop, self._timer.lag)
        registry.timers.on_deadline = self._timer.announce
        registry.turn.schedule_end = partial(loop.call_soon, registry.turn.end)
        # The commit log has records already, which no turn was asked for.
        registry.turn.schedule()
        self._sync_fd = registry.durability.fileno()
        loop.add_reader(self._sync_fd, registry.turn.on_synced)
        self._metadata = MetadataFile(registry.topics, folder)
        try:
            self._metadata.load()
        except OptionsError as error:
            raise OptionsError(f"failed to load metadata - {error}") from None
        # What the commit log repeated has been in memory.
        registry.memory.release_free()
        self._metadata.begin(loop)
        self.run_file = RunFile(folder, registry.topics)
        self.lookup = Lookup(registry.topics, self.options, self._credentials)
        self.drain = Drain(registry, self.lookup)
        self._free_disk = FreeDisk(
            registry.durability.store.health, folder, self.options.min_free_disk
        )
        registry.topics.on_change = self._changed
        registry.durability.on_deaths = self._note_deaths
        if os.path.lexists(Path(folder, DEATHS_NAME)):
            self._open_deaths().load()
        if self.options.policy_file or os.path.lexists(Path(folder, POLICIES_NAME)):
            self.load_policies()
        if os.path.lexists(Path(folder, REDRIVES_NAME)):
            self.load_redrives()

    def load_policies(self) -> "Policies":
        """The policies, which are read when they are first needed."""
        if self._policies is None:
            # Imported late, so that a broker without them starts without regular expressions of Go's kind.
            from nsqfast.nsqd.policies import Policies

            folder, file = self.options.data_path or ".", self.options.policy_file
            self._policies = Policies(self.registry.topics, folder, file)
            self._policies.load()
        return self._policies

    def load_redrives(self) -> "Redrives":
        """The redrives, which are read when they are first needed."""
        if self._redrives is None:
            from nsqfast.nsqd.redrives import Redrives

            folder = self.options.data_path or "."
            self._redrives = Redrives(self.registry.topics, lambda: self.deaths, folder)
            self._redrives.load()
        return self._redrives

    def _open_deaths(self) -> "DeathFile":
        if self.deaths is None:
            from nsqfast.nsqd.deaths import DeathFile

            self.deaths = DeathFile(self.options.data_path or ".", self.registry.topics)
            self.registry.find_deaths = self.deaths.find_encoded
        return self.deaths

    def _note_deaths(self, topic: str, pieces: "list[Piece]") -> None:
        self._open_deaths().add(topic, pieces)

    def _close_log(self, folder: str) -> None:
        """What only the log has goes to the other files, as with a start with it and a clean stop."""
        registry = Registry(replace(self.options, durable="always"), self.topics_type)
        try:
            MetadataFile(registry.topics, folder).load()
            write_metadata(folder, encode_metadata(registry.topics))
            registry.topics.close(StopProgress())
        except OSError as error:
            raise OptionsError(f"the commit log cannot be closed - {os_error(error)}") from None

    def _changed(self, kind: str, topic: str, channel: str | None) -> None:
        assert self._metadata is not None
        self._metadata.changed(kind, topic, channel)
        self.lookup.changed(kind, topic, channel)
        if kind == "topic-" and self.deaths is not None:
            self.deaths.forget(topic)
        if self._policies is not None and kind.endswith("+"):
            made = self.registry.topics.ensure(topic)
            self._policies.apply_to(made, None if channel is None else made.find_channel(channel))

    def _serve(self) -> None:
        registry = self.registry
        self._reserve = DescriptorReserve(asyncio.get_running_loop())
        refusal: Factory = partial(refuse_tcp, self.options.max_connections)
        connect = partial(self.connection_type, registry)
        self._serve_on("TCP", connect, registry.turn.client_count, refusal)
        for name in [name for name in ("HTTP", "HTTPS", HTTP_ADMIN) if name in self._sockets]:
            self._serve_http(name)
        self.lookup.configure()
        if self.options.statsd_address:
            self._statsd = Statsd(registry.topics, self.options)
            self._statsd.start()

    def _serve_http(self, name: str) -> None:
        # The operators' listener exists because plain HTTP may not do this; where everyone must use TLS, it does so
        # itself.
        is_admin = name == HTTP_ADMIN
        is_tls = name == "HTTPS" or (is_admin and self.options.tls_required == TLS_REQUIRED)
        is_for_all = is_admin or HTTP_ADMIN not in self._sockets
        bound = addresses.bound_address(self._sockets[name])
        options = self.options
        browsers = BrowserRules(bound, options.allowed_hosts, log, options.broadcast_address)
        api = self._make_http_api(self, browsers, is_plain=not is_tls, serves_admin=is_for_all)
        clients: set[Any] = set()
        self._clients.append(clients)
        connections = clients
        protocol: Factory = partial(
            HttpProtocol, api, connections=clients, turns=self._turns, shortcut=api.shortcut
        )
        refusal: Factory = refuse_http
        if is_tls:
            connections = set()  # includes connections whose handshake is not finished
            protocol = partial(self._under_tls, protocol, connections)
            refusal = partial(self._under_tls, refuse_http, None)
        self._serve_on(name, protocol, connections.__len__, refusal)

    def _under_tls(self, make_inner: Factory, connections: set[Any] | None) -> TlsProtocol:
        # The current context: a reload counts for every connection after it.
        assert self.tls_context is not None
        return TlsProtocol(make_inner, self.tls_context, self._turns, connections)

    def _serve_on(
        self, name: str, make: Factory, open_count: Callable[[], int], refusal: Factory
    ) -> None:
        assert self._reserve is not None
        count_max = self.options.max_connections
        ceiling = Ceiling(count_max, refusal) if count_max else None
        listener = self._sockets[name]
        self.listeners[name] = Listener(name, listener, make, self._reserve, open_count, ceiling)
        self.listeners[name].start()
        address = addresses.format_bound(addresses.bound_address(listener))
        log.info("%s: listening on %s", name, address)

    @property
    def lag(self) -> Histogram:
        """How late the loop's timers fired."""
        assert self._timer is not None
        return self._timer.lag

    def watch_lag(self) -> None:
        """Measure the lag for a while even if no timer is due, because somebody is looking at it."""
        assert self._lag_probe is not None
        self._lag_probe.watch()

    def health(self) -> str:
        """OK, or NOK with the last disk error, of the queues or of nsqd.dat."""
        assert self._metadata is not None
        health: str = self.registry.durability.health()
        health = health if health != "OK" else self._metadata.health
        return health if health != "OK" or self._policies is None else self._policies.health

    async def persist_metadata(self, topic: str | None = None) -> None:
        """Return when nsqd.dat is up to date; OSError if it could not be written."""
        assert self._metadata is not None
        await self._metadata.persist(topic)

    async def stop(self) -> None:
        """Disconnect everybody, keep everything that is not ephemeral on disk, release the folder.

        OSError says what a disk did not take, after all the rest is done.
        """
        self.drain.close()
        self._free_disk.close()
        if self._statsd is not None:
            await self._statsd.stop()
        await self.lookup.stop()
        self._close_listener("TCP", self.tcp_address)
        connection: BrokerConnection
        for connection in self.registry.turn.clients():
            connection.abort()
        if self.auth is not None:
            await self.auth.close()
        self._close_listener("HTTP", self.http_address)
        self._close_listener("HTTPS", self.https_address)
        self._close_listener(HTTP_ADMIN, self.http_admin_address)
        if self._redrives is not None:
            await self._redrives.close()
        with contextlib.suppress(OSError):  # already logged
            await self.persist_metadata()
        # From here on names vanish because the broker stops, not because somebody deleted them.
        self.registry.topics.on_change = None
        if self._metadata is not None:
            self._metadata.close()
        lost: OSError | None = None
        try:
            self.registry.topics.close(StopProgress())
        except OSError as error:
            lost = error
        if self.deaths is not None:
            self.deaths.close()
        # One turn for answers to HTTP requests whose messages have just reached the disk.
        await asyncio.sleep(0)
        self.run_file.end()
        self._release()
        if lost is not None:
            raise lost
        log.info("NSQ: bye")

    def _close_listener(self, name: str, address: addresses.Bound | None) -> None:
        listener = self.listeners.pop(name, None)
        bound = self._sockets.pop(name, None)
        if bound is None or address is None:
            return
        log.info("%s: closing %s", name, addresses.format_bound(address))
        if listener is not None:
            listener.close()
        bound.close()
        addresses.remove_path(address)

    def _release(self) -> None:
        self._close_listener("TCP", self.tcp_address)
        self._close_listener("HTTP", self.http_address)
        self._close_listener("HTTPS", self.https_address)
        self._close_listener(HTTP_ADMIN, self.http_admin_address)
        if self._reserve is not None:
            self._reserve.close()
        for client in [client for clients in self._clients for client in clients]:
            client.close()
        if self._metadata is not None:
            self._metadata.close()
        if self._timer is not None:
            self._timer.close()
            self.registry.timers.close()
        if self._lag_probe is not None:
            self._lag_probe.close()
        if self._sync_fd >= 0:
            asyncio.get_running_loop().remove_reader(self._sync_fd)
            self._sync_fd = -1
        if self._lock is not None:
            self._lock.release()


def _port(address: addresses.Bound | None) -> int:
    return address[1] if isinstance(address, tuple) else 0
