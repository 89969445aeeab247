"""The program nsqfast-nsq-to-http."""

import asyncio
import sys
from functools import partial
from typing import TYPE_CHECKING

from nsqfast.program.signals import watch_signals
from nsqfast.tools.nsq_to_http.options import PROGRAM, Options, parse
from nsqfast.tools.shared.client import GiveUp, client_config, make_consumer, stop_consumers
from nsqfast.tools.shared.program import ToolError, run, set_up_log
from nsqfast.tools.shared.timings import Timings

if TYPE_CHECKING:
    from nsqfast.client import Consumer
    from nsqfast.net.http_client import HttpClient
    from nsqfast.tools.nsq_to_http.delivery import Delivery


def main(argv: list[str] | None = None) -> int:
    """Run until told to stop; returns the exit status."""
    return run(partial(parse, sys.argv[1:] if argv is None else argv), live)


async def live(options: Options) -> int:
    """Returns the exit status."""
    # Loaded late, so that --help and a wrong flag answer at once.
    from nsqfast.tools.nsq_to_http.relay import Relay
    from nsqfast.tools.nsq_to_http.requests import make_client

    set_up_log()
    stopping = asyncio.Event()
    errors: list[ToolError] = []

    is_running = False

    def stop(error: ToolError | None = None) -> None:
        if error is not None:
            errors.append(error)
        stopping.set()
        if not is_running:
            consumer.request_stop()  # its start may take a while

    config = client_config(PROGRAM, options.consumer_opt, max_in_flight=options.max_in_flight)
    give_up = GiveUp(options.on_give_up, config, stop)
    on_hopeless = give_up.of(options.topic, lambda: consumer)
    consumer: Consumer = make_consumer(
        PROGRAM, options.topic, options.channel, options, auto_touch=True, giving_up=on_hopeless
    )
    client = make_client(
        options.http_client_connect_timeout_ns / 1e9, options.http_client_request_timeout_ns / 1e9
    )
    delivery = make_delivery(options, client, stopping)
    watch_signals(asyncio.get_running_loop(), stop, None)
    try:
        await consumer.start()
        is_running = True
        if not stopping.is_set():
            await Relay(consumer, config, options, delivery).run(stopping)
    finally:
        await stop_consumers([consumer])
        await give_up.close()
        client.close()
    if errors:
        raise errors[0]
    return 0


def make_delivery(options: Options, client: "HttpClient", stopping: asyncio.Event) -> "Delivery":
    """Everything behind the channel."""
    from nsqfast.tools.nsq_to_http.delivery import Delivery, choose_pool
    from nsqfast.tools.nsq_to_http.destination import Destination

    urls = options.post or options.get
    every = options.status_every if len(urls) > 1 else 0
    timings = {url: Timings(f"[{url}]:", every) for url in dict.fromkeys(urls)}
    destinations = [Destination(url, client, options, timings[url]) for url in urls]
    pool = choose_pool(options.mode, len(urls))
    return Delivery(destinations, pool, Timings("[aggregate]:", options.status_every), stopping)


if __name__ == "__main__":
    sys.exit(main())
