"""From an address to a connection that is ready: magic, IDENTIFY, TLS, compression, AUTH (spec client §2).

Unlike go-nsq's, this refuses the connection if `tls_v1` is set and the broker does not grant TLS: a user who asks for
TLS does not want plain text.
"""

import asyncio
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import orjson

from nsqfast._ext.client.connection import ClientConnection
from nsqfast._ext.client.consume_connection import ConsumeConnection, MessageQueue
from nsqfast._ext.client.publish_connection import PublishConnection
from nsqfast.client.addresses import check_address, local_address
from nsqfast.client.config import TLS_VERSIONS, Config, milliseconds, seconds
from nsqfast.client.lifetime import Logger, log
from nsqfast.errors import ConnectError, OptionsError, ProtocolError, RefusedError
from nsqfast.net.addresses import Inet, Unix, parse_address
from nsqfast.streams import load_snappy
from nsqfast.streams.adapter import Adapter
from nsqfast.streams.deflate import Deflate
from nsqfast.streams.tls import TlsStream
from nsqfast.version import __version__
from nsqfast.wire.gotext import os_error
from nsqfast.wire.protocol import MAGIC_V2, MAY_REJECT, TELLS_IDS

L = TypeVar("L", bound=ClientConnection)

HANDSHAKE_TIMEOUT_S = 10.0
INT_MAX = (1 << 31) - 1
VERSION_LENGTH_MAX = 60


class ProducerConnection(PublishConnection, asyncio.BufferedProtocol):
    """A connection in the form that asyncio can read into."""

    __slots__ = ()


class ConsumerConnection(ConsumeConnection, asyncio.BufferedProtocol):
    """The same for consuming."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Features:
    """The relevant parts of a broker's answer to IDENTIFY; times in milliseconds."""

    max_rdy_count: int = 2500
    msg_timeout_ms: int = 60_000
    tls_v1: bool = False
    deflate: bool = False
    snappy: bool = False
    auth_required: bool = False
    version: str = ""
    tells_ids: bool = False
    may_reject: bool = False

    @property
    def name(self) -> str:
        """The address as log lines show it."""
        return f"nsqd {self.version}".rstrip()


def prepare(config: Config, logger: Logger = log) -> ssl.SSLContext | None:
    """Check everything that can be checked before connecting; returns the context of `tls_context`."""
    local_address(config.local_addr)
    if config.snappy:
        load_snappy()
    return tls_context(config, logger)


def lookupd_context(config: Config) -> ssl.SSLContext | None:
    """Verifies an nsqlookupd whose URL is https:// against tls_root_ca_file and the system's authorities, and shows it
    tls_cert; None if neither is set, OptionsError if a file is unusable.
    """
    if not (config.tls_root_ca_file or config.tls_cert):
        return None
    from nsqfast.net.tls import TLS_1_2, client_context

    context = client_context(config.tls_root_ca_file, TLS_1_2, config.tls_cert, config.tls_key)
    context.load_default_certs()
    return context


def tls_context(config: Config, logger: Logger = log) -> ssl.SSLContext | None:
    """A context according to the options, or None without `tls_v1`; OptionsError if a file is unusable."""
    if not config.tls_v1:
        if config.tls_root_ca_file or config.tls_cert:
            logger.warning(
                "certificates are set but tls_v1 is not: connections to nsqd are in plain text"
            )
        return None
    from nsqfast.net.tls import client_context

    version = TLS_VERSIONS[config.tls_min_version or "tls1.2"]
    context = client_context(config.tls_root_ca_file, version)
    if config.tls_insecure_skip_verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if config.tls_cert:
        try:
            context.load_cert_chain(config.tls_cert, config.tls_key)
        except (OSError, ssl.SSLError) as error:
            raise OptionsError(f"tls_cert: {config.tls_cert}, {config.tls_key}: {error}") from None
    return context


async def dial(
    address: str, config: Config, context: ssl.SSLContext | None, make: Callable[[], L]
) -> tuple[L, Features]:
    """Open a connection that may publish or subscribe; ConnectError says why that failed."""
    connection = await _connect(check_address(address), config, make)
    try:
        async with asyncio.timeout(HANDSHAKE_TIMEOUT_S):
            features = await _introduce(connection, address, config, context)
    except BaseException as error:
        connection.fail(error if isinstance(error, Exception) else ConnectError("given up"))
        if isinstance(error, TimeoutError):
            raise ConnectError(f"no answer to IDENTIFY in {HANDSHAKE_TIMEOUT_S:g} s") from None
        raise
    heartbeats = milliseconds(config.heartbeat_interval) > 0
    connection.watch(
        seconds(config.read_timeout) if heartbeats else 0, seconds(config.write_timeout)
    )
    return connection, features


async def _connect(address: Inet | Unix, config: Config, make: Callable[[], L]) -> L:
    loop = asyncio.get_running_loop()
    timeout_s = seconds(config.dial_timeout)
    # The loops' types demand what they only check at run time: any BufferedProtocol will do.
    factory: Any = make
    try:
        async with asyncio.timeout(timeout_s if timeout_s > 0 else None):
            if isinstance(address, Unix):
                _, connection = await loop.create_unix_connection(factory, address.path)
            else:
                _, connection = await loop.create_connection(
                    factory,
                    address.host,
                    int(address.port),
                    local_addr=local_address(config.local_addr),
                )
    except TimeoutError:
        raise ConnectError(f"no connection in {timeout_s:g} s") from None
    except OSError as error:
        raise ConnectError(os_error(error)) from None
    except ValueError as error:  # the host cannot be encoded as a name: "a..b"
        raise ConnectError(f"{address}: {error}") from None
    found: L = connection
    return found


