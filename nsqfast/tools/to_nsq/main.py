"""The program nsqfast-to-nsq: split standard input into messages and publish them to every address, in order."""

import asyncio
import os
import sys
import time
from dataclasses import dataclass
from typing import Any

from nsqfast.program.options import DURATION, INT, STRING, STRINGS, PlainError, option
from nsqfast.program.signals import watch_signals
from nsqfast.tools.shared.client import client_config
from nsqfast.tools.shared.options import AUTH_SECRET_HELP, CLIENT_OPTIONS, PRODUCER_HELP, parse_tool
from nsqfast.tools.shared.output import Progress, is_watched
from nsqfast.tools.shared.program import log, run, set_up_log
from nsqfast.tools.to_nsq.feed import Feed
from nsqfast.tools.to_nsq.source import Pieces, Source, Splitter
from nsqfast.wire.names import describe_invalid, is_valid_name

PROGRAM = "to_nsq"
ABOUT = "Splits standard input into messages and publishes them."
STOP_TIMEOUT_S = 3.0  # for an nsqd that may be frozen
WAIT_S_MIN = 0.001
SECOND_NS = 1e9


class TokenBucket:
    """--rate: one token at the start, `rate` more each second, and never more than `rate`."""

    def __init__(self, rate: int, now_s: float) -> None:
        self._rate = rate
        self._tokens = 1.0
        self._since_s = now_s

    def take(self, wanted: int, now_s: float) -> int:
        """How many of this many messages may go now."""
        more = (now_s - self._since_s) * self._rate
        self._tokens = min(self._tokens + more, float(self._rate))
        self._since_s = now_s
        count = min(int(self._tokens), wanted)
        self._tokens -= count
        return count

    @property
    def wait_s(self) -> float:
        """Time until the next token."""
        return max((1 - self._tokens) / self._rate, WAIT_S_MIN)


@dataclass(slots=True)
class Options:
    """The command line."""

    # fmt: off
    topic: str = option(STRING, "", "topic to publish to", group="Destination")
    nsqd_tcp_address: list[str] = option(
        STRINGS, [], "TCP <addr>:<port> of an nsqd to publish to (repeatable: all of them receive every message)")
    producer_opt: list[str] = option(CLIENT_OPTIONS, [], PRODUCER_HELP)
    auth_secret_file: str = option(STRING, "", AUTH_SECRET_HELP)

    delimiter: str = option(STRING, "\n", "character that ends a message in the input", group="Messages")
    rate: int = option(INT, 0, "most messages per second; 0 = as fast as possible")
    deferred_ns: int = option(DURATION, "0s", "delay after which nsqd delivers a message")
    # fmt: on

    @property
    def delimiter_bytes(self) -> bytes:
        """The delimiter as typed."""
        return os.fsencode(self.delimiter)

    def check(self) -> None:
        """PlainError says what is wrong."""
        if not self.topic:
            raise PlainError("--topic required")
        if not is_valid_name(self.topic):
            raise PlainError(f"--topic: {describe_invalid(self.topic)}")
        if len(self.delimiter_bytes) != 1:
            raise PlainError("--delimiter must be a single byte")
        if not self.nsqd_tcp_address:
            raise PlainError("--nsqd-tcp-address required")
        if self.deferred_ns < 0:
            raise PlainError("--deferred is a time from now on, not one that is over")


