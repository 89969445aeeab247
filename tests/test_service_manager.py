"""What systemd is told, as a real socket receives it: from the functions, and from each daemon."""

import asyncio
import os
import signal
import socket
import sys
import time

import pytest

from nsqfast.nsqd.progress import INTERVAL_S, StartProgress, StopProgress
from nsqfast.program import systemd
from nsqfast.program.systemd import Service, Watchdog, notify, notify_progress
from support.server import Server, start_nsqd, start_nsqlookupd

SECONDS_MAX = 50


class NotifySocket:
    """The service manager's end, bound to a path or, with @, to an abstract name."""

    def __init__(self, name):
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.settimeout(SECONDS_MAX)
        self._socket.bind(name.replace("@", "\0", 1))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._socket.close()

    def next(self):
        """The lines of the next message."""
        return self._socket.recv(4096).decode().split("\n")

    def waiting(self):
        """All messages that are there already."""
        found = []
        self._socket.setblocking(False)
        try:
            while True:
                found.append(self.next())
        except BlockingIOError:
            return found
        finally:
            self._socket.settimeout(SECONDS_MAX)


@pytest.fixture(params=["path", "abstract"])
def manager(request, tmp_path, monkeypatch):
    name = f"@nsqfast-test-{os.getpid()}" if request.param == "abstract" else str(tmp_path / "s")
    monkeypatch.setenv("NOTIFY_SOCKET", name)
    with NotifySocket(name) as found:
        yield found


@pytest.fixture
def by_path(tmp_path, monkeypatch):
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "s"))
    with NotifySocket(str(tmp_path / "s")) as found:
        yield found


def test_a_message_is_one_datagram(manager):
    notify("READY=1", "STATUS=listening on /a\nb")
    assert manager.waiting() == [["READY=1", "STATUS=listening on /a b"]]


def test_without_a_manager_nothing_is_sent(by_path, monkeypatch):
    monkeypatch.delenv("NOTIFY_SOCKET")
    notify("READY=1")
    assert by_path.waiting() == []


def test_a_manager_that_is_gone_is_a_line_in_the_log(tmp_path, monkeypatch, caplog):
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "gone"))
    notify("READY=1")
    assert [record.getMessage() for record in caplog.records] == [
        f"NOTIFY_SOCKET {tmp_path}/gone: [Errno 2] No such file or directory"
    ]


def test_a_manager_that_does_not_read_keeps_nobody_waiting_for_long(by_path, monkeypatch, caplog):
    monkeypatch.setattr(systemd, "SEND_TIMEOUT_S", 0.01)
    for _ in range(10_000):
        notify("WATCHDOG=1")
        if caplog.records:
            break
    assert caplog.records[0].getMessage().endswith("timed out")
    assert by_path.next() == ["WATCHDOG=1"]


def test_a_reload_is_told_only_between_ready_and_stopping(by_path):
    service = Service()
    with service.reloading():
        pass
    assert by_path.waiting() == []
    service.ready("listening")
    before_us = time.monotonic_ns() // 1000
    with pytest.raises(ZeroDivisionError), service.reloading():
        1 / 0  # noqa: B018 - a reload that fails
    service.stopping()
    with service.reloading():
        pass
    first, reloading, *rest = by_path.waiting()
    assert first == ["READY=1", "STATUS=listening"]
    assert reloading[0] == "RELOADING=1"
    name, _, moment_us = reloading[1].partition("=")
    assert name == "MONOTONIC_USEC"
    assert before_us <= int(moment_us) <= time.monotonic_ns() // 1000
    assert rest == [["READY=1"], ["STOPPING=1", "STATUS=stopping"]]


def test_progress_asks_for_more_time(by_path):
    notify_progress("stopping, 1 of 2 queues")
    wanted = ["STATUS=stopping, 1 of 2 queues", "EXTEND_TIMEOUT_USEC=60000000", "WATCHDOG=1"]
    assert by_path.waiting() == [wanted]


@pytest.mark.parametrize(
    ("progress", "numbers", "status"),
    [
        (StartProgress, (10, 4), "starting, 4 of 10 queues are open"),
        (StopProgress, (10, 4, 2), "stopping, 4 of 10 queues are synced, 2 are closed"),
    ],
)
def test_each_progress_line_of_the_log_is_a_message(by_path, progress, numbers, status):
    moments = iter((0.0, INTERVAL_S - 1, INTERVAL_S, INTERVAL_S + 1))
    tell = progress(lambda: next(moments))
    for _ in range(3):
        tell(*numbers)
    assert [lines[0] for lines in by_path.waiting()] == [f"STATUS={status}"]


def run_watchdog(pings, manager):
    """Messages, until there are so many of them."""

    async def live():
        loop = asyncio.get_running_loop()
        watchdog = Watchdog(loop)
        watchdog.start()
        found = [await loop.run_in_executor(None, manager.next) for _ in range(pings)]
        watchdog.stop()
        return found

    return asyncio.run(live())


def test_the_watchdog_says_from_the_loop_that_it_turns(by_path, monkeypatch):
    monkeypatch.setenv("WATCHDOG_USEC", "100000")
    monkeypatch.setenv("WATCHDOG_PID", str(os.getpid()))
    begun_s = time.monotonic()
    assert run_watchdog(3, by_path) == [["WATCHDOG=1"]] * 3
    assert time.monotonic() - begun_s >= 0.1  # two pauses of half the time


@pytest.mark.parametrize(
    "environment",
    [{}, {"WATCHDOG_USEC": "x"}, {"WATCHDOG_USEC": "100000", "WATCHDOG_PID": "1"}],
    ids=["none", "no number", "of another process"],
)
def test_no_watchdog_no_messages(by_path, monkeypatch, environment):
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert run_watchdog(0, by_path) == []
    assert by_path.waiting() == []


def start_nsqadmin(_folder):
    command = [sys.executable, "-m", "nsqfast.nsqadmin.main", "--http-address=127.0.0.1:0"]
    return Server([*command, "--nsqd-http-address=127.0.0.1:1"], listeners=("HTTP",))


DAEMONS = {
    "nsqd": lambda folder: start_nsqd("nsqfast", folder),
    "nsqlookupd": lambda _folder: start_nsqlookupd("nsqfast"),
    "nsqadmin": start_nsqadmin,
}


@pytest.mark.slow
@pytest.mark.parametrize("name", DAEMONS)
def test_a_daemon_tells_how_it_is(name, by_path, tmp_path, monkeypatch):
    monkeypatch.setenv("WATCHDOG_USEC", "60000000")
    folder = tmp_path / "data"
    folder.mkdir()
    with DAEMONS[name](folder) as server:
        where = ", ".join(f"{key} {host}:{port}" for key, (host, port) in server.addresses.items())
        assert by_path.next() == ["READY=1", f"STATUS=listening on {where}"]
        assert by_path.next() == ["WATCHDOG=1"]
        server.process.send_signal(signal.SIGHUP)
        assert by_path.next()[0] == "RELOADING=1"
        assert by_path.next() == ["READY=1"]
    assert by_path.next() == ["STOPPING=1", "STATUS=stopping"]
    assert by_path.waiting() == []


@pytest.mark.slow
def test_a_start_that_fails_never_was_ready(by_path, tmp_path):
    with (
        start_nsqd("nsqfast", tmp_path),
        pytest.raises(AssertionError, match="did not start"),
    ):
        start_nsqd("nsqfast", tmp_path)
    assert [lines[0] for lines in by_path.waiting()] == ["READY=1", "STOPPING=1"]
