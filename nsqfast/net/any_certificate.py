"""`--tls-client-auth-policy=require`: a client must present a certificate, but any will do.

The standard library verifies every certificate that it asked for. pyOpenSSL leaves that to a callback, so this policy
uses its connections, wrapped in the interface of ssl.SSLObject as far as uvloop and TlsStream need it.
"""

import ssl
from collections.abc import Callable
from typing import Any, TypeVar

from OpenSSL import SSL

T = TypeVar("T")

PIECE_SIZE = 65536
OLD_TLS = "DEFAULT:@SECLEVEL=0"


class AnyCertificateContext(ssl.SSLContext):
    """An SSLContext for servers; set its lowest version before loading its certificate."""

    _native: SSL.Context

    def load_cert_chain(self, certfile: Any, keyfile: Any = None, password: Any = None) -> None:
        """Load the PEM files; SSLError as usual."""
        super().load_cert_chain(certfile, keyfile, password)
        native = SSL.Context(SSL.TLS_SERVER_METHOD)
        native.set_min_proto_version(self.minimum_version)
        native.set_options(self.options)
        native.set_cipher_list(self._ciphers().encode())
        native.use_certificate_chain_file(certfile)
        native.use_privatekey_file(keyfile)
        # Without it OpenSSL refuses to resume the session of a client that was asked for a certificate.
        native.set_session_id(b"nsqfast")
        native.set_verify(SSL.VERIFY_PEER | SSL.VERIFY_FAIL_IF_NO_PEER_CERT, _accept)
        self._native = native

    def _ciphers(self) -> str:
        if self.minimum_version < ssl.TLSVersion.TLSv1_2:
            return OLD_TLS
        return ":".join(cipher["name"] for cipher in self.get_ciphers())

    def wrap_bio(  # type: ignore[override]
        self,
        incoming: ssl.MemoryBIO,
        outgoing: ssl.MemoryBIO,
        server_side: bool = False,
        server_hostname: str | bytes | None = None,  # noqa: ARG002
        session: Any = None,  # noqa: ARG002
    ) -> "AnyCertificateObject":
        """The server's side of one connection."""
        assert server_side
        return AnyCertificateObject(self._native, incoming, outgoing)


class AnyCertificateObject:
    """The part of ssl.SSLObject that is used, with its exceptions."""

    def __init__(
        self, context: SSL.Context, incoming: ssl.MemoryBIO, outgoing: ssl.MemoryBIO
    ) -> None:
        self._incoming = incoming
        self._outgoing = outgoing
        self._connection = SSL.Connection(context, None)
        self._connection.set_accept_state()

    def do_handshake(self) -> None:
        """Raise SSLWantReadError until the peer has sent enough."""
        self._do(self._connection.do_handshake)

    def read(self, size: int = PIECE_SIZE) -> bytes:
        """Read the data that has come, at most `size` bytes."""
        return self._do(lambda: self._connection.recv(size))

    def write(self, data: Any) -> int:
        """Write data; returns how much was written, at most one record."""
        return self._do(lambda: self._connection.send(data))

    def unwrap(self) -> None:
        """Announce the end of our data, without waiting."""
        self._do(self._connection.shutdown)

    def _do(self, step: Callable[[], T]) -> T:
        if data := self._incoming.read():
            self._connection.bio_write(data)
        try:
            return step()
        except SSL.WantReadError:
            raise ssl.SSLWantReadError from None
        except SSL.ZeroReturnError:
            raise ssl.SSLZeroReturnError from None
        except SSL.Error as error:
            raise _translated(error) from None
        finally:
            self._collect()

    def _collect(self) -> None:
        while True:
            try:
                self._outgoing.write(self._connection.bio_read(PIECE_SIZE))
            except SSL.WantReadError:
                return

    def getpeercert(self, binary_form: bool = False) -> dict[str, Any]:  # noqa: ARG002
        """Nothing, as from ssl.SSLObject: nobody has verified the certificate, so anyone can write any name into it."""
        return {}

    def cipher(self) -> tuple[str, str, int] | None:
        """Name, version, bits."""
        name = self._connection.get_cipher_name()
        if name is None:
            return None
        return name, self.version(), self._connection.get_cipher_bits() or 0

    def version(self) -> str:
        """For example, TLSv1.3."""
        return self._connection.get_protocol_version_name()

    def compression(self) -> None:
        """Always none."""


def _accept(*_: object) -> bool:
    return True


def _translated(error: SSL.Error) -> ssl.SSLError:
    reasons = error.args[0] if error.args else ()
    text = reasons[0][2] if reasons and len(reasons[0]) > 2 else "unexpected EOF"
    translated = ssl.SSLError(1, text)
    translated.reason = text.upper().replace(" ", "_").replace("/", "_")
    return translated
