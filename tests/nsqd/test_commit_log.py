"""A broker with a commit log, from outside: its first publish, and what it says of the log."""

import pytest

from support.server import start_nsqd
from support.web import post
from support.wire import Client

MODES = ("always", "interval")


def start(folder, mode, *flags):
    small = ("--commit-log-size=16777216", "--max-body-size=1048576", "--max-msg-size=262144")
    return start_nsqd("nsqfast", folder, f"--durable={mode}", *small, *flags)


@pytest.mark.parametrize("mode", MODES)
def test_the_first_publish_of_all_is_answered_at_once(tmp_path, mode):
    """Nothing else makes the loop's turn end: the client has said nothing before, and gets no heartbeats."""
    for name in ("http", "tcp"):
        (tmp_path / name).mkdir()
    with start(tmp_path / "http", mode) as server:
        assert post(server.http, "/pub?topic=t", b"x").status == 200
    with start(tmp_path / "tcp", mode) as server, Client(server.tcp, seconds_max=10) as client:
        client.pub("t", b"x")
