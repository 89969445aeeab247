"""The client's settings and consumers, from the flags of a tool; what it does with a message given up."""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from nsqfast.client import Config, Consumer, Message, Producer
from nsqfast.tools.shared.options import SourceOptions, parse_give_up
from nsqfast.tools.shared.program import ToolError, log
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


# --on-give-up: what a tool does with a message that has used up its attempts.
#
# finish      FIN, as Go's tools do
# requeue     it comes again and again, after default_requeue_delay times its attempts
# exit        it is requeued, and the tool ends with status 1
# topic:NAME  it is published there, and finished once the publish has its OK


class GiveUp:
    """The `giving_up` of a tool's consumers; `count` is the number of messages so far."""

    def __init__(self, text: str, config: Config, stop: Callable[[ToolError], None]) -> None:
        self.count = 0
        self._action, self._topic = parse_give_up(text)
        self._config = config  # of the producer, if there is one
        self._stop = stop
        self._producers: dict[tuple[str, ...], Producer] = {}

    def of(self, topic: str, consumer: Callable[[], Consumer]) -> Callable[[Message], object]:
        """The callback for a consumer of that topic. The consumer is created with it, so it is looked up later."""

        async def give_up(message: Message) -> None:
            self.count += 1
            name = f"{topic}: {message.id.decode('ascii', 'backslashreplace')} after {message.attempts - 1} attempts"
            log.error("giving up %s: %s", name, self._what)
            if self._action == "exit":
                self._stop(ToolError(f"gave up {name}"))
            if self._action in {"exit", "requeue"}:
                message.requeue(backoff=False)
            elif self._action == "topic":
                await self._publish(consumer(), message)

        return give_up

    @property
    def _what(self) -> str:
        words = {
            "finish": "it is finished",
            "requeue": "it is requeued",
            "exit": "it is requeued, and the end",
        }
        return words.get(self._action, f"it goes to topic {self._topic}")

    async def _publish(self, consumer: Consumer, message: Message) -> None:
        """Publish to the nsqd that the consumer is connected to; a failure requeues the message."""
        connections = consumer.stats().connections
        addresses = tuple(address for address, one in connections.items() if one.is_connected)
        producer = self._producers.get(addresses)
        if producer is None:
            producer = self._producers[addresses] = Producer(list(addresses), config=self._config)
            await producer.start()
        await producer.publish(self._topic, message.body)

    async def close(self) -> None:
        """Close the producers."""
        for producer in self._producers.values():
            await producer.close()
