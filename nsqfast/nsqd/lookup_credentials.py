"""How this broker and every nsqlookupd prove to each other who they are."""

import ssl
from dataclasses import dataclass

from nsqfast.errors import OptionsError
from nsqfast.net.secret_file import read_secret
from nsqfast.net.tls import TLS_1_2, client_context
from nsqfast.nsqd.options import Options


@dataclass(frozen=True, slots=True)
class Credentials:
    """What counts for new connections."""

    secret: str = ""  # '' = none
    tls: ssl.SSLContext | None = None  # None = plain


def read_credentials(options: Options) -> Credentials:
    """Read the files as they are now; OptionsError if they are unusable."""
    secret = read_secret("--registration-secret-file", options.registration_secret_file)
    files = options.lookupd_tls_root_ca_file, options.lookupd_tls_cert, options.lookupd_tls_key
    if options.lookupd_tls:
        authorities, cert, key = files
        return Credentials(secret, client_context(authorities, TLS_1_2, cert, key))
    if any(files):
        raise OptionsError("certificates for nsqlookupd need TLS: give --lookupd-tls")
    return Credentials(secret)
