"""A file system that is shut down beneath the broker, and one that becomes read-only."""

import signal

import pytest

from durability.blocks import loop
from support.lines import complaints, wait_for_ping
from support.server import start_nsqd
from support.web import request, stats
from support.wire import ERROR, Client

FLAGS = ("--mem-queue-size=0", "--sync-every=1", "--commit-log-size=33554432")
BEFORE = 50
REFUSED = 20

pytestmark = [pytest.mark.slow, pytest.mark.soak]


def body(number):
    return b"%04d" % number


def refuse(server):
    """Publishers learn of it, every time, by TCP and by HTTP."""
    for number in range(REFUSED):
        with Client(server.tcp) as client:
            client.command("PUB", "t", body=b"refused")
            frame = client.read_frame()
            assert frame.kind == ERROR
            assert frame.data.startswith(b"E_PUB_FAILED ")
        answer = request(server.http, "POST", "/pub?topic=t", b"refused")
        assert answer.status == 503, number


def disk_lines(server):
    return [line for line in complaints(server) if " DISK: " in line]


def stop_with_one_line(server, status):
    before = len(complaints(server))
    server.process.send_signal(signal.SIGTERM)
    assert server.process.wait(30) == status, server.stderr
    server.kill()
    return complaints(server)[before:]


def drain(server, count):
    with Client(server.tcp) as client:
        client.sub("t", "c", 100)
        missing = {body(number) for number in range(count)}
        while missing:
            message = client.read_message()
            missing.discard(message.body)
            client.fin(message)
        client.ask("CLS")


@pytest.mark.parametrize("name", ["ext4", "xfs"])
def test_shut_down(name):
    with loop.mounted(name) as folder:
        with start_nsqd("nsqfast", folder, *FLAGS) as server:
            with Client(server.tcp) as client:
                for number in range(BEFORE):
                    client.pub("t", body(number))
            loop.shut_down(folder)
            refuse(server)
            reason = wait_for_ping(server, 500)
            assert reason.startswith("NOK - ")
            assert stats(server.http)["health"] == reason
            server.wait_for_line(" DISK: ")  # a thread of this process reads the log
            assert 1 <= len(disk_lines(server)) <= 2, server.stderr
            lines = stop_with_one_line(server, 1)
            assert len([line for line in lines if " ERROR: stopped, but " in line]) == 1, lines
            assert lines[-1].partition(" ERROR: ")[2].startswith("stopped, but "), lines
        loop.mount_again(folder, name)
        with start_nsqd("nsqfast", folder, *FLAGS) as server:
            drain(server, BEFORE)
            wait_for_ping(server, 200)


@pytest.mark.parametrize("name", ["ext4", "xfs", "btrfs"])
def test_read_only_for_a_while(name):
    """Nothing of the broker's is open for writing, so the kernel allows it; a commit log would be."""
    with loop.mounted(name) as folder, start_nsqd("nsqfast", folder, FLAGS[0]) as server:
        loop.remount(folder, "ro")
        refuse(server)
        assert wait_for_ping(server, 500).endswith("read-only file system")
        server.wait_for_line(" DISK: ")
        (line,) = disk_lines(server)
        assert " ERROR: DISK: " in line
        assert line.endswith("read-only file system")
        loop.remount(folder, "rw")
        with Client(server.tcp) as client:
            for number in range(BEFORE):
                client.pub("t", body(number))
        server.wait_for_line("DISK: writing works again after ")
        wait_for_ping(server, 200)
        drain(server, BEFORE)


@pytest.mark.parametrize("name", ["ext4", "xfs"])
def test_a_stop_on_a_read_only_disk(name):
    """One line tells of the messages that were in memory only."""
    with loop.mounted(name) as folder, start_nsqd("nsqfast", folder) as server:
        with Client(server.tcp) as client:
            for number in range(BEFORE):
                client.pub("t", body(number))
        loop.remount(folder, "ro")
        lines = stop_with_one_line(server, 1)
        assert f"stopped, but messages lost: {BEFORE} of t - " in lines[-1]
        assert lines[-1].lower().endswith("read-only file system")
        assert len([line for line in lines if "lost" in line]) == 1
