"""The data file that is being written is removed under the broker: what comes after that is kept."""

import time

import pytest

from support.server import start_nsqd
from support.web import post
from support.wire import Client

COUNT = 20
SECONDS_MAX = 50.0

pytestmark = pytest.mark.slow


def data_files(folder):
    return sorted(folder.glob("t*.diskqueue.0*.dat"))


@pytest.mark.parametrize("channels", [["c"], []], ids=["channel", "topic"])
@pytest.mark.parametrize("durable", ["off", "always"])
def test_the_next_file_is_written(tmp_path, durable, channels):
    flags = ("--mem-queue-size=0", "--sync-timeout=10ms", f"--durable={durable}")
    after = {b"after %d" % number for number in range(COUNT)}
    with start_nsqd("nsqfast", tmp_path, *flags) as server, Client(server.tcp) as client:
        post(server.http, "/topic/create?topic=t")
        for channel in channels:
            post(server.http, f"/channel/create?topic=t&channel={channel}")
        for number in range(COUNT):
            client.pub("t", b"before %d" % number)
        (written,) = data_files(tmp_path)
        written.unlink()
        deadline = time.monotonic() + SECONDS_MAX
        while not data_files(tmp_path):  # it is noticed at the next sync
            assert time.monotonic() < deadline
            client.pub("t", b"between")
        for body in after:
            client.pub("t", body)
        server.wait_for_line(f"{written} was removed, going on in the next file")
        server.kill()
    with start_nsqd("nsqfast", tmp_path, *flags) as server, Client(server.tcp) as client:
        client.sub("t", "c", 1)
        while after:
            message = client.read_message()
            after.discard(message.body)
            client.fin(message)
