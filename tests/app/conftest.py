"""One broker for each module, ours: an app knows nothing of a broker that a client does not."""

import pytest

from support.server import start_nsqd


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    with start_nsqd("nsqfast", tmp_path_factory.mktemp("nsqd")) as server:
        yield server
