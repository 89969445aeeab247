"""The program nsqfast-nsqlookupd; its signals and exit statuses are those of nsqfast.program.daemon."""

import sys
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from nsqfast.nsqlookupd.options import LOG_PREFIX, PROGRAM, Options, parse, validate
from nsqfast.program import daemon

if TYPE_CHECKING:
    from nsqfast.program.findings import Finding


def main(argv: list[str] | None = None) -> int:
    """Run an nsqlookupd until it is told to stop; returns the exit status."""
    words = sys.argv[1:] if argv is None else argv
    return daemon.run(PROGRAM, LOG_PREFIX, lambda: parse(words), _live, _check)


async def _live(options: Options) -> None:
    # Imported late, so that --help and wrong flags are answered at once.
    from nsqfast.net.descriptor_reserve import raise_descriptor_limit
    from nsqfast.nsqlookupd.http_api import HttpApi
    from nsqfast.nsqlookupd.server import Server

    raise_descriptor_limit()
    daemon.collect_seldom()
    await daemon.serve(PROGRAM, Server(options, HttpApi))


def _check(options: Options) -> int:
    from nsqfast.program.findings import report

    return report(_examine(options))


def _examine(options: Options) -> Iterator["Finding"]:
    """All that can be known before a start."""
    from nsqfast.net import checkup
    from nsqfast.nsqlookupd.credentials import read_credentials

    yield checkup.try_out("settings", partial(validate, options), "they go together")
    if options.tls_cert or options.registration_secret_file:
        files = partial(read_credentials, options)
        yield checkup.try_out("credentials", files, "they are readable")
    yield from checkup.check_listeners(options.listening())
    yield from checkup.check_openness(options.unprotected())
    address = options.broadcast_address
    yield checkup.check_host("--broadcast-address", address, address)
    yield from checkup.check_limits(options.max_connections)


if __name__ == "__main__":
    sys.exit(main())
