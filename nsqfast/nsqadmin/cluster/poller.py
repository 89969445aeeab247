"""Polls the whole cluster repeatedly, once for all viewers, and keeps its last state."""

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine
from typing import Any

from nsqfast.net.slices import Slices
from nsqfast.nsqadmin.cluster.client import Upstream
from nsqfast.nsqadmin.cluster.history import History
from nsqfast.nsqadmin.cluster.members import GivenNode, LookupdWatch, Members, NodeWatch, Question
from nsqfast.nsqadmin.cluster.model import EMPTY, Cluster, NodeState, Topic
from nsqfast.nsqadmin.cluster.tick import CHANNEL_UNITS, Arrangement, make_tick
from nsqfast.nsqadmin.options import Options

log = logging.getLogger("nsqadmin")

INTERVAL_S = 2.0
# The interval is this many times the CPU time of a poll and its consequences (rules, pages): below a tenth of a core.
CPU_SHARE = 12
# But at most this many times that of the poll alone: a script that asks for much must not make pages old.
CYCLE_COST_MAX = 4
UNSEEN_INTERVAL_S = 10.0
UNSEEN_AFTER_S = 30.0
PAUSE_S_MIN = 0.05  # between two polls, however slow the first was

ANSWER_S = 1.5  # later answers are late, and count at the next tick
SUSPECT_ANSWER_S = 0.2  # a node that did not answer the last time is not waited for any longer
NODES_AT_ONCE = 16
# Separate from the others: a frozen node must not take a place from a live one.
SUSPECTS_AT_ONCE = 16


