"""One destination URL: its requests, and how long it asked to be left alone."""

import time
from dataclasses import replace
from datetime import UTC
from email.utils import parsedate_to_datetime

from nsqfast.net.http_client import Answer, HttpClient
from nsqfast.net.http_target import parse_target
from nsqfast.tools.nsq_to_http.batch import CONTENT_TYPES
from nsqfast.tools.nsq_to_http.options import CONTENT_TYPE, Options
from nsqfast.tools.nsq_to_http.requests import ALL, FAILURES, Request, describe, follow
from nsqfast.tools.nsq_to_http.target import Head, escape_query, parse_template
from nsqfast.tools.shared.timings import Timings

OK = 200
SUCCESS_END = 300
WAIT_S_MIN = 1.0  # less would overload it further
WAIT_S_MAX = 300.0  # whatever a server says
COUNT_HEADER = "X-Nsq-Message-Count"


class FailedError(Exception):
    """A request did not succeed."""


class Destination:
    """`paused_until_s` uses time.monotonic()."""

    def __init__(self, url: str, client: HttpClient, options: Options, timings: Timings) -> None:
        self.url = url
        self.timings = timings
        self.paused_until_s = 0.0
        self._client = client
        self._headers = options.headers()
        self._is_post = bool(options.post)
        if self._is_post:
            self._target = parse_target(url)
        else:
            self._target, before, behind = parse_template(url)
            self._before, self._behind = before.encode(), behind.encode()
        self._head = Head("POST" if self._is_post else "GET", self._target, self._headers)
        own = CONTENT_TYPES[options.batch_format]
        is_chosen = self._headers.get("Content-Type") != CONTENT_TYPE
        self._batch_headers = self._headers | ({} if is_chosen else {"Content-Type": own})
        self._batch_heads: dict[int, Head] = {}

    async def send(self, body: bytes, count: int) -> None:
        """Return when the answer is a success, else raise FailedError; `count` is 0 if it is not a batch."""
        headers = self._headers
        if not self._is_post:
            data = self._head.with_path(self._path_with(body))
        elif count:
            headers = self._batch_headers | {COUNT_HEADER: str(count)}
            head = self._batch_heads.get(count)
            if head is None:
                head = self._batch_heads[count] = Head("POST", self._target, headers)
            data = head.with_body(body)
        else:
            data = self._head.with_body(body)
        deadline_s = self._client.deadline_s()
        try:
            answer = await self._client.ask(self._target.origin, data, None, deadline_s)
            if answer.status in ALL and answer.headers.get(b"location"):
                request = self._request_as_sent(body, headers)
                answer = await follow(self._client, request, answer, deadline_s)
        except FAILURES as error:
            raise FailedError(f"{self.url}: {describe(error)}") from None
        if not self._is_success(answer.status):
            self._heed(answer)
            raise FailedError(f"{self.url}: got status code {answer.status}")

    def _path_with(self, body: bytes) -> bytes:
        return self._before + escape_query(body) + self._behind

    def _request_as_sent(self, body: bytes, headers: dict[str, str]) -> Request:
        """The request that was sent, for redirects."""
        if self._is_post:
            return Request(self._target, headers, body)
        return Request(replace(self._target, path=self._path_with(body).decode()), headers, None)

    def _is_success(self, status: int) -> bool:
        return OK <= status < SUCCESS_END if self._is_post else status == OK

    def _heed(self, answer: Answer) -> None:
        """Heed Retry-After, if the answer has it."""
        value = answer.headers.get(b"retry-after")
        wait_s = parse_retry_after(value) if value else None
        if wait_s is not None:
            self.paused_until_s = max(self.paused_until_s, time.monotonic() + wait_s)


def parse_retry_after(value: bytes) -> float | None:
    """Seconds from now until the server wants to be asked again, within bounds; None if it cannot be understood."""
    text = value.decode("latin-1").strip()
    if text.isascii() and text.isdigit():
        # Ten digits already exceed the bound by far.
        return _bounded(float(text.lstrip("0")[:10] or 0))
    try:
        moment = parsedate_to_datetime(text)
    except ValueError:
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return _bounded(moment.timestamp() - time.time())


def _bounded(seconds: float) -> float:
    return min(max(seconds, WAIT_S_MIN), WAIT_S_MAX)
