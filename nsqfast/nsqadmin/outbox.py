"""Bodies for one HTTP endpoint: sent one after the other, in the background.

An endpoint that does not answer is logged and does no harm.
"""

import asyncio
import collections
import logging
from typing import Final, NamedTuple

import aiohttp

from nsqfast.errors import OptionsError
from nsqfast.net.addresses import place_of
from nsqfast.nsqadmin.checks import is_http_url

log = logging.getLogger("nsqadmin")

QUEUE_MAX: Final = 1000
TIMEOUT_S: Final = 5.0
PAUSE_S: Final = (1.0, 60.0)  # between two tries: the first, doubled until the last
ASK_AGAIN: Final = frozenset({408, 425, 429})  # https://www.rfc-editor.org/rfc/rfc9110#section-15.5


class _Failure(NamedTuple):
    text: str
    is_passing: bool  # another try may succeed


class Outbox:
    """Of one flag, whose value is `endpoint`. A body is tried again for `retry_s`; OptionsError if it is not a URL."""

    def __init__(self, flag: str, endpoint: str, retry_s: float = 0.0) -> None:
        if not is_http_url(endpoint):
            raise OptionsError(f"{flag} has to be http://... or https://...: {endpoint}")
        self._endpoint = endpoint
        self._place = place_of(endpoint)  # the path of a webhook is often its secret
        self._retry_s = retry_s
        self._bodies: collections.deque[bytes] = collections.deque()
        self._task: asyncio.Task[None] | None = None

    def add(self, body: bytes, what: str) -> None:
        """Send it without waiting; `what` names it if there are too many."""
        if len(self._bodies) >= QUEUE_MAX:
            log.error("webhook: %s was not sent: %d wait", what, QUEUE_MAX)
            return
        self._bodies.append(body)
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._send_all())

    async def send_now(self, body: bytes) -> str:
        """Before all that wait, once; why it failed, or ''."""
        async with _session() as session:
            failure = await self._post(session, body)
        return failure.text if failure else ""

    async def close(self, wait_s: float) -> None:
        """Send what waits, but not for longer than this."""
        if self._task is None:
            return
        _, pending = await asyncio.wait([self._task], timeout=wait_s)
        if pending:
            self._task.cancel()
            await asyncio.wait([self._task])
            # The one being sent is no longer in the queue.
            log.error("webhook: %d notifications were not sent", len(self._bodies) + 1)

    async def _send_all(self) -> None:
        # One session per burst: bodies are rare, and nothing is kept open between them.
        while self._bodies:  # again, because one may come while the session is closed
            async with _session() as session:
                while self._bodies:
                    await self._send(session, self._bodies.popleft())

    async def _send(self, session: aiohttp.ClientSession, body: bytes) -> None:
        loop = asyncio.get_running_loop()
        give_up_s = loop.time() + self._retry_s
        pause_s, pause_s_max = PAUSE_S
        while (failure := await self._post(session, body)) is not None:
            log.error("webhook: %s", failure.text)
            if not failure.is_passing or loop.time() + pause_s > give_up_s:
                return
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, pause_s_max)

    async def _post(self, session: aiohttp.ClientSession, body: bytes) -> _Failure | None:
        headers = {"Content-Type": "application/json"}
        try:
            async with session.post(
                self._endpoint, data=body, headers=headers, allow_redirects=False
            ) as answer:
                status = answer.status
        except TimeoutError:
            return _Failure(f"{self._place} did not answer within {TIMEOUT_S:g} s", True)
        except aiohttp.InvalidURL:  # its text is the whole URL
            return _Failure(f"{self._place}: no server can be asked at this URL", False)
        except (aiohttp.ClientError, OSError, ValueError) as error:
            return _Failure(f"{self._place}: {error}", True)
        if status < 300:
            return None
        return _Failure(f"{self._place} answered {status}", status >= 500 or status in ASK_AGAIN)


def _session() -> aiohttp.ClientSession:
    return aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=TIMEOUT_S))
