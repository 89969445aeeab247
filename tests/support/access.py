"""nsqadmin as its access tests start it: as a program, or in a thread with handlers of the test's own."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from http.cookies import SimpleCookie
from typing import TYPE_CHECKING, Any, Self
from unittest import mock
from urllib.parse import urlencode

import argon2

from nsqfast.errors import OptionsError
from nsqfast.nsqadmin import app as server_module
from nsqfast.nsqadmin.options import Options, parse
from support.admin import ANY_DISK
from support.server import Server, program
from support.web import Answer, request

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from aiohttp import web

    from nsqfast.nsqadmin.context import Context

NOWHERE = "127.0.0.1:1"  # an nsqd that does not answer
FORM = {"Content-Type": "application/x-www-form-urlencoded"}
WAIT_S = 20.0
CHEAP = argon2.PasswordHasher(time_cost=1, memory_cost=8, parallelism=1)


def with_nsqd(flags: Sequence[str]) -> list[str]:
    """On a free port, for a cluster that is not there, unless a flag says otherwise."""
    if not any("-http-address=" in flag and "--http" not in flag for flag in flags):
        flags = (f"--nsqd-http-address={NOWHERE}", *flags)
    return ["--http-address=127.0.0.1:0", ANY_DISK, *flags]


def start_admin(*flags: str) -> Server:
    """The program, where its log or its signals matter."""
    return Server([*program("nsqadmin", "nsqfast"), *with_nsqd(flags)], ("HTTP",))


def refusal(options: Options) -> str:
    """Why there is no start with these."""

    async def start() -> None:
        server = server_module.Server(options)
        await server.start()
        await server.stop()

    try:
        asyncio.run(start())
    except OptionsError as error:
        return str(error)
    return ""


def write_users(path: Path, *lines: tuple[str, str, str]) -> str:
    """Each is name, role and password; the hashes cost nothing."""
    path.write_text("".join(f"{n}:{r}:{CHEAP.hash(p)}\n" for n, r, p in lines), encoding="utf-8")
    path.chmod(0o600)
    return str(path)


@contextlib.contextmanager
def probed(
    add_routes: Callable[[web.Application, Context], None],
    **options: Any,
) -> Iterator[tuple[str, int]]:
    """A whole nsqadmin with more routes, in a thread; gives its address."""
    real = server_module.make_app

    def make(app: web.Application, context: Context) -> None:
        real(app, context)
        add_routes(app, context)

    given = {"http_address": "127.0.0.1:0", "nsqd_http_addresses": [NOWHERE], **options}
    with contextlib.ExitStack() as stack:
        with mock.patch.object(server_module, "make_app", make):
            running = stack.enter_context(Running(Options(**given)))
        yield running.http


class Running:
    """A whole nsqadmin in a thread while it is entered; `http` is its address."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._is_up = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._live, daemon=True)
        self.http = ("", 0)

    def _live(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as error:
            self._error = error
        finally:
            self._is_up.set()

    async def _serve(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        server = server_module.Server(self._options)
        await server.start()
        port = server.status().rpartition(":")[2]
        self.http = ("127.0.0.1", int(port))
        self._is_up.set()
        await self._stop.wait()
        await server.stop()

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._is_up.wait(WAIT_S)
        if self._error is not None:
            raise self._error
        return self

    def __exit__(self, *_: object) -> None:
        assert self._loop is not None
        assert self._stop is not None
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(WAIT_S)
        assert not self._thread.is_alive()
        if self._error is not None:
            raise self._error


def run_admin(*flags: str) -> Running:
    """As start_admin, but in this process, which takes no time."""
    return Running(parse(with_nsqd(flags)))


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
