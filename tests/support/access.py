"""nsqadmin as its access tests start it: as a program, or in a thread with handlers of the test's own."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import threading
import time
from http.cookies import SimpleCookie
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

import argon2

from nsqfast.nsqadmin import server as server_module
from nsqfast.nsqadmin.options import Options
from support.server import Server, program
from support.web import Answer, request

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    import pytest
    from aiohttp import web

    from nsqfast.nsqadmin.context import Context

NOWHERE = "127.0.0.1:1"  # an nsqd that does not answer
FORM = {"Content-Type": "application/x-www-form-urlencoded"}
WAIT_S = 20.0
CHEAP = argon2.PasswordHasher(time_cost=1, memory_cost=8, parallelism=1)


def start_admin(*flags: str, implementation: str = "ours") -> Server:
    """The program, for a cluster that is not there unless a flag says so."""
    if not any("-http-address=" in flag and "--http" not in flag for flag in flags):
        flags = (f"--nsqd-http-address={NOWHERE}", *flags)
    command = [*program("nsqadmin", implementation), "--http-address=127.0.0.1:0", *flags]
    return Server(command, ("HTTP",))


def write_users(path: Path, *lines: tuple[str, str, str]) -> str:
    """Each is name, role and password; the hashes cost nothing."""
    path.write_text("".join(f"{n}:{r}:{CHEAP.hash(p)}\n" for n, r, p in lines), encoding="utf-8")
    path.chmod(0o600)
    return str(path)


@contextlib.contextmanager
def probed(
    monkeypatch: pytest.MonkeyPatch,
    add_routes: Callable[[web.Application, Context], None],
    **options: Any,
) -> Iterator[tuple[str, int]]:
    """A whole nsqadmin with more routes, in a thread; gives its address."""
    real = server_module.make_app

    def make(app: web.Application, context: Context) -> None:
        real(app, context)
        add_routes(app, context)

    monkeypatch.setattr(server_module, "make_app", make)
    given = {"http_address": "127.0.0.1:0", "nsqd_http_addresses": [NOWHERE], **options}
    running = _Running(Options(**given))
    with running:
        yield running.address


class _Running:
    def __init__(self, options: Options) -> None:
        self._options = options
        self._is_up = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._live, daemon=True)
        self.address = ("", 0)

    def _live(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as error:
            self._error = error
        finally:
            self._is_up.set()

    async def _serve(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        found: list[str] = []
        handler = logging.Handler()
        handler.emit = lambda record: found.append(record.getMessage())  # type: ignore[method-assign]
        log = logging.getLogger("nsqadmin")
        log.addHandler(handler)
        level = log.level
        log.setLevel(logging.INFO)
        server = server_module.Server(self._options)
        try:
            await server.start()
        finally:
            log.removeHandler(handler)
            log.setLevel(level)
        for line in found:
            if match := re.fullmatch(r"HTTP: listening on (\S+):(\d+)", line):
                self.address = (match[1], int(match[2]))
        self._is_up.set()
        await self._stop.wait()
        await server.stop()

    def __enter__(self) -> None:
        self._thread.start()
        assert self._is_up.wait(WAIT_S)
        if self._error is not None:
            raise self._error

    def __exit__(self, *_: object) -> None:
        assert self._loop is not None
        assert self._stop is not None
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(WAIT_S)
        assert not self._thread.is_alive()
        if self._error is not None:
            raise self._error


def log_in(
    address: tuple[str, int],
    name: str,
    password: str,
    *,
    then: str = "",
    headers: dict[str, str] | None = None,
) -> Answer:
    """POST /login as its form does."""
    body = urlencode({"name": name, "password": password, "next": then}).encode()
    return request(address, "POST", "/login", body, {**FORM, **(headers or {})})


def cookie_of(answer: Answer) -> SimpleCookie:
    """What the answer sets."""
    return SimpleCookie(answer.headers["Set-Cookie"])


def cookie_header(answer: Answer) -> dict[str, str]:
    """What a browser sends back."""
    return {"Cookie": "; ".join(f"{n}={m.value}" for n, m in cookie_of(answer).items())}


def wait_until(
    reached: Callable[[], object],
    seconds_max: float = WAIT_S,
    show: Callable[[], object] = lambda: "",
) -> None:
    """For what another process does."""
    ends_at = time.monotonic() + seconds_max
    while not reached():
        assert time.monotonic() < ends_at, f"it did not happen in time {show()}"
        time.sleep(0.01)
