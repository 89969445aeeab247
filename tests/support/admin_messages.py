"""Nodes that are not there, and what they answer when somebody looks at their messages."""

from __future__ import annotations

import base64
import json
from typing import Any
from urllib.parse import parse_qs, urlsplit

from nsqfast.nsqadmin.cluster.answers import decode
from nsqfast.nsqadmin.cluster.client import UpstreamError
from nsqfast.nsqadmin.messages.dead_letters import NodeRedrive
from nsqfast.nsqadmin.messages.peek import Peeked
from support.admin_cluster import AT

LETTERS_COUNT = 37
ABLE, GO = "10.0.0.1:4151", "10.0.0.2:4151"
BODIES = (
    b'{"order": 7, "total": 129.90, "customer": {"name": "Ann"}, "items": [{"sku": "a-1", "count": 2}]}',
    b"GET /health 200\nGET /login 302",
    bytes(range(48)),
    b'<img src=x onerror=alert(1)>"><script>alert(2)</script>',
    b"x" * 65536,
)


def _message(number: int, body: bytes, state: str) -> dict[str, object]:
    is_binary = b"\0" in body
    due = None if state == "ready" else int((AT + 60 * (number + 1)) * 1e9)
    client = {"client_id": "billing-1", "hostname": "w7", "remote_address": "10.0.0.7:50000"}
    return {
        "id": f"0a1b2c3d4e5f{number:04x}",
        "timestamp": int((AT - 840 + number) * 1e9),
        "age_ms": 840_000 - 1000 * number,
        "attempts": number,
        "size": len(body) if len(body) < 65536 else 1 << 20,
        "where": ("memory", "disk")[number % 2] if state == "ready" else state,
        "due": due,
        "due_in_ms": None if due is None else 60_000 * (number + 1),
        "client": client if state == "in_flight" else None,
        "body": base64.b64encode(body).decode() if is_binary else body.decode(),
        "encoding": "base64" if is_binary else "text",
        "is_truncated": len(body) == 65536,
    }


def answer_peek(path: str) -> bytes:
    """Five messages of 184,201, whatever is asked for."""
    state = parse_qs(urlsplit(path).query).get("state", ["ready"])[0]
    messages = [_message(number, body, state) for number, body in enumerate(BODIES)]
    given = {"taken_at": int(AT * 1e9), "depth": 184_201, "offset": 0, "scanned": 10_000}
    more = {"is_complete": False, "next_offset": 10_000, "note": None, "messages": messages}
    return json.dumps(given | more).encode()


def answer_letters() -> bytes:
    """Three that died in orders/billing, and one of which nothing is known."""
    messages = [_message(number, body, "ready") for number, body in enumerate(BODIES[:4])]
    errors = ["KeyError: 'total'\n  in charge()", "KeyError: 'total'", BODIES[3].decode()]
    for number, error in enumerate(errors):
        messages[number]["failures"] = 5
        messages[number]["death"] = {
            "reason": ("failed", "failed", "rejected")[number],
            "topic": "orders",
            "channel": "billing",
            "failures": 5,
            "attempts": 6,
            "client": "billing-1",
            "error": error,
            "first_id": f"0a1b2c3d4e5e{number:04x}",
            "published": int((AT - 900 + number) * 1e9),
            "died": int((AT - 840 + number) * 1e9),
        }
    given = {"taken_at": int(AT * 1e9), "depth": LETTERS_COUNT, "scanned": 4, "next_offset": 4}
    return json.dumps(given | {"messages": messages}).encode()


def answer_redrive() -> bytes:
    """One that runs."""
    given = {"rate": 50.0, "limit": 0, "filter": "", "moved": 1200, "left": LETTERS_COUNT}
    return json.dumps(given | {"state": "running", "begun": int((AT - 24) * 1e9)}).encode()


def answer_calendar(path: str) -> bytes:
    """More and more, until the day after, and some much later."""
    count = int(parse_qs(urlsplit(path).query)["count"][0])
    counts = [(number * 37 % 101) * number for number in range(count // 2)]
    return json.dumps({"counts": counts + [0] * (count - len(counts)), "later": 1200}).encode()


def answer(address: str, path: str, kind: type[Any]) -> Any:
    """One node can show messages, one is Go's, and nobody else answers."""
    if address == ABLE:
        if kind is NodeRedrive:
            return decode(answer_redrive(), kind)
        if kind is Peeked:
            return decode(answer_letters() if ".dead" in path else answer_peek(path), kind)
        return decode(answer_calendar(path), kind)
    if address == GO:
        raise UpstreamError(f"{address}: got response 404 Not Found", 404)
    raise UpstreamError(f"{address}: connection refused")
