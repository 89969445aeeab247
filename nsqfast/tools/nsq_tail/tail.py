"""Prints the messages of topics. A message is finished once standard output has it."""

import asyncio
import os
from collections.abc import Iterator, Sequence

from nsqfast.client import Consumer, Message
from nsqfast.tools.nsq_tail.options import FORMATS, PROGRAM, Options, Render, render_for_terminal
from nsqfast.tools.shared.client import GiveUp, client_config, make_consumer, stop_consumers
from nsqfast.tools.shared.output import STDOUT, Output
from nsqfast.tools.shared.program import OutputClosedError, log
from nsqfast.wire.names import is_ephemeral

TAKE_COUNT_MAX = 10_000  # messages written together
WRITE_SIZE = 1 << 20  # bytes of bodies that make a write large enough
WRITE_GRACE_S = 1.0  # at the end, for a write in progress


class Follower:
    """One topic: `follow` prints it until `n` messages are shown (0: for ever), or the consumer is told to stop."""

    def __init__(
        self, consumer: Consumer, render: Render, output: Output, options: Options
    ) -> None:
        self.consumer = consumer
        self._render = render
        self._output = output
        self._max_in_flight = options.max_in_flight
        self._left = max(0, options.n)  # messages left to show; 0 = no end

    async def follow(self) -> None:
        """Print messages. OutputClosedError, ToolError: they cannot be printed. NsqfastError: nsqd refuses us."""
        await self.consumer.start()
        while messages := await self.consumer.take(self._left or TAKE_COUNT_MAX):
            for part in split(messages):
                await self._output.write(self._render(part))
                is_last = self._left == len(part)
                self._count(len(part))
                for message in part:
                    message.finish()
                if is_last:
                    return

    def _count(self, shown: int) -> None:
        """Count messages before they are finished: nsqd must not deliver more than can still be shown.

        Each nsqd may still deliver one: with fewer, those that have messages would wait for their turn.
        """
        if not self._left:
            return
        self._left -= shown
        if self._left < self._max_in_flight:
            connections = self.consumer.stats().connections.values()
            enough = max(self._left, sum(one.is_connected for one in connections))
            self.consumer.set_max_in_flight(enough if self._left else 0)


def split(messages: Sequence[Message]) -> Iterator[Sequence[Message]]:
    """Split into parts that each suit one write."""
    first = size = 0
    for number, message in enumerate(messages):
        size += len(message.body)
        if size >= WRITE_SIZE:
            yield messages[first : number + 1]
            first, size = number + 1, 0
    if first < len(messages):
        yield messages[first:]


class Tail:
    """Call `run` once; `stop` ends it early."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._output = Output()
        self._ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        config = client_config(PROGRAM, options.consumer_opt)
        self._give_up = GiveUp(options.on_give_up, config, self._fail)
        self._followers = [self._make_follower(topic) for topic in options.topic]

    def _make_follower(self, topic: str) -> Follower:
        options = self._options
        log.info("Adding consumer for topic: %s", topic)
        give_up = self._give_up.of(topic, lambda: consumer)
        # A pager may keep messages waiting for longer than they may be in flight.
        consumer = make_consumer(
            PROGRAM, topic, options.channel, options, giving_up=give_up, auto_touch=True
        )
        render = FORMATS[options.format](topic, is_topic_shown=options.print_topic)
        if os.isatty(STDOUT):
            render = render_for_terminal(render, options.format)
        return Follower(consumer, render, self._output, options)

    def stop(self) -> None:
        """Print nothing more."""
        if not self._ended.done():
            self._ended.set_result(None)

    def _fail(self, error: Exception) -> None:
        if not self._ended.done():
            self._ended.set_exception(error)

    async def run(self) -> None:
        """Run until a topic has shown its `n` messages, or `stop`; errors are raised."""
        log.info("%s", fate_of(self._options.channel))
        self._output.watch_closed(lambda: self._fail(OutputClosedError("nobody reads any more")))
        tasks = [asyncio.create_task(follower.follow()) for follower in self._followers]
        try:
            await asyncio.wait([self._ended, *tasks], return_when=asyncio.FIRST_COMPLETED)
        finally:
            await self._end(tasks)
        if self._ended.done():
            self._ended.result()
        for task in tasks:
            if not task.cancelled():
                task.result()

    async def _end(self, tasks: "list[asyncio.Task[None]]") -> None:
        for follower in self._followers:
            follower.consumer.request_stop()
        # Printed messages must still be finished; a pipe that nobody reads is not waited for.
        await asyncio.wait(tasks, timeout=WRITE_GRACE_S)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await stop_consumers([follower.consumer for follower in self._followers])
        await self._give_up.close()


def fate_of(channel: str) -> str:
    """What happens to the channel when this ends; an ephemeral one is deleted with its last consumer."""
    if is_ephemeral(channel):
        return f"channel {channel}: ephemeral, nsqd deletes it when its last consumer is gone"
    return f"channel {channel}: stays when this ends, and gathers messages until it is deleted"
