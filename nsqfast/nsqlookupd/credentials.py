"""How peers and nsqlookupd prove to each other who they are."""

import ssl
from dataclasses import dataclass

from nsqfast.net.secret_file import read_secret
from nsqfast.nsqlookupd.options import Options


@dataclass(frozen=True, slots=True)
class Credentials:
    """What counts for new connections."""

    secret: str  # that nsqd have to send; '' = none
    tls: ssl.SSLContext | None  # of both listeners; None = plain


def read_credentials(options: Options) -> Credentials:
    """Read the files as they are now; OptionsError if they are unusable."""
    secret = read_secret("--registration-secret-file", options.registration_secret_file)
    if not options.tls_cert:
        return Credentials(secret, None)
    # Imported late, so that an nsqlookupd without a certificate starts without TLS.
    from nsqfast.net.tls import TLS_1_2, VERIFIED_CERTIFICATE, ServerTls

    policy = VERIFIED_CERTIFICATE if options.tls_client_ca else ""
    files = ServerTls(options.tls_cert, options.tls_key, policy, options.tls_client_ca, TLS_1_2)
    return Credentials(secret, files.context())
