"""The HTTP side of an nsqd, or of an nsqlookupd, that says what a test wants."""

from __future__ import annotations

import contextlib
import json
import threading
from http.server import BaseHTTPRequestHandler
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import parse_qs, urlsplit

from support.strict_http import StrictHTTPServer

if TYPE_CHECKING:
    from collections.abc import Callable

SECONDS_MAX = 50
LATENCY = {"count": 0, "percentiles": None}


def channel(name: str, **counters: int) -> dict[str, Any]:
    """One of `topic`; counters that are not given are 0."""
    names = "depth backend_depth in_flight_count deferred_count message_count requeue_count timeout_count client_count"
    known = dict.fromkeys(names.split(), 0)
    assert not counters.keys() - known.keys()
    return {
        "channel_name": name,
        **known,
        **counters,
        "clients": [],
        "paused": False,
        "e2e_processing_latency": LATENCY,
    }


def topic(name: str, *channels: dict[str, Any], depth: int = 0, count: int = 0) -> dict[str, Any]:
    return {
        "topic_name": name,
        "channels": list(channels),
        "depth": depth,
        "backend_depth": 0,
        "message_count": count,
        "message_bytes": 0,
        "paused": False,
        "e2e_processing_latency": LATENCY,
    }


def stats(*topics: dict[str, Any], start_time: int = 1) -> dict[str, Any]:
    return {"version": "1.3.0", "health": "OK", "start_time": start_time, "topics": list(topics)}


class FakeStats:
    """`answer` is called with the path and the query of each request; bytes are sent as they are, None is a 500.

    `may_answer` holds all answers back while it is not set. /info is answered as Go's tools ask for it. What `answer`
    raises fails the test at the end.
    """

    def __init__(self, answer: Callable[[str, dict[str, str]], Any], port: int = 0) -> None:
        self.answer = answer
        self.may_answer = threading.Event()
        self.may_answer.set()
        self.asked: list[tuple[str, dict[str, str]]] = []
        self._server = StrictHTTPServer(("127.0.0.1", port), self._handler())
        self.port = self._server.server_address[1]
        self.address = f"127.0.0.1:{self.port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=[0.01], daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Connections that are open stay so, until they ask again."""
        self.may_answer.set()
        self._server.shutdown()
        self._server.server_close()

    def _info(self) -> dict[str, Any]:
        return {
            "version": "1.3.0",
            "broadcast_address": "127.0.0.1",
            "hostname": "fake",
            "http_port": self.port,
            "tcp_port": 1,
        }

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        fake = self

        class Handler(BaseHTTPRequestHandler):
            # HTTP/1.0: each request has a connection of its own, and `close` is the end of all.
            def do_GET(self) -> None:
                parts = urlsplit(self.path)
                query = {name: values[0] for name, values in parse_qs(parts.query).items()}
                fake.asked.append((parts.path, query))
                assert fake.may_answer.wait(SECONDS_MAX)
                found = fake._info() if parts.path == "/info" else fake.answer(parts.path, query)
                body = found if isinstance(found, bytes) else json.dumps(found).encode()
                self.send_response(500 if found is None else 200)
                self.send_header("Content-Type", "application/json; charset=utf-8")
                self.send_header("X-NSQ-Content-Type", "nsq; version=1.0")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                with contextlib.suppress(ConnectionError):
                    self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        return Handler
