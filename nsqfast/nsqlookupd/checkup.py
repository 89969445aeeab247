"""nsqfast-nsqlookupd --check."""

from collections.abc import Iterator

from nsqfast.findings import Finding
from nsqfast.net.checkup import check_host, check_limits, check_listeners, check_openness
from nsqfast.nsqlookupd.options import OPEN_ADVICE, Options


def check(options: Options) -> Iterator[Finding]:
    """All that can be known before a start."""
    flags = list(options.listening())
    yield from check_listeners(flags)
    yield from check_openness(flags, OPEN_ADVICE)
    address = options.broadcast_address
    yield check_host("--broadcast-address", address, address)
    yield from check_limits(0)
