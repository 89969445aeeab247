"""A night on call: what the pages, /metrics and the webhook say of each fault, when it is raised and when it is over.

Three nsqd and two nsqlookupd live through it, beside an nsqadmin with short times. Each fault ends before the next
begins, and the webhook is told of nothing else.
"""

from __future__ import annotations

import contextlib
import html
import json
import re
import select
import threading
import time
from typing import TYPE_CHECKING, Any, Self

import pytest

from support.admin import LiveCluster, shown, text_of, told
from support.admin_actions import start_again
from support.destination import Destination
from support.programs import left
from support.prometheus import scrape
from support.server import DRAINED, start_nsqlookupd
from support.small_disk import small_disk
from support.waiting import wait_until
from support.web import get, post, request
from support.wire import Client

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from support.server import Server

pytestmark = [pytest.mark.soak, pytest.mark.timeout(900)]

JSON = {"Content-Type": "application/json"}
SECONDS_MAX = 150
MIB = 1 << 20
FLAGS = (
    "--poll-interval=200ms",
    "--problem-no-consumers=1s",
    "--problem-stuck=3s",
    "--planned-stop=60s",
)


class Night:
    """The cluster and its nsqadmin; the webhook's events are taken from `told` as they are expected."""

    def __init__(self, cluster: LiveCluster, folder: Path, endpoint: Destination) -> None:
        self.cluster = cluster
        self.endpoint = endpoint
        self.flags = (
            *FLAGS,
            f"--history-file={folder / 'history'}",
            f"--problem-webhook={endpoint.url}",
        )
        self.told: list[tuple[str, str]] = []
        self.heard = 0
        self.admin: Server = cluster.admin("nsqfast", *self.flags)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *rest: object) -> None:
        self.admin.__exit__(kind, *rest)

    def node(self, number: int) -> str:
        return text_of(self.cluster.nsqds[number].http)

    def restart_admin(self) -> None:
        self.admin.stop()
        self.admin = self.cluster.admin("nsqfast", *self.flags)

    def tell(self, path: str, **body: object) -> None:
        """A button of a page."""
        answer = request(self.admin.http, "POST", path, json.dumps(body).encode(), JSON)
        assert answer.status == 200, (path, answer)

    def problems(self, rule: str = "") -> list[dict[str, Any]]:
        """All, or those of one rule."""
        found = get(self.admin.http, "/ui/problems").json()["problems"]
        return [one for one in found if rule in ("", one["rule"])]

    def page(self, path: str) -> str:
        """Its text; the elements of times in it would be in the way of looking for a sentence."""
        return html.unescape(re.sub("</?time[^>]*>", "", get(self.admin.http, path).text))

    def state_of(self, number: int) -> str:
        """The word on the node's page."""
        answer = get(self.admin.http, f"/ui/live?view=/nodes/{self.node(number)}")
        if answer.status != 200:
            return "unknown"
        return shown(answer.json()["states"]["node"]["word"])

    def wait_for_state(self, number: int, word: str) -> None:
        wait_until(lambda: re.fullmatch(word, self.state_of(number)) is not None, word)

    def wait_told(self, status: str, rule: str) -> None:
        """The webhook was told, once."""

        def is_told() -> bool:
            bodies = self.endpoint.bodies
            for body in bodies[self.heard :]:
                events = json.loads(body)["events"]
                self.told += [(event["status"], event["problem"]["rule"]) for event in events]
            self.heard = len(bodies)
            return (status, rule) in self.told

        wait_until(is_told, f"{rule} {status} at the webhook")
        self.told.remove((status, rule))

    def wait_raised(self, rule: str, severity: str, text: str, where: str) -> dict[str, Any]:
        """Everybody says so."""

        def find() -> list[dict[str, Any]]:
            return [
                one
                for one in self.problems(rule)
                if one["severity"] == severity
                and re.search(text, one["text"])
                and where in (one["channel"], one["topic"], one["node"])
            ]

        wait_until(lambda: bool(find()), f"{rule} of {where}: {text}", SECONDS_MAX)
        (found,) = find()
        wait_until(lambda: re.search(text, self.page("/problems")) is not None, f"{rule} on a page")
        wait_until(lambda: self.has_series(rule), f"{rule} in /metrics")
        self.wait_told("raised", rule)
        return found

    def wait_over(self, rule: str) -> None:
        """Everybody says that, too."""
        wait_until(lambda: not self.problems(rule), f"{rule} is over", SECONDS_MAX)
        assert not self.has_series(rule)
        self.wait_told("resolved", rule)

    def has_series(self, rule: str) -> bool:
        series = scrape(self.admin.http).series()
        return any(
            name == "nsqadmin_problem" and ("rule", rule) in labels for name, labels in series
        )

    def check_quiet(self, name: str) -> None:
        """Nothing is wrong, and nobody was told of anything else."""
        wait_until(lambda: not self.problems(), f"quiet after {name}", SECONDS_MAX)
        self.tell("/ui/problems/test")
        self.wait_told("raised", "test")
        assert self.told == [], name


