"""A broker that says what a test wants it to say, in the event loop of the test."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Self

from support.wire import ERROR, MESSAGE, RESPONSE, encode_frame

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

FINISH_SECONDS_MAX = 10.0  # how long a script may take to notice that its client is gone
WITH_BODY = {"IDENTIFY", "AUTH", "PUB", "MPUB", "DPUB", "DEATHS"}
ANSWER = {
    "max_rdy_count": 2500,
    "msg_timeout": 60000,
    "max_msg_timeout": 900000,
    "tls_v1": False,
    "deflate": False,
    "snappy": False,
    "auth_required": False,
}


class Peer:
    """One connection, from the broker's side."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def command(self) -> tuple[str, list[str], bytes]:
        """The next one: name, parameters, body."""
        return await self._read_rest(await self.reader.readuntil(b"\n"))

    async def _read_rest(self, line: bytes) -> tuple[str, list[str], bytes]:
        name, *parameters = line[:-1].decode(errors="backslashreplace").split(" ")
        body = b""
        if name in WITH_BODY:
            size = int.from_bytes(await self.reader.readexactly(4), "big")
            body = await self.reader.readexactly(size)
        return name, parameters, body

    async def command_if_any(self) -> tuple[str, list[str], bytes] | None:
        """The next one, or None if the client hangs up instead."""
        try:
            line = await self.reader.readuntil(b"\n")
        except ConnectionError:
            return None
        except asyncio.IncompleteReadError as error:
            assert error.partial == b"", f"hung up within a command: {error.partial!r}"
            return None
        return await self._read_rest(line)

    async def commands(self) -> AsyncIterator[tuple[str, list[str], bytes]]:
        """All that come until the client hangs up."""
        while (command := await self.command_if_any()) is not None:
            yield command

    async def expect(self, name: str) -> tuple[list[str], bytes]:
        found, parameters, body = await self.command()
        assert found == name, (found, parameters, body)
        return parameters, body

    async def greet(self, **changed: object) -> dict[str, object]:
        """Magic and IDENTIFY; returns what the client said of itself."""
        assert await self.reader.readexactly(4) == b"  V2"
        _, body = await self.expect("IDENTIFY")
        self.respond(json.dumps({**ANSWER, **changed}).encode())
        return json.loads(body)

    async def subscribe(self, **changed: object) -> None:
        """Everything up to the first RDY, which is left to the test."""
        await self.greet(**changed)
        await self.expect("SUB")
        self.respond(b"OK")

    def respond(self, data: bytes) -> None:
        self.writer.write(encode_frame(RESPONSE, data))

    def refuse(self, text: str) -> None:
        self.writer.write(encode_frame(ERROR, text.encode()))

    def deliver(
        self,
        number: int,
        body: bytes = b"body",
        attempts: int = 1,
        identity: bytes | None = None,
    ) -> None:
        head = (1_700_000_000_000_000_000 + number).to_bytes(8, "big") + attempts.to_bytes(2, "big")
        self.writer.write(encode_frame(MESSAGE, head + (identity or b"%016x" % number) + body))

    async def part(self) -> list[tuple[str, list[str]]]:
        """What a consumer says until it leaves, which is answered; its CLS not included."""
        said = []
        while (command := await self.command())[0] != "CLS":
            said.append(command[:2])
        self.respond(b"CLOSE_WAIT")
        await self.read_to_end()
        return said

    async def read_to_end(self) -> bytes:
        try:
            return await self.reader.read()
        except ConnectionError:
            return b""


class FakeNsqd:
    """Runs `script` for each connection, and fails the test unless each of them comes to its end.

    A script ends with what the client does last, which is often that it hangs up (`read_to_end`, `part`, `commands`).
    An assertion that fails there fails the test, and so does a client that never connects. Without a script nobody may.
    """

    def __init__(self, script: Callable[[Peer], Awaitable[None]] | None) -> None:
        self._script = script
        self._tasks: set[asyncio.Task[None]] = set()
        self.errors: list[BaseException] = []
        self.connections = 0

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        host, port = self._server.sockets[0].getsockname()[:2]
        self.address = f"{host}:{port}"
        return self

    def stop_listening(self) -> None:
        """From now on nobody can connect; who is connected stays so."""
        self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._tasks.add(asyncio.current_task())
        self.connections += 1
        script = f"the script of connection {self.connections} was not finished"
        try:
            assert self._script is not None, "somebody connected"
            await self._script(Peer(reader, writer))
        except (asyncio.IncompleteReadError, ConnectionError) as error:
            self._note(error, f"{script}: the client hung up")
        except asyncio.CancelledError as error:
            self._note(error, f"{script}: what it waits for does not come")
        except BaseException as error:
            self.errors.append(error)
        finally:
            self._tasks.discard(asyncio.current_task())
            writer.close()

    def _note(self, cause: BaseException, text: str) -> None:
        error = AssertionError(text)
        error.__cause__ = cause  # whose traceback names the line of the script
        self.errors.append(error)

    async def __aexit__(self, kind: object, *_: object) -> None:
        self._server.close()
        if kind is None and self._tasks and not self.errors:
            await asyncio.wait(self._tasks, timeout=FINISH_SECONDS_MAX)
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if kind is None:
            if self.errors:
                raise self.errors[0]
            assert self.connections or self._script is None, "nobody connected"
