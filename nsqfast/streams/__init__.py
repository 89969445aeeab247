"""The layers between the bytes of a socket and those of the protocol: TLS, snappy, deflate."""

import ssl
from typing import Protocol

from nsqfast.program.extras import needs
from nsqfast.streams.adapter import Adapter
from nsqfast.streams.deflate import Deflate
from nsqfast.streams.tls import TlsStream


class Granted(Protocol):
    """The relevant parts of an Identity."""

    tls: bool
    deflate: bool
    deflate_level: int
    snappy: bool


def upgrades(granted: Granted, tls_context: ssl.SSLContext | None) -> list[Adapter]:
    """The layers that IDENTIFY agreed on, in the order in which they are added; often none."""
    found: list[Adapter] = []
    if granted.tls and tls_context is not None:
        found.append(TlsStream(tls_context))
    if granted.deflate:
        found.append(Deflate(granted.deflate_level))
    elif granted.snappy:
        found.append(load_snappy()())
    return found


def load_snappy() -> type[Adapter]:
    """The class; PackageMissingError where what it needs is not installed."""
    with needs("snappy", "snappy"):
        from nsqfast.streams.snappy import Snappy
    return Snappy
