"""Event loops that are strict about what a test leaves behind."""

import pytest
import uvloop

from support.loops import strict


@pytest.fixture
def run():
    with strict(uvloop.new_event_loop) as function:
        yield function
