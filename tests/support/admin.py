"""Starts nsqadmin, nsqfast's or Go's, beside a living cluster of both kinds of nodes."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, NamedTuple, Self
from urllib.parse import urlencode

from support.server import Server, program, start_nsqd, start_nsqlookupd
from support.waiting import wait_until
from support.web import Answer, get, post, request

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path
    from typing import Any

    from support.server import Address

BOTH = ("nsqfast", "go")
# The disk of the machine that runs the tests may be nearly full, which is a problem only for a test that asks for it.
ANY_DISK = "--problem-disk-free=0"


def text_of(address: Address) -> str:
    """`host:port`."""
    return "{}:{}".format(*address)


def shown(text: str | list[Any]) -> str:
    """A text of /ui/live, in pieces if it has times, as the server writes it."""
    return "".join(piece if isinstance(piece, str) else piece[1] for piece in text)


def start_nsqadmin(
    implementation: str,
    *flags: str,
    lookupds: Sequence[Server] = (),
    nsqds: Sequence[Server] = (),
) -> Server:
    """On a free port; `http` is its address."""
    command = [
        *program("nsqadmin", implementation),
        "--http-address=127.0.0.1:0",
        *((ANY_DISK,) if implementation == "nsqfast" else ()),
        *(f"--lookupd-http-address={text_of(one.http)}" for one in lookupds),
        *(f"--nsqd-http-address={text_of(one.http)}" for one in nsqds),
        *flags,
    ]
    return Server(command, ("HTTP",))


def wait_for_channel(server: Server, topic: str, channel: str, nodes: int = 3) -> None:
    """Until the poller knows it on so many nodes; `/api/topics`, which asks the nodes itself, may be ahead of it."""

    def known() -> bool:
        answer = get(server.http, f"/ui/messages?{urlencode({'topic': topic, 'channel': channel})}")
        return answer.status == 200 and len(answer.json()["nodes"]) == nodes

    wait_until(known, f"{topic}/{channel} is known")


class LiveCluster:
    """Two nsqd of ours and one of Go's at two nsqlookupd, one ours and one Go's, unless told otherwise."""

    def __init__(
        self,
        folder: Path,
        nsqds: Sequence[str] = ("nsqfast", "nsqfast", "go"),
        lookupds: Sequence[str] = ("nsqfast", "go"),
        *nsqd_flags: str,
    ) -> None:
        self.folder = folder
        self.kinds = nsqds
        self.lookupd_kinds = lookupds
        self.nsqd_flags = nsqd_flags
        self.nsqds: list[Server] = []
        self.lookupds: list[Server] = []
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            for kind in self.lookupd_kinds:
                self.lookupds.append(stack.enter_context(start_nsqlookupd(kind)))
            told = [f"--lookupd-tcp-address={text_of(one.tcp)}" for one in self.lookupds]
            for number, kind in enumerate(self.kinds):
                path = self.folder / f"nsqd-{number}"
                path.mkdir(parents=True, exist_ok=True)
                self.nsqds.append(
                    stack.enter_context(start_nsqd(kind, path, *told, *self.nsqd_flags))
                )
            self.wait_for_nodes(len(self.kinds))
            self._stack = stack.pop_all()
        return self

    def __exit__(self, kind: object, *rest: object) -> None:
        self._stack.__exit__(kind, *rest)  # type: ignore[arg-type]

    def admin(self, implementation: str, *flags: str, direct: bool = False) -> Server:
        """An nsqadmin for it, to be entered: through nsqlookupd, or straight to its nsqd."""
        if direct:
            return start_nsqadmin(implementation, *flags, nsqds=self.nsqds)
        return start_nsqadmin(implementation, *flags, lookupds=self.lookupds)

    def admins(self, *flags: str, direct: bool = False) -> Pair:
        """Ours and Go's side by side."""
        return Pair(*(self.admin(kind, *flags, direct=direct) for kind in BOTH))

    def replace(self, number: int, server: Server) -> None:
        """An nsqd that takes the place of one that was ended, and is ended with the cluster at the latest."""
        self.nsqds[number] = self._stack.enter_context(server)

    def replace_lookupd(self, number: int, server: Server) -> None:
        """Likewise."""
        self.lookupds[number] = self._stack.enter_context(server)

    def wait_for_nodes(self, count: int) -> None:
        """Until every nsqlookupd knows so many."""
        for lookupd in self.lookupds:
            wait_until(
                lambda one=lookupd: len(get(one.http, "/nodes").json()["producers"] or []) == count,
                f"{count} nsqd at nsqlookupd",
            )

    def wait_for_topic(self, topic: str, count: int, channels: int = 0) -> None:
        """Until every nsqlookupd knows so many nsqd that have it, and at least so many channels of it."""
        target = "/lookup?topic=" + topic.replace("#", "%23")

        def known(lookupd: Server) -> bool:
            answer = get(lookupd.http, target)
            if answer.status != 200:
                return False
            found = answer.json()
            producers, names = found["producers"] or [], found["channels"] or []
            return len(producers) == count and len(names) >= channels

        for lookupd in self.lookupds:
            wait_until(lambda one=lookupd: known(one), f"{topic} on {count} nsqd")

    def make(self, topic: str, *channels: str, on: Sequence[int] = ()) -> None:
        """A topic with these channels on these nsqd (all if none is named), and known everywhere."""
        nodes = [self.nsqds[number] for number in on] or self.nsqds
        name = topic.replace("#", "%23")
        for node in nodes:
            told(node, f"/topic/create?topic={name}")
            for channel in channels:
                told(node, f"/channel/create?topic={name}&channel={channel.replace('#', '%23')}")
        self.wait_for_topic(topic, len(nodes), len(channels))

    def publish(self, topic: str, count: int, on: int = 0, body: bytes = b"hello") -> None:
        """So many messages to one nsqd."""
        target = "/mpub?topic=" + topic.replace("#", "%23")
        told(self.nsqds[on], target, b"\n".join([body] * count))


def told(server: Server, target: str, body: bytes = b"") -> Answer:
    """POST, and it was done."""
    answer = post(server.http, target, body)
    assert answer.status == 200, (target, answer)
    return answer


class Both(NamedTuple):
    """What the two said to the same question."""

    ours: Answer
    theirs: Answer


class Pair:
    """Our nsqadmin and Go's; every question goes to both, ours first."""

    def __init__(self, ours: Server, theirs: Server) -> None:
        self.ours = ours
        self.theirs = theirs

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *rest: object) -> None:
        with self.ours, self.theirs:
            pass

    def ask(
        self,
        method: str,
        target: str,
        body: bytes | None = None,
        headers: dict[str, str] | None = None,
    ) -> Both:
        """The answers of both."""
        first = request(self.ours.http, method, target, body, headers)
        return Both(first, request(self.theirs.http, method, target, body, headers))

    def get(self, target: str) -> Both:
        """As `ask`."""
        return self.ask("GET", target)
