"""The program nsqfast-nsqlookupd; its signals and exit statuses are those of nsqfast.program.daemon."""

import sys

from nsqfast.nsqlookupd.options import LOG_PREFIX, PROGRAM, Options, parse
from nsqfast.program import daemon


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
    from nsqfast.nsqlookupd.checkup import check
    from nsqfast.program.findings import report

    return report(check(options))


if __name__ == "__main__":
    sys.exit(main())
