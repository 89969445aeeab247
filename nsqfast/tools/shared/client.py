"""The client's settings and consumers, from the flags of a tool."""

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any

from nsqfast.client import Config, Consumer
from nsqfast.tools.shared.options import SourceOptions
from nsqfast.tools.shared.program import log
from nsqfast.version import NSQ_VERSION, __version__

STOP_TIMEOUT_S = 3.0  # for an nsqd that may be frozen


def user_agent(program: str) -> str:
    """The user agent, which nsqd's /stats show."""
    return f"{program}/{NSQ_VERSION} nsqfast/{__version__}"


def client_config(program: str, items: Sequence[str], **fixed: Any) -> Config:
    """Make it from --consumer-opt or --producer-opt; OptionsError if they contradict each other.

    `fixed` are settings of the tool itself, which override the flags, as in Go's tools.
    """
    fixed["user_agent"] = user_agent(program)
    kept = [item for item in items if item.partition(",")[0].replace("-", "_") not in fixed]
    return Config.parse(kept, Config(**fixed))


def make_consumer(
    program: str, topic: str, channel: str, options: SourceOptions, **more: Any
) -> Consumer:
    """A consumer of one topic; `more` are further arguments."""
    return Consumer(
        topic,
        channel,
        nsqd=options.nsqd_tcp_address,
        nsqlookupd=options.lookupd_http_address,
        config=client_config(program, options.consumer_opt, max_in_flight=options.max_in_flight),
        backoff="nsq",  # as Go's tools
        **more,
    )


async def stop_consumers(consumers: Iterable[Consumer], grace_s: float = 0.0) -> None:
    """Stop all; messages in flight have `grace_s` to be answered. An nsqd that does not answer is left behind."""
    stops = [asyncio.ensure_future(consumer.stop(grace_s)) for consumer in consumers]
    if not stops:
        return
    done, late = await asyncio.wait(stops, timeout=grace_s + STOP_TIMEOUT_S)
    for stop in late:
        stop.cancel()
    if late:
        log.warning("an nsqd does not answer; ending without it")
    for stop in done:
        stop.result()
