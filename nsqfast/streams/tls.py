"""TLS on memory buffers: the socket stays plain.

So a failed handshake can be answered with an error frame that a client without TLS can read, as NSQ does (spec nsqd-tcp
§8).
"""

import contextlib
import re
import ssl
from collections.abc import Iterator
from typing import Any

from nsqfast.streams.adapter import PIECE_SIZE_MAX, Adapter, StreamError

ALERT_RECORD, HANDSHAKE_RECORD = 0x15, 0x16
# Measured as resident bytes of 500 server sides after the handshake and a record each way, divided.
TLS_SIZE = 18_000
NOT_TLS = "tls: first record does not look like a TLS handshake"

# Go's texts for the most frequent failures; OpenSSL's names on the left.
_REASONS = {
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "tls: client didn't provide a certificate",
    "UNSUPPORTED_PROTOCOL": "tls: client offered only unsupported versions",
    "NO_SHARED_CIPHER": "tls: no cipher suite supported by both client and server",
}
_ALERT = re.compile(r"(?:SSLV3|TLSV1|TLSV13)_ALERT_(\w+)")
_SUITE = re.compile(
    r"(?:(?P<exchange>ECDHE|DHE)-(?P<signed>ECDSA|RSA)-)?(?:(?P<cipher>AES)(?P<bits>128|256)(?P<gcm>-GCM)?"
    r"|(?P<chacha>CHACHA20-POLY1305))(?:-(?P<mac>SHA\d*))?"
)


class TlsStream(Adapter):
    """One connection; the peer's identity is known once `is_ready`.

    If a server name is given, it is the client's side, which sends first: `unpack(b"")` makes that message.
    """

    size = TLS_SIZE

    def __init__(self, context: ssl.SSLContext, server_name: str | None = None) -> None:
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._is_server = server_name is None
        self._tls = context.wrap_bio(
            self._incoming,
            self._outgoing,
            server_side=self._is_server,
            server_hostname=server_name or None,
        )
        self._has_begun = False
        self.is_ready = False
        self.at_end = False
        self.version = ""  # in NSQ's form: TLS1.3
        self.cipher_suite = ""  # by its registered name
        self.common_name = ""  # of the client's certificate

    def pack(self, data: bytes) -> bytes:
        rest = memoryview(data)
        while rest:  # one record at a time, as OpenSSL is told to
            rest = rest[self._tls.write(rest) :]
        return self._outgoing.read()

    def unpack(self, data: bytes) -> Iterator[bytes]:
        if not self._has_begun and data:
            # A server may refuse our first message.
            if data[0] != HANDSHAKE_RECORD and (self._is_server or data[0] != ALERT_RECORD):
                raise StreamError(NOT_TLS)
            self._has_begun = True
        self._incoming.write(data)
        try:
            if not self.is_ready:
                self._shake_hands()
            while piece := self._tls.read(PIECE_SIZE_MAX):
                yield piece
            self.at_end = True
        except ssl.SSLWantReadError:
            return
        except ssl.SSLZeroReturnError:
            self.at_end = True
        except ssl.SSLError as error:
            raise StreamError(reason(error)) from None

    def _shake_hands(self) -> None:
        self._tls.do_handshake()
        self.is_ready = True
        self.version = (self._tls.version() or "").replace("TLSv", "TLS")
        cipher = self._tls.cipher()
        self.cipher_suite = registered_name(cipher[0]) if cipher else ""
        self.common_name = common_name(self._tls.getpeercert())

    def reply(self) -> bytes:
        return self._outgoing.read()

    def end(self) -> bytes:
        # It also waits for the peer's own end, which does not matter.
        with contextlib.suppress(ssl.SSLError):
            self._tls.unwrap()
        return self._outgoing.read()


def reason(error: ssl.SSLError) -> str:
    """The reason in Go's words, if known."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"tls: failed to verify certificate: {error.verify_message}"
    name = error.reason or "handshake failure"
    if name in _REASONS:
        return _REASONS[name]
    alert = _ALERT.fullmatch(name)
    words = (alert[1] if alert else name).lower().replace("_", " ")
    return f"remote error: tls: {words}" if alert else f"tls: {words}"


def common_name(certificate: Any) -> str:
    """The last CN of a certificate's subject (the form of ssl.getpeercert), '' for none."""
    if not certificate:
        return ""
    names = [
        value
        for parts in certificate.get("subject", ())
        for key, value in parts
        if key == "commonName"
    ]
    return names[-1] if names else ""


def registered_name(name: str) -> str:
    """The IANA name of the cipher suite `name` of OpenSSL; `name` itself if it is one already, or unknown."""
    found = _SUITE.fullmatch(name)
    if found is None:
        return name
    exchange = f"{found['exchange']}_{found['signed']}" if found["exchange"] else "RSA"
    if found["chacha"]:
        return f"TLS_{exchange}_WITH_CHACHA20_POLY1305_SHA256"
    mode = "GCM" if found["gcm"] else "CBC"
    return f"TLS_{exchange}_WITH_AES_{found['bits']}_{mode}_{found['mac']}"