def test_a_night(tmp_path: Path) -> None:
    cluster = LiveCluster(tmp_path, ("nsqfast",) * 3, ("nsqfast",) * 2, "--http-drain")
    faults = (
        consumers_go,
        one_of_three_hangs,
        killed_with_messages_in_memory,
        nsqlookupd_die_one_after_the_other,
        planned_work,
        silenced,
        nsqadmin_is_restarted,
    )
    live_through(cluster, tmp_path, *faults)


def test_a_night_in_which_a_disk_fills(tmp_path: Path) -> None:
    place = tmp_path / "nsqd-0"
    place.mkdir()
    with small_disk(place, 64 * MIB):
        flag = f"--min-free-disk={16 * MIB}"
        live_through(
            LiveCluster(tmp_path, ("nsqfast",), ("nsqfast",), flag), tmp_path, a_disk_fills
        )


def live_through(cluster: LiveCluster, folder: Path, *faults: Callable[[Night], None]) -> None:
    with Destination() as endpoint, cluster:
        cluster.make("orders", "billing")
        with Night(cluster, folder, endpoint) as night:
            night.wait_for_state(0, "up")
            for fault in faults:
                began = time.monotonic()
                fault(night)
                night.check_quiet(fault.__name__)
                print(f"{fault.__name__}: {time.monotonic() - began:.0f} s")


def consumers_go(night: Night) -> None:
    night.cluster.make("emails", "send", on=(0,))
    night.cluster.publish("emails", 3)
    text = r"3 messages wait.*; no consumers since \d\d:\d\d UTC"
    found = night.wait_raised("no_consumers", "crit", text, "send")
    # A pause, and what undoes it, keep the time since when.
    nsqd = night.cluster.nsqds[0]
    told(nsqd, "/channel/pause?topic=emails&channel=send")
    night.wait_over("no_consumers")
    told(nsqd, "/channel/unpause?topic=emails&channel=send")
    assert night.wait_raised("no_consumers", "crit", text, "send")["since"] == found["since"]
    empty(nsqd, "emails", "send")
    night.wait_over("no_consumers")


def empty(nsqd: Server, topic: str, channel: str) -> None:
    """A consumer comes, and finishes all."""
    with Client(nsqd.tcp) as consumer:
        consumer.sub(topic, channel, 1)
        for _ in range(left(nsqd, topic, channel)):
            consumer.fin(consumer.read_message())
        wait_until(lambda: not left(nsqd, topic, channel), "all is finished")


def one_of_three_hangs(night: Night) -> None:
    nsqd = night.cluster.nsqds[0]
    with contextlib.ExitStack() as stack:
        hanging, *others = [stack.enter_context(Client(nsqd.tcp)) for _ in range(3)]
        hanging.sub("orders", "billing", 1)
        night.cluster.publish("orders", 1)
        hanging.read_message()
        for client in others:
            client.sub("orders", "billing", 1)
        address = text_of(hanging.socket.getsockname())
        with working(night, others):
            held = rf"{re.escape(address)}.* on {re.escape(night.node(0))} holds 1 message"
            night.wait_raised("consumer_stuck", "warn", held, "billing")
            wait_until(
                lambda: address in night.page("/topics/orders/billing?tab=clients"), "its row"
            )
            names = {"topic": "orders", "channel": "billing", "node": night.node(0)}
            night.tell("/ui/clients/disconnect", **names, address=address)
            night.wait_over("consumer_stuck")
    empty(nsqd, "orders", "billing")


@contextlib.contextmanager
def working(night: Night, clients: list[Client]) -> Iterator[None]:
    """Meanwhile messages come, and these finish all that they get: of the channel nothing can be seen."""
    is_over = threading.Event()

    def work() -> None:
        while not is_over.wait(0.05):
            night.cluster.publish("orders", 1)
            readable, _, _ = select.select([client.socket for client in clients], [], [], 0)
            for client in clients:
                if client.socket in readable:
                    client.fin(client.read_message())

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def killed_with_messages_in_memory(night: Night) -> None:
    nsqd, node = night.cluster.nsqds[1], night.node(1)
    with Client(nsqd.tcp) as consumer:
        consumer.sub("orders", "billing", 0)  # nobody misses consumers
        night.cluster.publish("orders", 7, on=1)
        running = night.cluster.folder / "nsqd-1" / "nsqfast.running"
        wait_until(lambda: b'"messages":7}' in running.read_bytes(), "they are counted")
        nsqd.kill()
    night.wait_raised("node_down", "crit", "no answer since .* UTC", node)
    assert night.state_of(1) == "down"
    start_again(night.cluster, 1)
    night.wait_over("node_down")
    text = "restarted uncleanly: up to 7 messages in memory are lost"
    night.wait_raised("unclean_start", "crit", text, node)
    assert text in night.page(f"/nodes/{node}")
    night.tell("/ui/nodes/acknowledge", node=node)
    night.wait_over("unclean_start")


