"""nsqfast-nsqlookupd --check."""

from collections.abc import Iterator
from functools import partial

from nsqfast.findings import Finding
from nsqfast.net.checkup import (
    check_host,
    check_limits,
    check_listeners,
    check_openness,
    try_out,
)
from nsqfast.net.secret_file import read_secret
from nsqfast.nsqlookupd.options import OPEN_ADVICE, REGISTRATION_FLAG, Options, validate


def check(options: Options) -> Iterator[Finding]:
    """All that can be known before a start."""
    yield try_out("settings", partial(validate, options), "they go together")
    if path := options.registration_secret_file:
        read = partial(read_secret, REGISTRATION_FLAG, path)
        yield try_out(REGISTRATION_FLAG, read, f"{path} has a secret")
    yield from check_listeners(options.listening())
    yield from check_openness(options.unprotected(), OPEN_ADVICE)
    address = options.broadcast_address
    yield check_host("--broadcast-address", address, address)
    yield from check_limits(options.max_connections)
