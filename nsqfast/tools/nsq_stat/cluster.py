"""The nsqd to ask, the given ones or those that nsqlookupd lists, and asking all of them again and again."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Self, TypeVar

from nsqfast.client.config import Config
from nsqfast.client.connection import lookupd_context
from nsqfast.errors import ConnectError
from nsqfast.net.addresses import PORT_MAX
from nsqfast.tools.nsq_stat.options import Options
from nsqfast.tools.nsq_stat.rates import NodeStats, parse_stats
from nsqfast.tools.shared.discovery import AnswerError, HttpClient, base_url
from nsqfast.tools.shared.program import ToolError
from nsqfast.wire.gotext import join_host_port

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


NS_PER_S = 1_000_000_000
STATS_SIZE_MAX = 64 << 20  # bytes of one nsqd's /stats: some 100,000 channels


class AllFailedError(ToolError):
    """None of them answered; `errors` gives the reasons by address."""

    def __init__(self, what: str, errors: dict[str, ConnectError]) -> None:
        super().__init__(
            f"ERROR: failed to query any {what}: {'; '.join(map(str, errors.values()))}"
        )
        self.errors = errors


@dataclass(frozen=True, slots=True)
class Sample:
    """The answers of the nsqd, by address, and the nsqd and nsqlookupd that did not answer."""

    nodes: dict[str, NodeStats]
    errors: dict[str, ConnectError]


class Cluster:
    """Used with `async with`."""

    def __init__(self, options: Options) -> None:
        self._topic, self._channel = options.topic, options.channel
        self._query = {"format": "json", "include_clients": "false"}
        for key, name in (("topic", self._topic), ("channel", self._channel)):
            if name:
                self._query[key] = name
        self._nsqd = _urls(options.nsqd_http_address, "nsqd")
        self._lookupd = _urls(options.lookupd_http_address, "lookupd")
        self._client = HttpClient(
            options.http_client_connect_timeout_ns / NS_PER_S,
            options.http_client_request_timeout_ns / NS_PER_S,
            lookupd_context(_tls_settings(options)),
        )
        self._stats: Polls[NodeStats] = Polls(self._ask_nsqd)
        self._lists: Polls[set[str]] = Polls(self._ask_lookupd)
        self._answered: set[str] = set()  # nsqd that answered at the last sample

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stats.close()
        await self._lists.close()
        await self._client.close()

    async def sample(self) -> Sample:
        """Take a sample. ToolError: there is nobody to ask, or nobody answers."""
        lists = await self._lists.poll(self._lookupd)
        if self._lookupd and not (lists.found or self._answered):
            raise AllFailedError("nsqlookupd", lists.errors)
        nsqd = set(self._nsqd).union(*lists.found.values())
        # An nsqd that a restarted nsqlookupd no longer lists counts as long as it answers.
        unlisted = self._answered - nsqd
        stats = await self._stats.poll(sorted(nsqd | unlisted))
        self._answered = set(stats.found)
        if nsqd and not stats.found:
            raise AllFailedError("nsqd", stats.errors)
        missing = {url: error for url, error in stats.errors.items() if url not in unlisted}
        return Sample(stats.found, {**lists.errors, **missing})

    async def _ask_nsqd(self, url: str) -> NodeStats:
        answer = await self._client.get(url, "/stats", self._query, STATS_SIZE_MAX)
        return parse_stats(url, answer, self._topic, self._channel)

    async def _ask_lookupd(self, url: str) -> set[str]:
        if not self._topic:
            return _producers(url, await self._client.get(url, "/nodes"))
        try:
            return _producers(url, await self._client.get(url, "/lookup", {"topic": self._topic}))
        except AnswerError as error:
            if error.status == 404 and b"TOPIC_NOT_FOUND" in error.body:
                return set()
            raise


def _tls_settings(options: Options) -> Config:
    return Config(
        tls_root_ca_file=options.http_client_tls_root_ca_file,
        tls_cert=options.http_client_tls_cert,
        tls_key=options.http_client_tls_key,
    )


def _urls(addresses: list[str], name: str) -> list[str]:
    return list(dict.fromkeys(base_url(one, f"--{name}-http-address") for one in addresses))


def _producers(url: str, answer: dict[str, Any]) -> set[str]:
    """The HTTP addresses of the nsqd in an answer of nsqlookupd."""
    try:
        return {_producer(item) for item in answer["producers"] or ()}
    except (KeyError, TypeError) as error:
        raise ConnectError(f"{url}: not an answer of nsqlookupd: {error!r}") from None


def _producer(item: dict[str, Any]) -> str:
    host, port = item["broadcast_address"], item["http_port"]
    if type(host) is not str or type(port) is not int or not 0 < port <= PORT_MAX:
        raise TypeError(f"an nsqd at {host!r}, port {port!r}")
    return f"http://{join_host_port(host, port)}"
