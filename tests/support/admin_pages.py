"""An nsqadmin in this process whose cluster a test makes: all of its pages over real sockets, and no poller."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from types import MappingProxyType
from typing import TYPE_CHECKING, Self

from aiohttp import web

from nsqfast.nsqadmin.access.audit import Audit
from nsqfast.nsqadmin.app import make_app
from nsqfast.nsqadmin.cluster.answers import ChannelStats
from nsqfast.nsqadmin.cluster.history import History
from nsqfast.nsqadmin.cluster.probes import Consumer, Consumers, NodeAnswer
from nsqfast.nsqadmin.context import CONTEXT, Context, Urls
from nsqfast.nsqadmin.options import parse
from nsqfast.nsqadmin.problems.alerts import ProblemWebhook
from nsqfast.nsqadmin.problems.report import Problems
from support.admin_cluster import (
    example_cluster,
    example_entries,
    example_problems,
    make_client,
)
from support.admin_history import fill_history
from support.page_html import PageHtml
from support.still_nodes import StillNodes
from support.web import request

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping, Sequence
    from types import TracebackType
    from typing import Any

    from nsqfast.nsqadmin.access.audit import Entry
    from nsqfast.nsqadmin.cluster.model import Channel, Cluster
    from nsqfast.nsqadmin.problems.report import Problem
    from support.web import Answer

START_SECONDS_MAX = 50.0


class StillPoller:
    """Has the last tick that a test published."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.interval_s, self.took_s, self.cpu_s = 2.0, 0.0, 0.0
        self.times_seen = 0
        self._ticked = asyncio.Event()

    def seen(self) -> None:
        self.times_seen += 1

    def ask_now(self) -> None:
        """There is nobody to ask: the next tick is like the last."""
        asyncio.get_running_loop().call_soon(self.publish, self.cluster)

    def note_emptied(self, topic: str, channel: str = "", node: str = "") -> None:
        """It has no rates."""

    async def next_tick(self) -> Cluster:
        await self._ticked.wait()
        return self.cluster

    def publish(self, cluster: Cluster) -> None:
        self.cluster = cluster
        ticked, self._ticked = self._ticked, asyncio.Event()
        ticked.set()


class StillConsumers:
    """Answers for all nodes without asking them; the first one has all clients, which are as `changes` say."""

    changes: Mapping[str, object] = MappingProxyType({})

    async def get(self, cluster: Cluster, channel: Channel) -> Consumers:
        nodes = [part.node for part in channel.parts if part.node in cluster.nodes]
        answers = {node: NodeAnswer(cluster.at, ChannelStats(channel.name), []) for node in nodes}
        if nodes:
            clients = [
                make_client(number, **self.changes) for number in range(channel.counts.client_count)
            ]
            found = [Consumer(nodes[0], client, 12.5) for client in clients]
            answers[nodes[0]] = NodeAnswer(cluster.at, ChannelStats(channel.name), found)
        return Consumers(answers)


class AdminPages:
    """Serves while it is entered; `url` has no slash at its end."""

    def __init__(
        self,
        cluster: Cluster,
        *flags: str,
        problems: Sequence[Problem] = (),
        entries: Sequence[Entry] = (),
        fill: Callable[[History, Cluster], None] | None = None,
    ) -> None:
        self.options = parse(["--nsqd-http-address=127.0.0.1:1", *flags])
        self._first = cluster
        self._problems = problems
        self._entries = entries
        self._fill = fill
        self._started = threading.Event()
        self._stop: asyncio.Event | None = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._started.wait(START_SECONDS_MAX)
        if self._error is not None:
            raise self._error
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        if self._stop is not None:
            self.loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(START_SECONDS_MAX)

    def get(self, target: str, **headers: str) -> Answer:
        """Whatever its status; no redirection is followed."""
        address = ("127.0.0.1", self.port)
        return request(address, "GET", target, headers={"Accept": "text/html"} | headers)

    def page(self, target: str) -> PageHtml:
        """As somebody without scripts has it."""
        answer = self.get(target)
        assert answer.status == 200, target
        return PageHtml(answer.text)

    def publish(self, cluster: Cluster) -> None:
        """The next tick."""
        self.call(self._publish(cluster))

    async def _publish(self, cluster: Cluster) -> None:
        self.poller.publish(cluster)

    def call(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        """Runs it on the server's loop."""
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(START_SECONDS_MAX)

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as error:
            self._error = error
        finally:
            self._started.set()

    async def _serve(self) -> None:
        self.loop = asyncio.get_running_loop()
        stop = asyncio.Event()
        options = self.options
        async with contextlib.AsyncExitStack() as stack:
            self.poller = StillPoller(self._first)
            upstream: Any = StillNodes(self.poller)
            problems = Problems(options)
            self.context = Context(
                options=options,
                urls=Urls(options.base_path),
                upstream=upstream,
                poller=self.poller,  # type: ignore[arg-type]
                history=History(options),
                problems=problems,
                webhook=ProblemWebhook(options, problems),
                consumers=StillConsumers(),  # type: ignore[arg-type]
                audit=Audit(options),
                start_time=time.time(),
            )
            if self._fill is not None:
                self._fill(self.context.history, self._first)
            problems.found = list(self._problems)
            for problem in self._problems:
                if problem.muted_by is not None:
                    problems.silences.begin(problem.muted_by)
            self.context.audit._entries.extend(self._entries)
            app = web.Application()
            app[CONTEXT] = self.context
            make_app(app, self.context)
            runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
            await runner.setup()
            stack.push_async_callback(runner.cleanup)
            site = web.TCPSite(runner, "127.0.0.1", 0)
            await site.start()
            self.port = runner.addresses[0][1]
            self.root = f"http://127.0.0.1:{self.port}"
            self.url = self.root + self.context.urls.base
            await self._publish(self._first)
            self._stop = stop
            self._started.set()
            await stop.wait()


def example_pages(*flags: str) -> AdminPages:
    """Of a cluster that has something of everything."""
    return AdminPages(
        example_cluster(),
        *flags,
        problems=example_problems(),
        entries=example_entries(),
        fill=fill_history,
    )
