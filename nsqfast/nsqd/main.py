"""The program nsqfast-nsqd; its signals and exit statuses are those of nsqfast.program.daemon."""

import sys

from nsqfast.nsqd.options import LOG_PREFIX, PROGRAM, Options, parse
from nsqfast.program import daemon

DRAINED = 3  # the exit status after a drain, so that a service manager does not start it again


def main(argv: list[str] | None = None) -> int:
    """Run a broker until it is told to stop; returns the exit status."""
    words = sys.argv[1:] if argv is None else argv
    return daemon.run(PROGRAM, LOG_PREFIX, lambda: parse(words), _live, _check)


async def _live(options: Options) -> int:
    # The compiled core is imported late, so that --help and wrong flags are answered at once.
    from nsqfast._ext.core.message import keep_freed_memory
    from nsqfast.net.descriptor_reserve import raise_descriptor_limit
    from nsqfast.nsqd.http_api import HttpApi
    from nsqfast.nsqd.server import Server
    from nsqfast.streams import load_snappy

    load_snappy()  # not when the first client asks for it: that would keep the others waiting
    keep_freed_memory()
    raise_descriptor_limit()
    daemon.collect_seldom()
    server = Server(options, HttpApi)
    await daemon.serve(PROGRAM, server)
    return DRAINED if server.drain.is_over else 0


def _check(options: Options) -> int:
    from nsqfast.nsqd.checkup import check
    from nsqfast.program.findings import report

    return report(check(options))


if __name__ == "__main__":
    sys.exit(main())
