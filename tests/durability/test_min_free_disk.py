"""--min-free-disk: new messages are refused before the disk is full, and consumers go on."""

import json

import pytest
from nsqfast._ext.storage.health import Health

from nsqfast.errors import OptionsError
from nsqfast.nsqd.data_folder import FreeDisk
from nsqfast.nsqd.http_publish import not_taken
from nsqfast.nsqd.options import parse, validate
from nsqfast.wire.refusals import PUBLISH_REFUSED, NotTakenError
from support.lines import wait_for_ping
from support.programs import left
from support.prometheus import scrape
from support.server import start_nsqd
from support.small_disk import small_disk
from support.waiting import eventually
from support.web import get, post, stats
from support.wire import Client, encode_messages

MIB = 1 << 20
LIMIT = 8 * MIB
TEXT = f"less than --min-free-disk ({LIMIT} bytes) is free on the disk"

pytestmark = pytest.mark.slow


@pytest.fixture
def disk(tmp_path):
    with small_disk(tmp_path, 24 * MIB) as folder:
        yield folder


def fill(disk, size):
    """Somebody else's file."""
    with open(disk / "filler", "wb") as file:
        file.write(bytes(size))


@pytest.mark.parametrize("flags", [(), ("--mem-queue-size=0",)])
def test_messages_are_refused_in_time_and_taken_again(disk, flags):
    with start_nsqd("nsqfast", disk, f"--min-free-disk={LIMIT}", *flags) as server:
        for path in ("/topic/create?topic=t", "/channel/create?topic=t&channel=c"):
            assert post(server.http, path).status == 200
        assert post(server.http, "/pub?topic=t", b"before").status == 200
        assert get(server.http, "/ping").status == 200
        fill(disk, 20 * MIB)
        wait_for_ping(server, 500)
        assert get(server.http, "/ping").body.decode() == stats(server.http)["health"]
        assert stats(server.http)["health"] == f"NOK - {TEXT}"
        for path in ("/pub?topic=t", "/pub?topic=t&defer=5", "/mpub?topic=t", "/pub?topic=new"):
            answer = post(server.http, path, b"x")
            assert answer.status == 503, path
            assert answer.json() == {"message": "DISK_FULL", "reason": TEXT}
        for command, words, body in (
            ("PUB", ["t"], b"x"),
            ("DPUB", ["t", "1000"], b"x"),
            ("MPUB", ["t"], encode_messages([b"x", b"y"])),
        ):
            with Client(server.tcp) as client:
                client.command(command, *words, body=body)
                refused = f"E_{command}_FAILED {command} failed {TEXT}"
                assert client.read_error() == refused.encode()
        figures = scrape(server.http)
        assert figures.value("nsqd_publish_refused_total", reason="low_disk") == 7
        assert figures.value("nsqd_healthy") == 0
        with Client(server.tcp) as client:  # who consumes goes on
            client.sub("t", "c", 1)
            message = client.read_message()
            client.command("REQ", message.id, "0")
            message = client.read_message()
            assert (message.body, message.attempts) == (b"before", 2)
            client.fin(message)
            eventually(lambda: left(server, "t") == 0)
        (disk / "filler").unlink()
        wait_for_ping(server, 200)
        assert post(server.http, "/pub?topic=t", b"after").status == 200
        server.wait_for_line(f"DISK: {TEXT} (")
        server.wait_for_line("bytes are free, new messages are taken again")


def test_a_little_more_than_the_limit_is_not_enough_again():
    health = Health()
    watch = FreeDisk(health, "", 1000)
    for free_bytes, is_low in (
        (1000, False),
        (999, True),
        (1000, True),
        (1099, True),
        (1100, False),
    ):
        watch._judge(free_bytes)
        assert (health.low_disk is not None) == is_low, free_bytes


def test_a_start_on_a_low_disk_refuses_from_the_first(tmp_path):
    with start_nsqd("nsqfast", tmp_path, f"--min-free-disk={1 << 62}") as server:
        assert post(server.http, "/pub?topic=t", b"x").json()["message"] == "DISK_FULL"
        assert get(server.http, "/readyz").status == 503
        assert get(server.http, "/livez").status == 200


@pytest.mark.parametrize(
    ("reason", "kind", "told", "counted"),
    [
        ("write q.dat: no space left on device", "disk", "DISK_FULL", "disk"),
        ("write q.dat: disk quota exceeded", "disk", "DISK_FULL", "disk"),
        ("sync data: input/output error", "disk", "DISK_FAILED", "disk"),
        ("exiting", "disk", "EXITING", "exiting"),  # a queue that is closed
        ("no memory left for deferred messages", "memory", "NO_MEMORY", "memory"),
    ],
)
def test_each_reason_has_a_code_over_http(reason, kind, told, counted):
    before = PUBLISH_REFUSED[counted]
    answer = not_taken(NotTakenError(reason, kind))
    found = json.loads(answer.body)
    assert (answer.status, found["message"]) == (503, told)
    assert found.get("reason") == (None if told == "EXITING" else reason)
    assert PUBLISH_REFUSED[counted] == before + 1


def test_no_limit_is_below_zero():
    options = parse(["--min-free-disk=-1"])
    with pytest.raises(OptionsError, match="--min-free-disk must be at least 0, not -1"):
        validate(options)