class Program:
    """One input, and a feed for each address."""

    def __init__(self, options: Options, source: Source, progress: Progress | None) -> None:
        config = client_config(PROGRAM, options.producer_opt)
        delay_s = options.deferred_ns / SECOND_NS if options.deferred_ns else None
        self._feeds = [
            Feed(address, options.topic, config, delay_s)
            for address in dict.fromkeys(options.nsqd_tcp_address)
        ]
        self._source = source
        self._progress = progress
        self._splitter = Splitter(options.delimiter_bytes)
        self._bucket = self._make_bucket(options.rate)
        self._is_started = False
        self._read_size = 0
        self._unsent_count = 0
        self.stop: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    @staticmethod
    def _make_bucket(rate: int) -> TokenBucket | None:
        if rate < 1:
            return None
        log.info("Throttling messages rate to max:%d/second", rate)
        return TokenBucket(rate, time.monotonic())

    def request_stop(self) -> None:
        """Stop reading."""
        if not self.stop.done():
            self.stop.set_result(None)

    async def run(self) -> None:
        """Run until the end of the input, or `request_stop`; raises errors."""
        handling = [asyncio.create_task(feed.handle_answers()) for feed in self._feeds]
        publishing = asyncio.create_task(self._publish_all())
        try:
            everything: list[asyncio.Future[Any]] = [publishing, *handling]
            await asyncio.wait([self.stop, *everything], return_when=asyncio.FIRST_COMPLETED)
            if self.stop.done():
                await asyncio.wait(
                    everything, timeout=STOP_TIMEOUT_S, return_when=asyncio.FIRST_COMPLETED
                )
            # Raise the error of a feed first: the rest is its consequence.
            for task in (*handling, publishing):
                if task.done():
                    task.result()
        finally:
            for task in (publishing, *handling):
                task.cancel()
            await asyncio.gather(publishing, *handling, return_exceptions=True)
            await asyncio.gather(*[feed.close() for feed in self._feeds])
        if self.stop.done():
            self._report_rest()

    async def _publish_all(self) -> None:
        while data := await self._source.read(self.stop):
            self._read_size += len(data)
            await self._publish(self._splitter.add(data))
        if not self.stop.done():
            await self._publish(self._splitter.end())
        for feed in self._feeds:
            await feed.join()

    async def _publish(self, pieces: Pieces) -> None:
        if len(pieces) and not self._is_started:
            self._is_started = True
            await asyncio.gather(*[feed.start() for feed in self._feeds])
        while count := len(pieces):
            self._unsent_count = count
            if self._bucket is not None:
                count = await self._wait_token(self._bucket, count)
                if self.stop.done():
                    return
            bodies = pieces.take(count)
            for feed in self._feeds:
                await feed.put(bodies)
            self._unsent_count = len(pieces)
            self._show()

    async def _wait_token(self, bucket: TokenBucket, wanted: int) -> int:
        """How many messages may go; 0 = it is time to stop."""
        while not self.stop.done():
            if count := bucket.take(wanted, time.monotonic()):
                return count
            await asyncio.wait([self.stop], timeout=bucket.wait_s)
        return 0

    def _show(self) -> None:
        if self._progress is not None:
            count = min(feed.published_count for feed in self._feeds)
            self._progress.show(self._read_size, count)

    def _report_rest(self) -> None:
        """When told to stop, report pieces that were read but not published."""
        if self._unsent_count:
            log.warning("%d messages that were read were not sent", self._unsent_count)
        if self._splitter.rest_size:
            size = self._splitter.rest_size
            log.warning("%d bytes without a delimiter behind them were not sent", size)
        for feed in self._feeds:
            if count := feed.put_count - feed.published_count:
                log.warning(
                    "%s has not answered for %d messages: they may be there, or not",
                    feed.address,
                    count,
                )


async def live(options: Options) -> int:
    """Run from the start to the end of the input, or a signal; returns the exit status."""
    source = Source()
    if source.size is None or not is_watched():
        await _run(Program(options, source, None))
    else:
        with Progress(PROGRAM, source.size) as progress:
            await _run(Program(options, source, progress))
    return 0


async def _run(program: Program) -> None:
    watch_signals(asyncio.get_running_loop(), program.request_stop, None)
    await program.run()


def parse(argv: list[str]) -> Options:
    """Parse and check the settings."""
    options = parse_tool(Options, argv, PROGRAM, ABOUT, has_version=False)
    options.check()
    return options


def main(argv: list[str] | None = None) -> int:
    """Publish standard input; returns the exit status."""
    set_up_log()
    return run(lambda: parse(sys.argv[1:] if argv is None else argv), live)


if __name__ == "__main__":
    sys.exit(main())
