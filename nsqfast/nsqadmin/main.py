"""The program nsqfast-nsqadmin; its signals and exit statuses are those of nsqfast.program.daemon."""

import sys

from nsqfast.nsqadmin.options import LOG_PREFIX, PROGRAM, Options, parse
from nsqfast.program import daemon


def main(argv: list[str] | None = None) -> int:
    """Run an nsqadmin until it is told to stop; returns the exit status."""
    words = sys.argv[1:] if argv is None else argv
    return daemon.run(PROGRAM, LOG_PREFIX, lambda: parse(words), _live, _check, extra="admin")


async def _live(options: Options) -> None:
    if options.hash_password:
        from nsqfast.nsqadmin.access.users import print_account

        print_account()
        return
    # Imported late, so that --help and wrong flags are answered at once.
    from nsqfast.net.descriptor_reserve import raise_descriptor_limit
    from nsqfast.nsqadmin.app import Server

    raise_descriptor_limit()
    await daemon.serve(PROGRAM, Server(options))


def _check(options: Options) -> int:
    from nsqfast.nsqadmin.checks import check
    from nsqfast.program.findings import report

    return report(check(options))


if __name__ == "__main__":
    sys.exit(main())
