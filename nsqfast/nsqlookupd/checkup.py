"""nsqfast-nsqlookupd --check."""

from collections.abc import Iterator
from functools import partial

from nsqfast.findings import Finding
from nsqfast.net.checkup import (
    check_host,
    check_limits,
    check_listeners,
    check_openness,
    check_settings,
)
from nsqfast.nsqlookupd.options import OPEN_ADVICE, Options, validate


def check(options: Options) -> Iterator[Finding]:
    """All that can be known before a start."""
    yield check_settings(partial(validate, options))
    flags = list(options.listening())
    yield from check_listeners(flags)
    yield from check_openness(flags, OPEN_ADVICE)
    address = options.broadcast_address
    yield check_host("--broadcast-address", address, address)
    yield from check_limits(options.max_connections)
