"""nsqfast-nsqlookupd --check."""

from collections.abc import Iterator
from functools import partial

from nsqfast.net.checkup import (
    check_host,
    check_limits,
    check_listeners,
    check_openness,
    try_out,
)
from nsqfast.nsqlookupd.credentials import read_credentials
from nsqfast.nsqlookupd.options import Options, validate
from nsqfast.program.findings import Finding


def check(options: Options) -> Iterator[Finding]:
    """All that can be known before a start."""
    yield try_out("settings", partial(validate, options), "they go together")
    if options.tls_cert or options.registration_secret_file:
        yield try_out("credentials", partial(read_credentials, options), "they are readable")
    yield from check_listeners(options.listening())
    yield from check_openness(options.unprotected())
    address = options.broadcast_address
    yield check_host("--broadcast-address", address, address)
    yield from check_limits(options.max_connections)
