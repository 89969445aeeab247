"""Questions to nsqd and nsqlookupd over HTTP."""

import asyncio

import pytest

from nsqfast.client.discovery import ANSWER_SIZE_MAX
from nsqfast.errors import ConnectError
from nsqfast.tools.shared.discovery import AnswerError, HttpClient
from support.fake_stats import FakeStats

SECONDS_MAX = 50


def ask(address):
    async def main():
        async with asyncio.timeout(SECONDS_MAX), HttpClient(1, 10) as client:
            return await client.get(f"http://{address}", "/stats")

    return asyncio.run(main())


def test_an_answer_that_comes_in_many_pieces():
    found = {"text": "x" * 5_000_000}
    with FakeStats(lambda *_: found) as node:
        assert ask(node.address) == found


def test_an_answer_that_is_too_large():
    with (
        FakeStats(lambda *_: {"text": "x" * ANSWER_SIZE_MAX}) as node,
        pytest.raises(
            ConnectError, match=f"^http://{node.address}/stats: .* more than 16777216 bytes"
        ),
    ):
        ask(node.address)


def test_nobody_there():
    with FakeStats(lambda *_: None) as node:
        address = node.address
    with pytest.raises(
        ConnectError, match=f"^http://{address}/stats: connect: connection refused$"
    ):
        ask(address)


def test_another_status():
    with FakeStats(lambda *_: None) as node, pytest.raises(AnswerError) as error:
        ask(node.address)
    assert (error.value.status, error.value.body) == (500, b"null")
