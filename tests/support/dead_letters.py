"""Messages that die, of which a broker knows why."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from support.waiting import eventually
from support.web import post, request, topic_stats
from support.wire import Client

if TYPE_CHECKING:
    from support.server import Server

IDENTITY = json.dumps(
    {"client_id": "worker-7", "hostname": "h", "feature_negotiation": True, "reject": True}
).encode()


def make_dead_letters(
    broker: Server, topic: str, *bodies: bytes, error: str = "no such user"
) -> str:
    """Let each of them fail twice, which is once too often; return the topic that has them."""
    definition = json.dumps({"topic": f"^{topic}$", "definition": {"max_failures": 2}}).encode()
    assert request(broker.http, "PUT", f"/policies/{topic}", definition).status == 200
    dead = f"{topic}.c.dead"

    def count() -> int:
        return int((topic_stats(broker.http, dead) or {"message_count": 0})["message_count"])

    before = count()
    with Client(broker.tcp) as client:
        client.command("IDENTIFY", body=IDENTITY)
        client.read_response()
        client.sub(topic, "c", 1)
        for body in bodies:
            assert post(broker.http, f"/pub?topic={topic}", body).status == 200
            for _ in range(2):
                client.command("REQ", client.read_message().id.decode(), "0", error)
        client.barrier()
    eventually(lambda: count() == before + len(bodies))
    return dead
