"""Certificates for tests: a broker's, a client's, and those of an authority that nobody trusts."""

from __future__ import annotations

import ssl
import warnings
from typing import TYPE_CHECKING

import trustme

if TYPE_CHECKING:
    from pathlib import Path


class Certificates:
    """PEM files in one folder: NAME.crt and NAME.key; ca.crt and other-ca.crt."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.authority = trustme.CA()
        stranger = trustme.CA()
        self.authority.cert_pem.write_to_path(str(folder / "ca.crt"))
        stranger.cert_pem.write_to_path(str(folder / "other-ca.crt"))
        self.issue_server("server")
        self._write("client", self.authority.issue_cert("client@here", common_name="joe"))
        self._write("stranger", stranger.issue_cert("client@there", common_name="mallory"))
        self._write("other-server", stranger.issue_cert("127.0.0.1"))

    def issue_server(self, name: str) -> None:
        """A new one for the address that tests use; its files may be those of an older one."""
        self._write(name, self.authority.issue_cert("127.0.0.1", "localhost"))

    def _write(self, name: str, leaf: trustme.LeafCert) -> None:
        leaf.private_key_pem.write_to_path(self.path(f"{name}.key"))
        leaf.cert_chain_pems[0].write_to_path(self.path(f"{name}.crt"))

    def path(self, name: str) -> str:
        return str(self.folder / name)

    def flags(self, name: str = "server") -> list[str]:
        """Those of a broker."""
        return [
            f"--tls-cert={self.path(name + '.crt')}",
            f"--tls-key={self.path(name + '.key')}",
            "--https-address=127.0.0.1:0",
        ]

    def client_context(
        self, name: str | None = None, version: ssl.TLSVersion | None = None
    ) -> ssl.SSLContext:
        """Trusts our authority, shows the certificate of that name, speaks that version only."""
        context = ssl.create_default_context(cafile=self.path("ca.crt"))
        if name is not None:
            context.load_cert_chain(self.path(f"{name}.crt"), self.path(f"{name}.key"))
        if version is not None:
            if version < ssl.TLSVersion.TLSv1_2:
                context.set_ciphers("DEFAULT@SECLEVEL=0")
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)
                context.minimum_version = context.maximum_version = version
        return context


class TlsSocket:
    """A socket under TLS that one can see below; `ended` = the peer said that it was all."""

    def __init__(self, raw, context: ssl.SSLContext, early: bytes = b"") -> None:
        self.raw = raw
        self.ended = False
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._incoming.write(early)
        self.tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname="127.0.0.1")
        self._run(self.tls.do_handshake)

    def _run(self, step):
        while True:
            try:
                done = step()
            except ssl.SSLWantReadError:
                self._push()
                data = self.raw.recv(65536)
                if not data:
                    raise EOFError from None
                self._incoming.write(data)
            except ssl.SSLZeroReturnError:
                self.ended = True
                return b""
            else:
                return done
            finally:
                self._push()

    def _push(self) -> None:
        if data := self._outgoing.read():
            self.raw.sendall(data)

    def sendall(self, data: bytes) -> None:
        self._run(lambda: self.tls.write(data))

    def recv(self, size: int) -> bytes:
        try:
            data = self._run(lambda: self.tls.read(size))
        except EOFError:
            return b""
        self.ended |= not data
        return data

    def settimeout(self, seconds: float) -> None:
        self.raw.settimeout(seconds)

    def end(self) -> None:
        """Say that nothing more comes; the socket stays open."""
        try:
            self.tls.unwrap()
        except ssl.SSLWantReadError:
            self._push()

    def close(self) -> None:
        self.raw.close()
