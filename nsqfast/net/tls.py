"""TLS contexts from certificates on disk."""

import ssl


def client_context(root_ca_file: str, version_min: int) -> ssl.SSLContext:
    """Verifies a server by the given authorities, or by the system's for ''; OSError if the file is no good.

    `version_min` is the protocol's number, 0x303 for TLS 1.2.
    """
    context = ssl.create_default_context(cafile=root_ca_file or None)
    context.minimum_version = ssl.TLSVersion(version_min)
    return context
