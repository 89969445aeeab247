"""The program nsqfast-redrive."""

import asyncio
import os
import sys
from typing import TYPE_CHECKING

from nsqfast.net.secret_file import read_secret
from nsqfast.tools.redrive.options import Options, parse
from nsqfast.tools.shared.options import AUTH_SECRET_VARIABLE
from nsqfast.tools.shared.program import ToolError, run, set_up_log

if TYPE_CHECKING:
    from nsqfast.client.admin import Admin, Redrive

CHECK_S = 0.5  # between two looks


def main(argv: list[str] | None = None) -> int:
    """Returns the exit status."""
    return run(lambda: parse(sys.argv[1:] if argv is None else argv), live)


async def live(options: Options) -> int:
    """Until all nsqd are done, or until told to stop, which does not stop them."""
    from nsqfast.client.admin import Admin
    from nsqfast.client.config import Config
    from nsqfast.program.signals import watch_signals

    set_up_log()
    secret = read_secret("--secret-file", options.secret_file)
    config = Config(
        auth_secret=secret or os.environ.get(AUTH_SECRET_VARIABLE, ""),
        tls_root_ca_file=options.tls_root_ca_file,
        tls_cert=options.tls_cert,
        tls_key=options.tls_key,
    )
    loop = asyncio.get_running_loop()
    async with Admin(
        options.nsqd_http_address, nsqlookupd=options.lookupd_http_address, config=config
    ) as admin:
        work = loop.create_task(_work(admin, options))

        def stop() -> None:
            work.cancel()

        watch_signals(loop, stop, stop)
        await asyncio.wait([work])
        if work.cancelled():
            raise ToolError("not waited for: the nsqd go on, --cancel ends that")
        return work.result()


async def _work(admin: "Admin", options: Options) -> int:
    topic, channel = options.topic, options.channel
    if options.cancel:
        return _report(await admin.cancel_redrive(topic, channel))
    states = await admin.redrive(
        topic,
        channel,
        rate=options.rate,
        limit=options.limit,
        contains=options.filter,
        search=options.search,
        reason=options.reason,
        delete=options.delete,
        source_channel=options.source_channel,
    )
    while not options.detach and any(each.state == "running" for each in states):
        await asyncio.sleep(CHECK_S)
        states = await admin.redrives(topic, channel)
    return _report(states)


def _report(states: "list[Redrive]") -> int:
    """A line for each nsqd; the exit status."""
    for each in states:
        error = f": {each.error}" if each.error else ""
        what = " deleted" if each.deletes else ""
        print(f"{each.nsqd} {each.state}, {each.moved} messages{what}{error}")
    return int(any(each.state == "failed" for each in states))


if __name__ == "__main__":
    sys.exit(main())
