"""Ask several peers the same question repeatedly, so that a dead or frozen one causes at most one delay."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from nsqfast.errors import ConnectError

T = TypeVar("T")


@dataclass(slots=True)
class Answers(Generic[T]):
    """By peer: its answer, or the reason why there is none."""

    found: dict[str, T] = field(default_factory=dict)
    errors: dict[str, ConnectError] = field(default_factory=dict)


class Polls(Generic[T]):
    """`ask` raises ConnectError in bounded time.

    A peer that failed is still asked, but not waited for, until it has answered once: that answer is old by then, and
    only shows that it is back. If all have failed, all are waited for.
    """

    def __init__(self, ask: Callable[[str], Awaitable[T]]) -> None:
        self._ask = ask
        self._tasks: dict[str, asyncio.Future[T]] = {}
        self._errors: dict[str, ConnectError] = {}  # of those that failed last

    async def poll(self, peers: Sequence[str]) -> Answers[T]:
        """Run one round."""
        self._forget_all_but(peers)
        for peer in peers:
            self._begin(peer)
        waited = [task for peer, task in self._tasks.items() if peer not in self._errors]
        if self._tasks:
            await asyncio.wait(waited or self._tasks.values())
        answers: Answers[T] = Answers()
        for peer in peers:
            self._collect(peer, answers, is_waited=not waited or peer not in self._errors)
        return answers

    def _begin(self, peer: str) -> None:
        task = self._tasks.get(peer)
        if task is not None and not task.done():
            return
        if task is not None and _error_of(task) is None:
            self._errors.pop(peer, None)
        self._tasks[peer] = asyncio.ensure_future(self._ask(peer))

    def _collect(self, peer: str, answers: Answers[T], *, is_waited: bool) -> None:
        task = self._tasks[peer]
        error = _error_of(task) if task.done() else None
        if error is not None:
            self._errors[peer] = error
        if is_waited:
            del self._tasks[peer]
            if error is None:
                self._errors.pop(peer, None)
                answers.found[peer] = task.result()
                return
        answers.errors[peer] = self._errors[peer]

    def _forget_all_but(self, peers: Sequence[str]) -> None:
        for peer in self._tasks.keys() - set(peers):
            self._tasks.pop(peer).cancel()
            self._errors.pop(peer, None)

    async def close(self) -> None:
        """Stop asking."""
        tasks = list(self._tasks.values())
        self._forget_all_but(())
        await asyncio.gather(*tasks, return_exceptions=True)


def _error_of(task: "asyncio.Future[T]") -> ConnectError | None:
    """The reason why it has no answer; anything but a ConnectError is raised."""
    error = task.exception()
    if error is None or isinstance(error, ConnectError):
        return error
    raise error