class Poller:
    """`cluster` is the last tick; await `next_tick` for the next one."""

    def __init__(self, options: Options, upstream: Upstream, history: History) -> None:
        self.cluster: Cluster = EMPTY
        self.interval_s = INTERVAL_S
        self.cpu_s = 0.0  # of the last poll
        self.cycle_cpu_s = 0.0  # from the begin of the previous poll to its own
        self.took_s = 0.0  # the last poll, including waiting
        self._options = options
        self.members = Members(options, upstream)
        self._history = history
        self._arrangement = Arrangement()
        self._listeners: list[Callable[[Cluster], None]] = []
        self._ticked = asyncio.Event()
        self._wanted = asyncio.Event()
        self._seen_s = time.monotonic()
        self._task: asyncio.Task[None] | None = None
        self._slots = asyncio.Semaphore(NODES_AT_ONCE)
        self._suspect_slots = asyncio.Semaphore(SUSPECTS_AT_ONCE)

    def listen(self, listener: Callable[[Cluster], None]) -> None:
        """Call it with each new tick, on the loop."""
        self._listeners.append(listener)

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        for question in [*self.members.questions(), *self.members.retired()]:
            await question.cancel()

    def ask_now(self) -> None:
        """Something was changed: do not wait for the rest of the interval."""
        self._wanted.set()

    def seen(self) -> None:
        """A viewer asked; without viewers, polls are rarer."""
        was_unseen = self._is_unseen()
        self._seen_s = time.monotonic()
        if was_unseen:
            self.ask_now()

    def note_emptied(self, topic: str, channel: str = "", node: str = "") -> None:
        """We emptied a channel: its rates are unknown over this time. Call this before and after emptying.

        Without a node: on all of them.
        """
        nodes = self.members.nodes
        for watch in [nodes[node]] if node in nodes else [] if node else nodes.values():
            watch.note_emptied(topic, channel)

    async def next_tick(self) -> Cluster:
        """The first tick after the call."""
        await self._ticked.wait()
        return self.cluster

    async def _run(self) -> None:
        last_cpu_s = time.thread_time()
        while True:
            self._wanted.clear()
            began_s, began_cpu_s = time.monotonic(), time.thread_time()
            self.cycle_cpu_s, last_cpu_s = began_cpu_s - last_cpu_s, began_cpu_s
            last = list(self.cluster.topics.values())
            try:
                self._publish(await self._ask())
            except Exception:
                log.exception("the cluster could not be asked")
            await free_topics(last)
            self.cpu_s = time.thread_time() - began_cpu_s
            self.took_s = time.monotonic() - began_s
            self.interval_s = self._interval_s()
            pause_s = max(self.interval_s - (time.monotonic() - began_s), PAUSE_S_MIN)
            try:
                async with asyncio.timeout(pause_s):
                    await self._wanted.wait()
            except TimeoutError:
                pass

    def _interval_s(self) -> float:
        if self._options.poll_interval_ns:
            return self._options.poll_interval_ns / 1e9
        cost_s = max(self.cpu_s, min(self.cycle_cpu_s, CYCLE_COST_MAX * self.cpu_s))
        interval_s = max(INTERVAL_S, CPU_SHARE * cost_s)
        return max(interval_s, UNSEEN_INTERVAL_S) if self._is_unseen() else interval_s

    def _is_unseen(self) -> bool:
        return time.monotonic() - self._seen_s > UNSEEN_AFTER_S

    async def _ask(self) -> Cluster:
        members = self.members
        members.read_options()
        for question in members.retired():
            await question.cancel()
        await self._ask_lists()
        members.read_lists()
        slices, asked = Slices(), []
        for node in list(members.nodes.values()):
            asked.append((node.question.ask(self._ask_node(node)), node.question.is_suspect))
            await slices.pause()
        await _wait(asked)
        now = time.time()
        for node in members.nodes.values():
            node.note_result(now)
        lookupds = list(members.lookupds.values())
        tick = self.cluster.tick + 1
        nodes = members.nodes.values()
        return await make_tick(self._arrangement, self._history, tick, now, nodes, lookupds)

    async def _ask_lists(self) -> None:
        members = self.members
        watches: list[LookupdWatch | GivenNode] = [*members.lookupds.values()]
        suspects: set[Question] = {w.question for w in watches if w.question.is_suspect}
        for given in members.given.values():
            node = members.nodes.get(given.identity.key)
            # After a restart another one may answer there.
            if node is None or node.question.state is not NodeState.UP:
                watches.append(given)
                if node is not None or given.question.is_suspect:
                    suspects.add(given.question)
        await _wait([(w.question.ask(w.ask), w.question in suspects) for w in watches])
        now = time.time()
        for watch in watches:
            watch.question.note_result(now)

    def _ask_node(self, node: NodeWatch) -> Callable[[], Coroutine[Any, Any, str]]:
        slots = self._suspect_slots if node.question.is_suspect else self._slots

        async def ask() -> str:
            async with slots:
                return await node.ask()

        return ask

    def _publish(self, cluster: Cluster) -> None:
        for listener in self._listeners:
            try:
                listener(cluster)
            except Exception:
                log.exception("a tick could not be taken")
        self.cluster = cluster
        ticked, self._ticked = self._ticked, asyncio.Event()
        ticked.set()


async def free_topics(topics: list[Topic]) -> None:
    """Freeing a hundred thousand objects takes a while, too."""
    slices = Slices()
    while topics:
        channels = list(topics.pop().channels.values())
        while channels:
            channels.pop()
            await slices.pause(CHANNEL_UNITS)
        await slices.pause()


async def _wait(asked: list[tuple[asyncio.Task[str], bool]]) -> None:
    """Wait for answers; suspect nodes have less time."""
    began_s = time.monotonic()
    await _wait_for([task for task, is_suspect in asked if not is_suspect], ANSWER_S)
    left_s = SUSPECT_ANSWER_S - (time.monotonic() - began_s)
    await _wait_for([task for task, is_suspect in asked if is_suspect], max(left_s, 0))


async def _wait_for(tasks: list[asyncio.Task[str]], timeout_s: float) -> None:
    if tasks:
        await asyncio.wait(tasks, timeout=timeout_s)
