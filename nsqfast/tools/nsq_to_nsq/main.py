"""nsqfast-nsq-to-nsq: publish the messages of a channel to other nsqds, pipelined and in batches.

A message is finished when its destination has answered OK. There may be several topics, sources and destinations.
"""

import asyncio
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from nsqfast.program.options import INT, STRING, STRINGS, PlainError, option, text_such_as
from nsqfast.program.signals import watch_signals
from nsqfast.tools.nsq_to_nsq.destinations import Destinations
from nsqfast.tools.nsq_to_nsq.json_filter import JsonFilter
from nsqfast.tools.shared.client import GiveUp, client_config, make_consumer, stop_consumers
from nsqfast.tools.shared.hostpool import MODES
from nsqfast.tools.shared.options import (
    CLIENT_OPTIONS,
    PRODUCER_HELP,
    SourceOptions,
    parse_tool,
)
from nsqfast.tools.shared.program import ToolError, run, set_up_log
from nsqfast.wire.names import describe_invalid, is_valid_name

if TYPE_CHECKING:
    from nsqfast.client import Consumer
    from nsqfast.tools.nsq_to_nsq.relay import Relay

PROGRAM = "nsq_to_nsq"
ABOUT = "Publishes the messages of a channel to other brokers."
GRACE_S = 1.0  # at a stop, for the answers of the destinations


@dataclass(slots=True)
class Options(SourceOptions):
    """The command line."""

    # fmt: off
    topic: list[str] = option(STRINGS, [], "topic to consume (repeatable)", group="Topics and channel")
    channel: str = option(STRING, "nsq_to_nsq", "channel to consume")

    destination_topic: str = option(
        STRING, "", "topic to publish to; empty = the topic that the message came from", group="Destination")
    destination_nsqd_tcp_address: list[str] = option(
        STRINGS, [], "TCP <addr>:<port> of an nsqd to publish to (repeatable)")
    mode: str = option(
        text_such_as(*MODES), "hostpool", "how to choose among them: round-robin, hostpool or epsilon-greedy")
    producer_opt: list[str] = option(CLIENT_OPTIONS, [], PRODUCER_HELP)
    destination_auth_secret_file: str = option(STRING, "", "file with the secret for AUTH at the destinations")

    require_json_field: str = option(
        STRING, "", "pass on only messages of JSON with this field", group="Filters")
    require_json_value: str = option(STRING, "", "and only if the field has this value")
    whitelist_json_field: list[str] = option(
        STRINGS, [], "pass on only this field of a message of JSON (repeatable)")

    status_every: int = option(
        INT, 250, "messages to a destination between two lines of status; 0 = none", group="Logging")
    # fmt: on

    def check(self) -> None:
        """PlainError says what is wrong."""
        if not self.topic or not self.channel:
            raise PlainError("--topic and --channel are required")
        for topic in self.topic:
            if not is_valid_name(topic):
                raise PlainError(f"--topic is invalid: {describe_invalid(topic)}")
        if (topic := self.destination_topic) and not is_valid_name(topic):
            raise PlainError(f"--destination-topic is invalid: {describe_invalid(topic)}")
        if not is_valid_name(self.channel):
            raise PlainError(f"--channel is invalid: {describe_invalid(self.channel, 'channel')}")
        self.check_source()
        if not self.destination_nsqd_tcp_address:
            raise PlainError("--destination-nsqd-tcp-address required")


class Program:
    """All topics of one process."""

    def __init__(self, options: Options) -> None:
        self._ending: asyncio.Future[ToolError | None] = asyncio.get_running_loop().create_future()
        config = client_config(PROGRAM, options.producer_opt)
        self._give_up = GiveUp(options.on_give_up, config, self.end)
        self._destinations = Destinations(
            options.destination_nsqd_tcp_address, options.mode, config, options.status_every
        )
        self._filter = JsonFilter(
            options.require_json_field, options.require_json_value, options.whitelist_json_field
        )
        self._consumers: list[Consumer] = []
        self._relays = [self._make_relay(topic, options) for topic in options.topic]

    def _make_relay(self, topic: str, options: Options) -> "Relay":
        from nsqfast.tools.nsq_to_nsq.relay import Relay  # late: numpy takes a moment

        consumer = make_consumer(
            PROGRAM,
            topic,
            options.channel,
            options,
            # A destination may be away for longer than nsqd waits for an answer.
            auto_touch=True,
            giving_up=self._give_up.of(topic, lambda: consumer),
        )
        self._consumers.append(consumer)
        return Relay(topic, options.destination_topic or topic, self._filter, self._destinations)

    def end(self, error: ToolError | None = None) -> None:
        """Make `run` return, or raise this error."""
        if not self._ending.done():
            self._ending.set_result(error)

    async def run(self) -> None:
        """Run until `end`."""
        work = asyncio.ensure_future(self._work())
        try:
            ends: list[asyncio.Future[Any]] = [work, self._ending]
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            if work.done():
                work.result()
            error = await self._ending
            if error is not None:
                raise error
        finally:
            await stop_consumers(self._consumers, GRACE_S)
            work.cancel()
            await asyncio.wait([work])
            await self._destinations.close()
            await self._give_up.close()

    async def _work(self) -> None:
        await self._destinations.start()
        await asyncio.gather(*[consumer.start() for consumer in self._consumers])
        pairs = zip(self._relays, self._consumers, strict=True)
        await asyncio.gather(*[relay.run(consumer) for relay, consumer in pairs])


async def live(options: Options) -> int:
    """Run from the start to a signal; returns the exit status."""
    program = Program(options)
    watch_signals(asyncio.get_running_loop(), program.end, None)
    await program.run()
    return 0


def parse(argv: list[str]) -> Options:
    """Parse and check the settings."""
    options = parse_tool(Options, argv, PROGRAM, ABOUT)
    options.check()
    return options


def main(argv: list[str] | None = None) -> int:
    """Relay until told to stop; returns the exit status."""
    set_up_log()
    return run(lambda: parse(sys.argv[1:] if argv is None else argv), live)


if __name__ == "__main__":
    sys.exit(main())
