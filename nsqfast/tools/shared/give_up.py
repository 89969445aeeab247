"""--on-give-up: what a tool does with a message that has used up its attempts.

finish      FIN, as Go's tools do
requeue     it comes again and again, after default_requeue_delay times its attempts
exit        it is requeued, and the tool ends with status 1
topic:NAME  it is published there, and finished once the publish has its OK
"""

from collections.abc import Callable

from nsqfast.client import Config, Consumer, Message, Producer
from nsqfast.tools.shared.options import parse_give_up
from nsqfast.tools.shared.program import ToolError, log


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
