"""An auth server for tests: it keeps what it was asked and answers as the test says."""

from __future__ import annotations

import http.server
import json
import threading
from typing import TYPE_CHECKING, Any, NamedTuple, Self
from urllib.parse import parse_qs, urlsplit

from support.strict_http import StrictHTTPServer

if TYPE_CHECKING:
    import ssl

SECONDS_MAX = 50.0


class Question(NamedTuple):
    method: str
    target: str
    headers: dict[str, str]
    body: bytes

    @property
    def secret(self) -> str:
        if self.body:
            return str(json.loads(self.body)["secret"][0])
        return parse_qs(urlsplit(self.target).query).get("secret", [""])[0]


class Reply(NamedTuple):
    body: bytes
    status: int = 200
    headers: dict[str, str] | None = None


def permit(
    topic: str = ".*", channels: tuple[str, ...] = (".*",), permissions: str = "publish subscribe"
) -> dict[str, Any]:
    return {"topic": topic, "channels": list(channels), "permissions": permissions.split()}


def grant(*permits: dict[str, Any], ttl: Any = 3600, **more: Any) -> Reply:
    return Reply(json.dumps({"ttl": ttl, "authorizations": permits, **more}).encode())


class AuthServer:
    """`answers` has a Reply, or a function of the handler, by secret; `wait_for` counts questions."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self.answers: dict[str, Any] = {}
        self.questions: list[Question] = []
        self.connections = 0
        self._changed = threading.Condition()
        self._server = _listen(self)
        if tls is not None:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        self.port: int = self._server.server_address[1]
        self.address = f"127.0.0.1:{self.port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def asked(self, secret: str) -> list[Question]:
        return [question for question in self.questions if question.secret == secret]

    def wait_for(self, secret: str, count: int) -> None:
        """Until the secret was asked for so often."""
        with self._changed:
            arrived = self._changed.wait_for(lambda: len(self.asked(secret)) >= count, SECONDS_MAX)
        assert arrived, self.questions

    def take(self, handler: http.server.BaseHTTPRequestHandler) -> Any:
        size = int(handler.headers.get("Content-Length", 0))
        headers = {name.lower(): value for name, value in handler.headers.items()}
        question = Question(handler.command, handler.path, headers, handler.rfile.read(size))
        with self._changed:
            self.questions.append(question)
            self._changed.notify_all()
        return self.answers.get(question.secret, Reply(b'{"message":"NOT_FOUND"}', 404))


def _listen(owner: AuthServer) -> StrictHTTPServer:
    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def setup(self) -> None:
            super().setup()
            owner.connections += 1

        def do_GET(self) -> None:
            answer = owner.take(self)
            if isinstance(answer, Reply):
                send(self, answer)
            else:
                answer(self)

        do_POST = do_GET  # noqa: N815 - its base calls it so

        def log_message(self, *_: object) -> None:
            pass

    return StrictHTTPServer(("127.0.0.1", 0), Handler)


def send(handler: http.server.BaseHTTPRequestHandler, reply: Reply) -> None:
    handler.send_response(reply.status)
    for name, value in (reply.headers or {}).items():
        handler.send_header(name, value)
    handler.send_header("Content-Length", str(len(reply.body)))
    handler.end_headers()
    handler.wfile.write(reply.body)


class Gate:
    """An answer that is given when the test opens the gate."""

    def __init__(self, reply: Reply) -> None:
        self._reply = reply
        self._open = threading.Event()

    def __call__(self, handler: http.server.BaseHTTPRequestHandler) -> None:
        assert self._open.wait(SECONDS_MAX)
        send(handler, self._reply)

    def open(self) -> None:
        self._open.set()
