"""The nsqd of a consumer: the given ones, and those that nsqlookupd lists, for as long as it lists them."""

import asyncio
import contextlib
import functools
import logging
import random
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any

from nsqfast.client.addresses import check_address
from nsqfast.client.callbacks import call
from nsqfast.client.config import Config, seconds
from nsqfast.client.discovery import Answer, Discovery, poll_pause_s
from nsqfast.client.lifetime import Logger, RepeatedLines
from nsqfast.client.reconnector import Owner, Reconnector, first_timeout_s
from nsqfast.errors import OptionsError, WrongPeerError

ChooseNodes = Callable[[list[str]], Iterable[str] | Awaitable[Iterable[str]]]

ATTEMPT_GAP_S = 0.0002
FIRST_PAUSE_S_MIN = 0.002


class Nodes:
    """One Reconnector per address. Created with the consumer, active from `start` to `stop`."""

    def __init__(
        self,
        name: str,
        direct: Iterable[str],
        discovery: Discovery,
        choose: ChooseNodes,
        config: Config,
        log: Logger,
    ) -> None:
        self.reconnectors: dict[str, Reconnector] = {}
        self._name = name
        self._direct = set(direct)
        self._discovery = discovery
        self._choose = choose
        self._config = config
        self._log = log
        self._owner: Owner | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._poll_loop: asyncio.Task[None] | None = None
        self._poll_now = asyncio.Event()
        self._woken = asyncio.Event()  # set at each event that the start waits for
        self._untried_count = 0  # addresses whose first attempt is not over
        self._attempt_at_s = 0.0  # when the last first attempt begins, by the loop's clock
        self._repeated = RepeatedLines(log, name)
        self._wrong: WrongPeerError | None = (
            None  # for the case that all of nsqlookupd's addresses led to wrong peers
        )

    # -- beginning and end

    async def start(self, owner: Owner, stopped: "asyncio.Future[Any]") -> None:
        """Return when one is connected, when all were tried in vain, when it takes too long, or when the consumer is to
        stop.

        RefusedError or WrongPeerError: all nsqd refuse us, and another attempt would hardly help.
        """
        self._owner = owner
        for address in self._direct:
            self._keep(address)
        first_poll: asyncio.Future[None] | None = None
        if len(self._discovery):
            polled = self._spawn(self._poll())
            # Do not wait for a dead nsqlookupd; its answer counts whenever it arrives.
            timeout_s = seconds(self._config.dial_timeout)
            first_poll = self._spawn(_wait_done(polled, timeout_s))
            self._start_polling(polled)
            first_poll.add_done_callback(self._wake)
        stopped.add_done_callback(self._wake)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(first_timeout_s(self._config)):
                await self._wait_first(first_poll, stopped)
        if not stopped.done() and not self.is_connected:
            self._raise_refusal()

    @property
    def is_connected(self) -> bool:
        """Whether there is any connection."""
        return any(reconnector.connection is not None for reconnector in self.reconnectors.values())

    async def _wait_first(
        self, first_poll: "asyncio.Future[None] | None", stopped: "asyncio.Future[Any]"
    ) -> None:
        while not (self.is_connected or stopped.done()):
            if self._untried_count == 0 and (first_poll is None or first_poll.done()):
                return
            self._woken.clear()
            await self._woken.wait()

    def _wake(self, _done: object) -> None:
        self._woken.set()

    def _note_tried(self, reconnector: Reconnector, _tried: object) -> None:
        self._untried_count -= 1
        if reconnector.connection is not None or self._untried_count == 0:
            self._woken.set()

    def _raise_refusal(self) -> None:
        for reconnector in self.reconnectors.values():
            reconnector.raise_refusal()
        if self._wrong is not None and not self.reconnectors:
            raise self._wrong

    async def stop(self) -> None:
        """Disconnect everywhere, and ask no nsqlookupd any more."""
        self.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.gather(*[reconnector.stop() for reconnector in self.reconnectors.values()])
        await self._discovery.close()

    def cancel(self) -> None:
        """Stop asking nsqlookupd; connections stay."""
        for task in self._tasks:
            task.cancel()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    # -- at run time

    async def add_nsqd(self, address: str) -> None:
        """Return after the first attempt. Failures are retried for ever, except for a refusal, which is raised."""
        self._direct.add(address)
        reconnector = self.reconnectors.get(address) or self._keep(address)
        await reconnector.wait_tried()
        if reconnector.was_refused:
            await self.forget(address)
            reconnector.raise_refusal()

    def check_direct(self, address: str) -> None:
        """Raise OptionsError if the address was found instead of given, or is unknown."""
        if address in self._direct:
            return
        if address in self.reconnectors:
            raise OptionsError(
                f"{address!r} was found through nsqlookupd, which would list it again; leave it out by choose_nodes"
            )
        raise OptionsError(f"{address!r} is none of this consumer's nsqd")

    async def forget(self, address: str) -> None:
        """Disconnect and stop trying."""
        self._direct.discard(address)
        if reconnector := self.reconnectors.pop(address, None):
            await reconnector.stop()

    def add_nsqlookupd(self, address: str) -> None:
        """Ask it, too, at once."""
        self._discovery.add(address)
        self._start_polling()
        self._poll_now.set()

    def drop_nsqlookupd(self, address: str) -> None:
        """Stop asking it; nsqd that it listed stay connected as long as their connections last."""
        self._discovery.drop(address)

    def _keep(self, address: str) -> Reconnector:
        assert self._owner is not None
        pause_s = self._first_pause_s()
        reconnector = Reconnector(
            address, self._owner, self._config, self._log, self._name, first_pause_s=pause_s
        )
        self.reconnectors[address] = reconnector
        self._untried_count += 1
        reconnector.tried.add_done_callback(functools.partial(self._note_tried, reconnector))
        return reconnector

    def _first_pause_s(self) -> float:
        """Spread the first attempts at a thousand nsqd, since starting all in one turn would block the loop."""
        now_s = asyncio.get_running_loop().time()
        self._attempt_at_s = max(self._attempt_at_s + ATTEMPT_GAP_S, now_s)
        pause_s = self._attempt_at_s - now_s
        return pause_s if pause_s >= FIRST_PAUSE_S_MIN else 0.0

    # -- nsqlookupd

    def ask_soon(self) -> None:
        """Poll soon after a connection broke: nsqlookupd may know where its nsqd is now."""
        self._poll_now.set()

    def _start_polling(self, polled: "asyncio.Task[None] | None" = None) -> None:
        if self._poll_loop is None:
            self._poll_loop = self._spawn(self._poll_on(polled))

    async def _poll_on(self, polled: "asyncio.Task[None] | None") -> None:
        while True:
            if polled is not None:
                await asyncio.wait([polled])
                if not polled.cancelled() and (error := polled.exception()):
                    self._log.error("%s: a poll failed", self._name, exc_info=error)
            pause_s = poll_pause_s(self._config) if polled is not None else 0.0
            # Not wait_for: that of Python 3.11 loses a cancellation that comes together with what it waits for.
            try:
                async with asyncio.timeout(pause_s):
                    await self._poll_now.wait()
                # Spread the polls of consumers that lost the same nsqd.
                await asyncio.sleep(min(pause_s, random.uniform(0.5, 1)))  # noqa: S311 - no secret
            except TimeoutError:
                pass
            self._poll_now.clear()  # a request that arrives from here on may be too late for this poll
            polled = self._spawn(self._poll())

    async def _poll(self) -> None:
        listed: set[str] = set()
        answers: list[Answer] = []
        is_whole = True
        async for answer in self._discovery.poll():
            answers.append(answer)
            chosen = await self._take_up(answer)
            is_whole = is_whole and chosen is not None
            listed |= chosen or set()
        self._say_if_none(answers, listed)
        wrong = [answer.error for answer in answers if isinstance(answer.error, WrongPeerError)]
        self._wrong = wrong[0] if wrong and len(wrong) == len(answers) else None
        if is_whole:
            await self._forget_all_but(listed)

    async def _take_up(self, answer: Answer) -> set[str] | None:
        """Connect to the wanted ones among the listed nsqd. None = unknown which are wanted."""
        if answer.error is not None:
            self._repeated.say(answer.url, logging.WARNING, f"nsqlookupd: {answer.error}")
            return None
        self._repeated.end(answer.url)
        try:
            chosen = set(await call(self._choose, sorted(answer.addresses)))
            for address in chosen:
                check_address(address)
        except Exception:
            self._log.exception("%s: choose_nodes failed", self._name)
            return None
        for address in chosen - self.reconnectors.keys():
            self._keep(address)
        return chosen

    def _say_if_none(self, answers: list[Answer], listed: set[str]) -> None:
        usable = [answer for answer in answers if answer.error is None]
        if listed or not usable:
            self._repeated.end("")
        elif any(answer.is_known for answer in usable):
            self._repeated.say(
                "", logging.INFO, "nsqlookupd knows the topic, but no nsqd to connect to"
            )
        else:
            self._repeated.say("", logging.INFO, "nsqlookupd does not know the topic yet")

    async def _forget_all_but(self, listed: set[str]) -> None:
        """Give up an address that nobody lists once its connection is lost, not before."""
        for address in self.reconnectors.keys() - listed - self._direct:
            if self.reconnectors[address].connection is None:
                await self.forget(address)


async def _wait_done(task: "asyncio.Task[None]", timeout_s: float) -> None:
    await asyncio.wait([task], timeout=timeout_s)
