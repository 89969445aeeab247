"""HTTP requests for tests: one connection each, nothing hidden."""

from __future__ import annotations

import http.client
import json
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def text(self) -> str:
        return self.body.decode()


def request(
    address: tuple[str, int],
    method: str,
    target: str,
    body: bytes | None = None,
    headers: dict[str, str] | None = None,
    connect: Callable[..., http.client.HTTPConnection] = http.client.HTTPConnection,
) -> Answer:
    connection = connect(*address, timeout=10)
    try:
        connection.request(method, target, body, headers or {})
        response = connection.getresponse()
        data = response.read()
        kept = {name: value for name, value in response.getheaders() if name != "Date"}
        return Answer(response.status, kept, data)
    finally:
        connection.close()


def get(address: tuple[str, int], target: str) -> Answer:
    return request(address, "GET", target)


def post(address: tuple[str, int], target: str, body: bytes = b"") -> Answer:
    return request(address, "POST", target, body)


def stats(address: tuple[str, int], **filters: str) -> Any:
    query = "&".join(f"{name}={value}" for name, value in filters.items())
    answer = get(address, f"/stats?format=json&{query}")
    assert answer.status == 200, answer
    return answer.json()


def topic_stats(address: tuple[str, int], topic: str) -> Any:
    """The counters of one topic, its channels as a dict by name; None when there is none."""
    found = stats(address, topic=topic.replace("#", "%23"))["topics"]
    if not found:
        return None
    found[0]["channels"] = {c["channel_name"]: c for c in found[0]["channels"]}
    return found[0]
