"""The program nsqfast-nsq-to-file."""

import asyncio
import sys
import time

from nsqfast.errors import NsqfastError
from nsqfast.program import logs
from nsqfast.program.signals import watch_signals
from nsqfast.tools.nsq_to_file.options import PROGRAM, Options, parse
from nsqfast.tools.shared import program


def main(argv: list[str] | None = None) -> int:
    """Archive until it is told to stop; returns the exit status."""
    words = sys.argv[1:] if argv is None else argv
    return program.run(lambda: parse(words), _live)


async def _live(options: Options) -> int:
    # Imported late, so that --help and wrong flags are answered at once.
    from nsqfast.net.descriptor_reserve import raise_descriptor_limit
    from nsqfast.tools.nsq_to_file.formats import check_format, check_places
    from nsqfast.tools.nsq_to_file.service import Service, ServiceFigures
    from nsqfast.tools.shared.metrics import MetricsServer

    logs.set_up(PROGRAM, options.log_prefix, logs.LEVELS[options.log_level])
    check_format(options)
    check_places(options)
    raise_descriptor_limit()
    service = Service(options)
    watch_signals(asyncio.get_running_loop(), service.stop, service.reopen)
    with MetricsServer(options.metrics_address, ServiceFigures(service, time.time())):
        try:
            await service.run()
        except NsqfastError as error:
            program.log.critical("%s", error)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
