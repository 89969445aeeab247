"""Parts end after what they have done, not with the time it took: a loaded machine must change no result."""

import pytest
from nsqfast._ext.dev.probes import fix_parts

ENDLESS = 1 << 40


@pytest.fixture(autouse=True)
def endless_parts():
    """Long work is done at once, unless a test says how much of it makes a part."""
    fix_parts(ENDLESS)
    yield
    fix_parts(0)