async def _introduce(
    connection: ClientConnection, address: str, config: Config, context: ssl.SSLContext | None
) -> Features:
    connection.tell(MAGIC_V2)
    told = identity(config, rejects=isinstance(connection, ConsumeConnection))
    reply = await connection.ask(_sized(b"IDENTIFY\n", told), block_after=True)
    if not reply.startswith(b"{"):
        connection.proceed()  # an old broker that negotiates nothing
        if context is not None:
            raise RefusedError("TLS is asked for (tls_v1), and nsqd does not negotiate")
        return Features()
    features = read_features(reply)
    for layer in _layers(features, address, config, context):
        answer = connection.ask(b"", block_after=True)
        connection.put_layer(layer)
        if await answer != b"OK":
            raise ProtocolError("E_BAD_FRAME", f"{answer.result()[:60]!r} instead of OK")
    connection.proceed()
    if features.auth_required:
        if not config.auth_secret:
            raise RefusedError("E_AUTH_FIRST nsqd wants an auth_secret")
        await connection.ask(_sized(b"AUTH\n", config.auth_secret.encode()))
    return features


def identity(config: Config, *, rejects: bool) -> bytes:
    """The JSON of IDENTIFY, with every key as go-nsq sends it, and what nsqfast-nsqd may be asked for."""
    return orjson.dumps(
        {
            "client_id": config.client_id,
            "hostname": config.hostname,
            "short_id": config.client_id,
            "long_id": config.hostname,
            "user_agent": config.user_agent or f"nsqfast/{__version__}",
            "tls_v1": config.tls_v1,
            "deflate": config.deflate,
            "deflate_level": config.deflate_level,
            "snappy": config.snappy,
            "feature_negotiation": True,
            "heartbeat_interval": milliseconds(config.heartbeat_interval),
            "sample_rate": config.sample_rate,
            "output_buffer_size": config.output_buffer_size,
            "output_buffer_timeout": milliseconds(config.output_buffer_timeout),
            "msg_timeout": milliseconds(config.msg_timeout),
            TELLS_IDS: True,
            **({MAY_REJECT: True} if rejects else {}),
        }
    )


def _sized(line: bytes, body: bytes) -> bytes:
    return line + len(body).to_bytes(4, "big") + body


def read_features(reply: bytes) -> Features:
    """Read the JSON of the answer; keys that are missing, null or 0 have the values without negotiation."""
    try:
        answer = orjson.loads(reply)
    except ValueError:
        answer = None
    if not isinstance(answer, dict):
        raise ProtocolError("E_BAD_FRAME", f"not JSON: {reply[:60]!r}")
    return Features(
        version=_printable(answer.get("version")),
        **_counts(answer, max_rdy_count="max_rdy_count", msg_timeout_ms="msg_timeout"),
        **_switches(answer, "tls_v1", "deflate", "snappy", "auth_required"),
        tells_ids=_switches(answer, TELLS_IDS).get(TELLS_IDS, False),
        may_reject=_switches(answer, MAY_REJECT).get(MAY_REJECT, False),
    )


def _printable(value: object) -> str:
    """A peer's text, made safe for log lines."""
    return value[:VERSION_LENGTH_MAX] if isinstance(value, str) and value.isprintable() else ""


def _counts(answer: dict[str, Any], **names: str) -> dict[str, Any]:
    found = {field: answer[name] for field, name in names.items() if answer.get(name)}
    for field, value in found.items():
        if type(value) is not int or not 0 < value <= INT_MAX:
            raise ProtocolError("E_BAD_FRAME", f"{names[field]} is {value!r:.60}")
    return found


def _switches(answer: dict[str, Any], *names: str) -> dict[str, Any]:
    found = {name: answer[name] for name in names if answer.get(name) is not None}
    for name, value in found.items():
        if type(value) is not bool:
            raise ProtocolError("E_BAD_FRAME", f"{name} is {value!r:.60}")
    return found


def _layers(
    features: Features, address: str, config: Config, context: ssl.SSLContext | None
) -> list[Adapter]:
    """The layers that the answer grants, in the order in which they are added."""
    found: list[Adapter] = []
    if context is not None:
        if not features.tls_v1:
            raise RefusedError("TLS is asked for (tls_v1), and nsqd does not grant it")
        place = parse_address(address)
        found.append(TlsStream(context, place.host if isinstance(place, Inet) else "localhost"))
    if features.deflate:
        found.append(Deflate(config.deflate_level))
    if features.snappy:
        found.append(load_snappy()())
    return found


def make_consumer_connection(
    inbox: MessageQueue, closed: Callable[[Any], None]
) -> Callable[[], ConsumerConnection]:
    """For `dial`."""
    loop = asyncio.get_running_loop()
    return lambda: ConsumerConnection(loop, closed, inbox)


def make_producer_connection(closed: Callable[[Any], None]) -> Callable[[], ProducerConnection]:
    """For `dial`."""
    loop = asyncio.get_running_loop()
    return lambda: ProducerConnection(loop, closed)


async def subscribe(connection: ConsumeConnection, topic: str, channel: str) -> None:
    """Send SUB on a connection that `dial` made; fails with nsqd's error."""
    try:
        answer = await connection.ask(f"SUB {topic} {channel}\n".encode())
    except asyncio.CancelledError:
        connection.fail(ConnectError("given up"))
        raise
    if answer != b"OK":
        error = ConnectError(f"{answer[:60]!r} instead of OK to SUB")
        connection.fail(error)
        raise error