def nsqlookupd_die_one_after_the_other(night: Night) -> None:
    first, second = night.cluster.lookupds
    first.kill()
    night.wait_raised("lookupd_down", "warn", "no answer since", text_of(first.http))
    second.kill()
    night.wait_raised("lookupd_down", "crit", "no answer since", text_of(second.http))
    night.wait_told("changed", "lookupd_down")
    assert "No nsqlookupd answers" in night.page("/nodes")
    start_lookupd_again(night, 0)
    night.wait_told("changed", "lookupd_down")  # of the other one: it is no more than a warning
    night.wait_told("resolved", "lookupd_down")
    start_lookupd_again(night, 1)
    night.wait_over("lookupd_down")
    night.cluster.wait_for_nodes(3)


def start_lookupd_again(night: Night, number: int) -> None:
    old = night.cluster.lookupds[number]
    flags = [f"--tcp-address={text_of(old.tcp)}", f"--http-address={text_of(old.http)}"]
    night.cluster.replace_lookupd(number, start_nsqlookupd("nsqfast", *flags))


def planned_work(night: Night) -> None:
    """A node is drained, of whose channel nobody thought that it is paused."""
    nsqd, node = night.cluster.nsqds[2], night.node(2)
    with Client(nsqd.tcp) as consumer:
        consumer.sub("orders", "billing", 0)
        night.cluster.publish("orders", 2, on=2)
        told(nsqd, "/channel/pause?topic=orders&channel=billing")
        night.wait_raised("paused_on_some_nodes", "warn", "paused on 1 of 3 nodes", "billing")
        night.tell("/ui/nodes/drain", node=node, confirm=node, deadline="1h")
        night.wait_for_state(2, r"draining: 2 left, until [\d:]+")
        text = "nobody gets 2 of 2 messages: paused, or without consumers"
        night.wait_raised("drain_held", "warn", text, node)
        told(nsqd, "/channel/unpause?topic=orders&channel=billing")
        night.wait_over("drain_held")
        night.wait_over("paused_on_some_nodes")
        consumer.command("RDY", "1")
        for _ in range(2):
            consumer.fin(consumer.read_message())
        night.wait_for_state(2, "stopped as planned")
    assert "has been down" not in night.page("/nodes")
    assert nsqd.process.wait(SECONDS_MAX) == DRAINED
    start_again(night.cluster, 2)
    night.wait_for_state(2, "up")


def silenced(night: Night) -> None:
    """A node goes that is silenced: nobody is called. When the silence ends, somebody is."""
    node = night.node(1)
    night.tell("/ui/silences", scope="node", target=node, hours=1, reason="a new disk")
    night.cluster.nsqds[1].stop()
    wait_until(lambda: bool(night.problems("node_down")), "it is seen")
    (problem,) = night.problems()
    assert problem["muted_by"]["reason"] == "a new disk"
    assert not night.has_series("node_down")
    assert "a new disk" in night.page("/problems")
    night.tell("/ui/silences/end", scope="node", target=node)
    night.wait_raised("node_down", "crit", "no answer since", node)
    start_again(night.cluster, 1)
    night.wait_over("node_down")


def nsqadmin_is_restarted(night: Night) -> None:
    """Nothing is over for that, and nobody is told again."""
    night.cluster.publish("emails", 1)
    found = night.wait_raised("no_consumers", "crit", "1 message waits", "send")
    night.restart_admin()
    (again,) = night.problems()
    assert (again["id"], again["since"]) == (found["id"], found["since"])
    night.wait_for_state(0, "up")
    empty(night.cluster.nsqds[0], "emails", "send")
    night.wait_over("no_consumers")


def a_disk_fills(night: Night) -> None:
    """Messages are refused before it is full; it is over when there has been room for a minute."""
    nsqd, node = night.cluster.nsqds[0], night.node(0)
    filler = night.cluster.folder / "nsqd-0" / "filler"
    filler.write_bytes(bytes(56 * MIB))
    text = "NOK - less than --min-free-disk"
    night.wait_raised("node_unhealthy", "crit", text, node)
    assert night.state_of(0) == "not well"
    assert text in night.page(f"/nodes/{node}")
    refused = post(nsqd.http, "/pub?topic=orders", b"x")
    assert (refused.status, refused.json()["message"]) == (503, "DISK_FULL")
    filler.unlink()
    wait_until(lambda: get(nsqd.http, "/ping").status == 200, "messages are taken again")
    night.wait_over("node_unhealthy")
