"""TLS contexts from certificates on disk.

`version_min` is always the protocol's number: 0x303 for TLS 1.2.
"""

import ssl
from dataclasses import dataclass
from pathlib import Path

from nsqfast.errors import OptionsError
from nsqfast.program.extras import needs
from nsqfast.wire.gotext import os_error

TLS_1_2 = 0x303
ANY_CERTIFICATE, VERIFIED_CERTIFICATE = "require", "require-verify"
_REASONS = {
    "KEY_VALUES_MISMATCH": "private key does not match public key",
    "KEY_TYPE_MISMATCH": "private key does not match public key",
    "EE_KEY_TOO_SMALL": "the key is too small (RSA needs 2048 bits)",
}


@dataclass(frozen=True, slots=True)
class ServerTls:
    """The TLS flags of a server; `context` reads the files."""

    cert: str
    key: str
    client_auth_policy: str
    root_ca_file: str
    version_min: int

    def context(self) -> ssl.SSLContext:
        """Make a context from the files as they are now; OptionsError if they are unusable."""
        context = self._plain_context()
        context.minimum_version = ssl.TLSVersion(self.version_min)
        # Do not renegotiate keys for a peer that asks again and again.
        context.options |= ssl.OP_NO_RENEGOTIATION
        if self.version_min < TLS_1_2:
            # OpenSSL 3 supports these versions only at its lowest security level.
            context.set_ciphers("DEFAULT:@SECLEVEL=0")
        load_certificate(context, self.cert, self.key)
        if self.root_ca_file:
            _load_authorities(context, self.root_ca_file)
        return context

    def _plain_context(self) -> ssl.SSLContext:
        if self.client_auth_policy == ANY_CERTIFICATE:
            with needs("--tls-client-auth-policy=require", "server"):
                from nsqfast.net.any_certificate import AnyCertificateContext

            return AnyCertificateContext(ssl.PROTOCOL_TLS_SERVER)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        if self.client_auth_policy == VERIFIED_CERTIFICATE:
            context.verify_mode = ssl.CERT_REQUIRED
            if not self.root_ca_file:
                context.load_default_certs(ssl.Purpose.CLIENT_AUTH)
        return context


def client_context(
    root_ca_file: str, version_min: int, cert: str = "", key: str = ""
) -> ssl.SSLContext:
    """Verifies a server against the given authorities, or the system's for '', and shows it the certificate if there is
    one; OptionsError if a file is unusable.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion(version_min)
    if root_ca_file:
        _load_authorities(context, root_ca_file)
    else:
        context.load_default_certs()
    if cert or key:
        load_certificate(context, cert, key)
    return context


def load_certificate(context: ssl.SSLContext, cert: str, key: str) -> None:
    """OptionsError says, in Go's words where it has some, why it is none that can be shown."""
    if b"-----BEGIN CERTIFICATE-----" not in _read(cert):
        raise OptionsError("tls: failed to find any PEM data in certificate input")
    data = _read(key)
    if b"PRIVATE KEY-----" not in data:
        raise OptionsError("tls: failed to find any PEM data in key input")
    if b"ENCRYPTED" in data:
        raise OptionsError(f"tls: the private key {key} is encrypted; give one that is not")
    try:
        context.load_cert_chain(cert, key)
    except ssl.SSLError as error:
        raise OptionsError(f"tls: {cert}, {key}: {_words(error)}") from None


def _load_authorities(context: ssl.SSLContext, path: str) -> None:
    try:
        context.load_verify_locations(cadata=_read(path).decode("ascii", "replace"))
    except (ssl.SSLError, ValueError):
        raise OptionsError("failed to append certificate to pool") from None


def _read(path: str) -> bytes:
    if not path:
        raise OptionsError("open : no such file or directory")
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise OptionsError(f"open {path}: {os_error(error)}") from None


def _words(error: ssl.SSLError) -> str:
    return _REASONS.get(error.reason or "", str(error))
