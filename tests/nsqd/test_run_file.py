"""A kill is noticed by the next start, with the number of messages that were only in memory."""

import os

import pytest

from support.prometheus import scrape
from support.server import start_nsqd
from support.waiting import eventually
from support.web import get, post, stats, topic_stats
from support.wire import Client

FILE = "nsqfast.running"
WARNING = "the run before this one did not stop cleanly"


def wait_for_count(folder, count):
    eventually(lambda: b'"messages":%d}' % count in (folder / FILE).read_bytes())


def test_what_was_only_in_memory_is_said_until_somebody_knows(tmp_path):
    with start_nsqd("nsqfast", tmp_path) as server:
        assert WARNING not in server.stderr
        assert "unclean_start" not in stats(server.http)
        post(server.http, "/mpub?topic=t", b"1\n2\n3\n4\n5")
        wait_for_count(tmp_path, 5)
        server.kill()
    with start_nsqd("nsqfast", tmp_path) as server:
        server.wait_for_line(f"{WARNING}: up to 5 messages were only in memory, and are lost")
        assert stats(server.http)["unclean_start"] == {"messages": 5}
        found = scrape(server.http)
        assert found.value("nsqd_unclean_starts_total") == 1
        assert found.value("nsqd_unclean_start_lost_messages") == 5
        assert get(server.http, "/unclean_start/acknowledge").status == 405
        assert post(server.http, "/unclean_start/acknowledge").status == 200
        assert "unclean_start" not in stats(server.http)
        found = scrape(server.http)
        assert found.value("nsqd_unclean_starts_total") == 1
        assert found.value("nsqd_unclean_start_lost_messages") == 0
        server.kill()
    with start_nsqd("nsqfast", tmp_path) as server:
        server.wait_for_line(f"{WARNING}: no message was only in memory")
        assert scrape(server.http).value("nsqd_unclean_starts_total") == 2
    assert not (tmp_path / FILE).exists()
    with start_nsqd("nsqfast", tmp_path) as server:
        assert scrape(server.http).value("nsqd_unclean_starts_total") == 0
        assert WARNING not in server.stderr


def test_what_is_counted(tmp_path):
    """In flight and deferred, too, but neither what has a record on disk nor what is ephemeral."""
    with (
        start_nsqd("nsqfast", tmp_path, "--mem-queue-size=4") as server,
        Client(server.tcp) as client,
    ):
        client.sub("t", "c", 3)
        post(server.http, "/channel/create?topic=t&channel=e%23ephemeral")
        client.mpub("t", [b"%d" % number for number in range(3)])
        client.read_messages(3)
        client.ask("DPUB", "t", "600000", body=b"later")
        wait_for_count(tmp_path, 4)
        client.mpub("t", [b"%d" % number for number in range(10)])  # 4 in memory, 6 on disk
        wait_for_count(tmp_path, 8)
        server.kill()


def test_durable_brokers_lose_nothing(tmp_path):
    flags = ("--mem-queue-size=0", "--sync-every=1")
    with start_nsqd("nsqfast", tmp_path, *flags) as server, Client(server.tcp) as client:
        client.sub("t", "c", 2)
        client.mpub("t", [b"1", b"2", b"3"])
        client.read_messages(2)
        client.ask("DPUB", "t", "600000", body=b"later")
        server.kill()
    with start_nsqd("nsqfast", tmp_path) as server:
        server.wait_for_line(f"{WARNING}: no message was only in memory")
        channel = topic_stats(server.http, "t")["channels"]["c"]
        assert (channel["depth"], channel["deferred_count"]) == (3, 1)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b'{"unclean_starts":-1,"messages":2}',
        b'{"unclean_starts":1}',
        b"\xff" * 500,
    ],
)
def test_a_file_that_says_nothing(tmp_path, content):
    (tmp_path / FILE).write_bytes(content)
    with start_nsqd("nsqfast", tmp_path) as server:
        server.wait_for_line(
            f"{WARNING}: how many messages were only in memory, and are lost, is not"
        )
        assert stats(server.http)["unclean_start"] == {"messages": None}
        assert scrape(server.http).value("nsqd_unclean_starts_total") == 1


def put_folder(path):
    path.mkdir()


def put_pipe(path):
    os.mkfifo(path)


def put_link(path):
    (path.parent / "elsewhere").write_bytes(b"kept")
    path.symlink_to(path.parent / "elsewhere")


@pytest.mark.parametrize("put", [put_folder, put_pipe, put_link])
def test_what_else_is_in_its_place_stops_nothing(tmp_path, put):
    put(tmp_path / FILE)
    with start_nsqd("nsqfast", tmp_path) as server:
        server.wait_for_line("is not known")
        if put is put_folder:
            server.wait_for_line("the next start will not know of a kill")
        assert get(server.http, "/ping").status == 200
    if put is put_link:
        assert (tmp_path / "elsewhere").read_bytes() == b"kept"
