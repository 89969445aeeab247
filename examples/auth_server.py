"""An auth server for nsqd, until Ctrl-C.

python examples/auth_server.py [SECRETS.toml [HOST [PORT]]]

It answers GET and POST /auth as nsqd asks (docs/AUTH.md). The file is read anew for every question, so that a change
counts from the next one on:

    [SECRET]                                # quoted where it is more than letters, digits, _ and -
    identity = "billing"
    ttl = 3600                              # seconds until the broker asks again
    remote_ips = ["10.0.0.5"]               # optional: the secret is good from there only

    [[SECRET.authorizations]]
    topic = "^invoices$"
    channels = [".*"]
    permissions = ["publish", "subscribe"]
"""

import argparse
import contextlib
import json
import tomllib
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

SECRETS = Path(__file__).with_name("auth_secrets.toml")
BODY_SIZE_MAX = 65536
TTL_S = 60


class Handler(BaseHTTPRequestHandler):
    """One question after the other on a connection that stays open."""

    protocol_version = "HTTP/1.1"
    timeout = 60
    disable_nagle_algorithm = True  # head and body of an answer are two writes
    server: "AuthServer"

    def do_GET(self) -> None:
        self._answer(parse_qs(urlsplit(self.path).query))

    def do_POST(self) -> None:
        size = int(self.headers.get("Content-Length", 0))
        if not 0 <= size <= BODY_SIZE_MAX:
            self.send_error(413)
            return
        try:
            asked = json.loads(self.rfile.read(size))
        except ValueError:
            asked = {}
        self._answer(asked if isinstance(asked, dict) else {})

    def _answer(self, asked: dict[str, Any]) -> None:
        """Every key has a list of values in both forms."""
        if urlsplit(self.path).path != "/auth":
            self.send_error(404)
            return
        secret, remote_ip = (asked.get(key, [""])[0] for key in ("secret", "remote_ip"))
        granted = self.server.grant(secret, remote_ip)
        body = json.dumps(granted or {"message": "NOT_AUTHORIZED"}).encode()
        self.send_response(200 if granted else 403)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:  # noqa: ARG002
        """Without the query: it holds the secret."""
        self.log_message("%s %s %s", self.command, urlsplit(self.path).path, code)


class AuthServer(ThreadingHTTPServer):
    """Knows the secrets of one file."""

    daemon_threads = True

    def __init__(self, path: Path, host: str, port: int) -> None:
        super().__init__((host, port), Handler)
        self._path = path

    def grant(self, secret: str, remote_ip: str) -> dict[str, Any] | None:
        """The answer for a secret; None if it is not known, or not from there."""
        found = tomllib.loads(self._path.read_text(encoding="utf-8")).get(secret)
        if found is None or remote_ip not in found.get("remote_ips", [remote_ip]):
            return None
        return {
            "ttl": found.get("ttl", TTL_S),
            "identity": found.get("identity", ""),
            "identity_url": found.get("identity_url", ""),
            "authorizations": found.get("authorizations", []),
        }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("secrets", nargs="?", type=Path, default=SECRETS)
    parser.add_argument("host", nargs="?", default="127.0.0.1")
    parser.add_argument("port", nargs="?", type=int, default=4180)
    given = parser.parse_args()
    tomllib.loads(
        given.secrets.read_text(encoding="utf-8")
    )  # what is no good shows now, not at the first question
    with AuthServer(given.secrets, given.host, given.port) as server:
        address = "{}:{}".format(*server.server_address[:2])
        print(f"auth server on {address}: nsqfast-nsqd --auth-http-address={address}", flush=True)
        server.serve_forever()


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        main()
