"""Ask a daemon how it is, in containers that have no curl:

    python -m nsqfast.tools.probe 127.0.0.1:4151                GET /ping: nsqd's address, nsqlookupd's or nsqadmin's
    python -m nsqfast.tools.probe --drain=300 127.0.0.1:4151    POST /drain with this deadline in seconds, then wait for
                                                                the end of nsqd

Exit status 0 if it answers 200 (and has ended), 1 with a line on stderr otherwise, 2 for other words.
"""

import socket
import sys
import time

from nsqfast.net.addresses import Inet, parse_address
from nsqfast.program.logs import escape_controls

TIMEOUT_S = 4.0
END_S = 5.0  # after the deadline, for nsqd to close its listeners
LOOK_S = 0.5  # between two looks at a broker that drains
USAGE = "Usage: python -m nsqfast.tools.probe [--drain=<seconds>] <addr>:<port>\n"
DRAIN = "--drain="


def main(argv: list[str] | None = None) -> int:
    """Return the exit status."""
    words = list(sys.argv[1:] if argv is None else argv)
    wait = words.pop(0).removeprefix(DRAIN) if words and words[0].startswith(DRAIN) else ""
    if len(words) != 1 or words[0].startswith("-") or not (wait or "0").isdecimal():
        sys.stderr.write(USAGE)
        return 2
    try:
        if wait:
            _expect_ok(words[0], f"POST /drain?deadline={wait}s")
            _await_end(words[0], int(wait) + END_S)
        else:
            _expect_ok(words[0], "GET /ping")
    except OSError as error:
        sys.stderr.write(f"{words[0]}: {escape_controls(str(error))}\n")
        return 1
    return 0


def _expect_ok(address: str, request: str) -> None:
    """OSError for any other answer than 200."""
    head, _, body = _ask(address, request).partition("\r\n\r\n")
    status = head.partition("\r\n")[0]
    if status.split()[1:2] != ["200"]:
        raise OSError(f"{request}: {status} {body}".strip())


def _ask(address: str, request: str) -> str:
    """Return the whole answer."""
    text = (
        f"{request} HTTP/1.1\r\nHost: {address}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    )
    with _connect(address) as connection:
        connection.sendall(text.encode())
        with connection.makefile("rb") as answer:
            return answer.read().decode("utf-8", "replace")


def _connect(address: str) -> socket.socket:
    where = parse_address(address)
    if isinstance(where, Inet):
        return socket.create_connection((where.host or "127.0.0.1", where.port), TIMEOUT_S)
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(TIMEOUT_S)
    try:
        connection.connect(where.path)
    except OSError:
        connection.close()
        raise
    return connection


def _await_end(address: str, wait_s: float) -> None:
    """Return when nobody listens there any more."""
    deadline_s = time.monotonic() + wait_s
    try:
        while time.monotonic() < deadline_s:
            _connect(address).close()
            time.sleep(LOOK_S)
    except (ConnectionRefusedError, FileNotFoundError):
        return
    raise TimeoutError(f"it still listens after {wait_s:g} s")


if __name__ == "__main__":
    sys.exit(main())
