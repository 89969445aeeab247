"""Event loops that are strict about what a test leaves behind."""

import asyncio

import pytest
import uvloop

from support.loops import strict


@pytest.fixture
def run():
    with strict(uvloop.new_event_loop) as function:
        yield function


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def loop_factory(request):
    """For a test on asyncio's own loop, and on uvloop."""
    return request.param
