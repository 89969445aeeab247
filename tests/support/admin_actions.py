"""Asks an nsqadmin for actions as its pages do, and looks at what came of them at the nodes themselves."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

from support.admin import text_of
from support.server import start_nsqd
from support.waiting import wait_until
from support.web import request, stats

if TYPE_CHECKING:
    from collections.abc import Sequence

    from support.admin import LiveCluster
    from support.server import Server
    from support.web import Answer

JSON_TYPE = {"Content-Type": "application/json"}


class Acting:
    """One nsqadmin. What it answers comes as (status, JSON)."""

    def __init__(self, admin: Server, headers: dict[str, str] | None = None) -> None:
        self.admin = admin
        self.headers = JSON_TYPE | (headers or {})

    def ask(self, method: str, target: str, body: Any = None) -> tuple[int, Any]:
        data = None if body is None else json.dumps(body).encode()
        answer: Answer = request(self.admin.http, method, target, data, self.headers)
        return answer.status, json.loads(answer.body)

    def effect(self, action: str, topic: str = "", channel: str = "", **more: Any) -> Any:
        """Of one item, or with items or view and table of a set; it is given."""
        order = {"action": action, "topic": topic, "channel": channel} | more
        status, effect = self.ask("POST", "/ui/effect", order)
        assert status == 200, effect
        return effect

    def act(self, action: str, topic: str = "", channel: str = "", **more: Any) -> tuple[int, Any]:
        """Without any dialog."""
        order = {"action": action, "topic": topic, "channel": channel} | more
        return self.ask("POST", "/ui/actions", order)

    def end_of(self, job: Any) -> Any:
        """The job when it has ended."""
        ended: list[Any] = []

        def is_over() -> bool:
            ended.append(self.ask("GET", f"/ui/actions/{job['id']}")[1])
            return not ended[-1]["is_running"]

        wait_until(is_over, "the end of the job")
        return ended[-1]

    def wait_for_cluster(self, count: int) -> None:
        """Until it knows so many nsqd."""
        wait_until(lambda: len(self.effect("create")["nodes"]) == count, f"{count} nsqd")

    def wait_for_nodes(self, topic: str, count: int) -> None:
        """Until its own poll knows that so many have the topic."""
        view = "/topics/" + quote(topic, safe="")

        def is_known() -> bool:
            target = "/ui/live?" + urlencode({"view": view})
            answer = request(self.admin.http, "GET", target, None, self.headers)
            if answer.status != 200:
                return False
            return len(json.loads(answer.body)["tables"]["nodes"]["rows"]) == count

        wait_until(is_known, f"{topic} on {count} nodes")


def publish(cluster: LiveCluster, topic: str, *counts: int, channels: Sequence[str]) -> None:
    """So many messages to each node in turn, until all of these channels have them."""
    for number, count in enumerate(counts):
        if count:
            cluster.publish(topic, count, on=number)
    for channel in channels:

        def is_there(channel: str = channel) -> bool:
            return [max(depth, 0) for depth in depths(cluster, topic, channel)] == list(counts)

        wait_until(is_there, f"{counts} messages in {topic}/{channel}")


def results(job: Any) -> dict[str, bool]:
    """Of a job on one item: which node did it."""
    return {result["node"]: result["ok"] for result in job["items"][0]["results"]}


def depths(cluster: LiveCluster, topic: str, channel: str) -> list[int]:
    """What waits, by node; -1 where it is not there."""
    found = []
    for node in cluster.nsqds:
        topics = stats(node.http, topic=topic, channel=channel)["topics"] or []
        channels = topics[0]["channels"] if topics else []
        found.append(channels[0]["depth"] if channels else -1)
    return found


def paused(cluster: LiveCluster, topic: str, channel: str = "") -> list[bool]:
    """By node."""
    found = []
    for node in cluster.nsqds:
        (one,) = stats(node.http, topic=topic, channel=channel)["topics"]
        found.append(one["channels"][0]["paused"] if channel else one["paused"])
    return found


def topics_of(cluster: LiveCluster) -> list[list[str]]:
    """By node, sorted."""
    return [
        sorted(topic["topic_name"] for topic in stats(node.http)["topics"] or [])
        for node in cluster.nsqds
    ]


def start_again(cluster: LiveCluster, number: int) -> None:
    """An nsqd of the cluster that was killed: at its old addresses, with its old data. The cluster ends it."""
    old = cluster.nsqds[number]
    told = [f"--lookupd-tcp-address={text_of(one.tcp)}" for one in cluster.lookupds]
    server = start_nsqd(
        cluster.kinds[number],
        cluster.folder / f"nsqd-{number}",
        f"--tcp-address={text_of(old.tcp)}",
        f"--http-address={text_of(old.http)}",
        *told,
        *cluster.nsqd_flags,
    )
    cluster.replace(number, server)
