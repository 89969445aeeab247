"""The broker as a process: its first and last lines, exit statuses, the folder's lock, signals, what a stop keeps."""

import asyncio
import json
import os
import re
import signal
import socket
import stat
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import uvloop

from nsqfast.nsqd.timers import MS, DeadlineTimer
from support.server import ROOT, Server, start_nsqd
from support.waiting import eventually
from support.web import get, post
from support.wire import Client

PROGRAM = [sys.executable, "-m", "nsqfast.nsqd.main"]
STAMP = r"\d{4}/\d\d/\d\d \d\d:\d\d:\d\d\.\d{6}"


def run_to_end(*argv):
    """A start that is expected to end by itself."""
    return subprocess.run(
        [*PROGRAM, *argv], capture_output=True, text=True, timeout=20, cwd=ROOT, check=False
    )


def start(folder, *flags):
    return start_nsqd("nsqfast", folder, *flags)


def fatal_text(done):
    """The text of the one FATAL line, whose prefix is always nsqd's own."""
    assert done.returncode == 1, done.stderr
    found = re.findall(rf"^\[nsqd\] {STAMP} FATAL: (.*)$", done.stderr, re.MULTILINE)
    assert len(found) == 1, done.stderr
    assert "Traceback" not in done.stderr
    return found[0]


# ---- command line


def test_version_and_help():
    done = run_to_end("--version")
    assert (done.returncode, done.stderr) == (0, "")
    assert re.fullmatch(r"nsqd v1\.3\.0 \(built w/python3\.\d+\.\d+\)\nnsqfast .+\n", done.stdout)
    done = run_to_end("-h")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("Usage: nsqfast-nsqd [flags]\n")


def test_wrong_flag():
    done = run_to_end("--nope")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "flag provided but not defined: -nope\nsee nsqfast-nsqd --help\n"


def test_wrong_config(tmp_path):
    path = tmp_path / "nsqd.toml"
    path.write_text("id = 7.5")
    done = run_to_end(f"--config={path}", "--node-id=1")
    begin = f"failed to load config file {path} - "
    assert fatal_text(done).startswith(f"{begin}id is 7.5 (at line 1, column 1), but takes a whole")
    path.write_text('log_level = "loud"')
    text = fatal_text(run_to_end(f"--config={path}"))
    assert text.startswith(
        f'{begin}log_level is "loud" (at line 1, column 1), but takes one of "de'
    )


# ---- refused starts


def test_missing_folder():
    done = run_to_end("--data-path=/nope/x", "--log-prefix=mine ")
    assert fatal_text(done) == (
        "failed to instantiate nsqd - failed to lock data-path: open /nope/x: no such file or directory: "
        "mkdir -p /nope/x, or give --data-path another folder"
    )


def test_a_file_instead_of_a_folder(tmp_path):
    path = tmp_path / "a file"
    path.touch()
    assert fatal_text(run_to_end(f"--data-path={path}")) == (
        f"failed to instantiate nsqd - failed to lock data-path: open {path}: not a directory: "
        "give --data-path a folder"
    )


def test_a_folder_of_another_user():
    """In a process of its own, since root may read and write everything."""
    body = """
import os, sys
from nsqfast.errors import OptionsError
from nsqfast.nsqd.data_folder import DirectoryLock
from nsqfast.nsqd.metadata import refuse_folder
os.geteuid() or os.setuid(65534)
for use in DirectoryLock, refuse_folder:
    try:
        use(sys.argv[1])
    except OptionsError as error:
        print(error)
print(os.geteuid())
"""
    with TemporaryDirectory() as folder:
        for mode, said in (
            (0o000, f"failed to lock data-path: open {folder}: permission denied"),
            (0o555, f"{folder} cannot be written to - permission denied"),
        ):
            Path(folder).chmod(mode)
            command = [sys.executable, "-c", body, folder]
            done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
            *lines, user = done.stdout.splitlines()
            advice = f"chown {user} {folder}, as nsqd runs as this user, or give --data-path another folder"
            assert f"{said}: {advice}" in lines


def test_refused_setting(tmp_path):
    here = f"--data-path={tmp_path}"
    done = run_to_end(here, "--max-deflate-level=0")
    assert fatal_text(done) == "failed to instantiate nsqd - --max-deflate-level must be [1,9]"
    done = run_to_end(here, "--tls-required")
    text = "cannot require TLS client connections without TLS key and cert"
    assert fatal_text(done) == f"failed to instantiate nsqd - {text}"


def test_taken_port_and_json_fatal_line(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        done = run_to_end(
            f"--data-path={tmp_path}", f"--tcp-address={address}", "--log-format=json"
        )
    lines = [json.loads(line) for line in done.stderr.splitlines()]
    assert done.returncode == 1
    assert lines[-1]["level"] == "FATAL"
    assert lines[-1]["text"] == (
        f"failed to instantiate nsqd - listen ({address}) failed - "
        f"listen tcp {address}: bind: address already in use"
    )


def test_second_broker_on_the_same_folder(tmp_path):
    with start(tmp_path):
        done = run_to_end(f"--data-path={tmp_path}", "--tcp-address=127.0.0.1:0")
        assert fatal_text(done) == (
            "failed to instantiate nsqd - failed to lock data-path: "
            f"cannot flock directory {tmp_path} - resource temporarily unavailable "
            "(possibly in use by another instance of nsqd)"
        )


# ---- a life


def test_killed_and_started_again_on_the_same_ports(tmp_path):
    with start(tmp_path) as server:
        client = Client(server.tcp)
        client.pub("t", b"x")
        server.kill()
        ports = [
            f"--tcp-address=127.0.0.1:{server.tcp[1]}",
            f"--http-address=127.0.0.1:{server.http[1]}",
        ]
        (tmp_path / "nsqd.dat.123.tmp").write_text("{")
        with start(tmp_path, *ports) as again:
            assert (again.tcp, again.http) == (server.tcp, server.http)
            assert get(again.http, "/ping").body == b"OK"
        client.close()
        server.forget_lines()


def test_a_stop_keeps_messages_names_and_pauses(tmp_path):
    with start(tmp_path) as server, Client(server.tcp) as client:
        for target in ("/topic/create?topic=t", "/channel/create?topic=t&channel=c"):
            assert post(server.http, target).status == 200
        assert post(server.http, "/channel/pause?topic=t&channel=c").status == 200
        # A pause is on disk before its answer, whatever comes next.
        assert b'{"name":"c","paused":true}' in (tmp_path / "nsqd.dat").read_bytes()
        assert post(server.http, "/topic/create?topic=gone%23ephemeral").status == 200
        client.mpub("t", [b"1", b"2", b"3"])
        with Client(server.tcp) as silent, Client(server.tcp, magic=b"  ") as half:
            silent.barrier()
            server.stop()
            assert silent.read_to_end() == b""
            assert half.read_to_end() == b""
    with start(tmp_path) as server:
        topics = json.loads((tmp_path / "nsqd.dat").read_bytes())["topics"]
        assert topics == [
            {"name": "t", "paused": False, "channels": [{"name": "c", "paused": True}]}
        ]
        assert post(server.http, "/channel/unpause?topic=t&channel=c").status == 200
        with Client(server.tcp) as client:
            client.sub("t", "c", 10)
            assert [message.body for message in client.read_messages(3)] == [b"1", b"2", b"3"]


def test_a_new_name_is_on_disk_soon(tmp_path):
    with start(tmp_path) as server, Client(server.tcp) as client:
        client.pub("fresh", b"x")
        eventually(lambda: b'"fresh"' in (tmp_path / "nsqd.dat").read_bytes(), 5)
        server.kill()
        server.forget_lines()


def test_signals(tmp_path):
    with start(tmp_path) as server:
        server.process.send_signal(signal.SIGUSR1)
        server.process.send_signal(signal.SIGHUP)
        server.wait_for_line("SIGHUP: nothing to reload")
        with Client(server.tcp) as client:
            client.pub("t", b"x")
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGINT):
            server.process.send_signal(number)
        server.stop()
        assert server.lines[-1].endswith("INFO: NSQ: bye")


def test_no_http(tmp_path):
    flags = [f"--data-path={tmp_path}", "--tcp-address=127.0.0.1:0", "--http-address="]
    with Server([*PROGRAM, *flags], listeners=["TCP"]) as server:
        with Client(server.tcp) as client:
            client.pub("t", b"x")
        server.stop()
        assert "HTTP" not in server.addresses


def test_unix_sockets(tmp_path):
    folder = tmp_path / "data"
    folder.mkdir()
    tcp, http = str(tmp_path / "tcp.sock"), str(tmp_path / "http.sock")
    argv = [*PROGRAM, f"--data-path={folder}", f"--tcp-address={tcp}", f"--http-address={http}"]
    before = os.umask(0o022)
    try:
        server = Server(argv, listeners=[])
    finally:
        os.umask(before)
    with server:
        server.wait_for_line(f"HTTP: listening on {http}")
        assert stat.S_IMODE(Path(tcp).stat().st_mode) == 0o755
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(5)
            client.connect(tcp)
            client.sendall(b"  V2PUB t\n\0\0\0\1x")
            assert client.recv(100) == b"\0\0\0\6\0\0\0\0OK"
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(5)
            client.connect(http)
            client.sendall(b"GET /info HTTP/1.0\r\n\r\n")
            assert client.recv(100).startswith(b"HTTP/1.")
        server.stop()
    assert not Path(tcp).exists()
    assert not Path(http).exists()


# ---- the timer


def run_on_uvloop(scenario):
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(scenario())


def test_timer_fires_close_to_the_earliest_deadline_and_rests():
    start_ns = time.monotonic_ns()
    deadlines_ns = [start_ns + after_ms * MS for after_ms in (20, 40, 60)]
    calls = []

    async def scenario():
        finished = asyncio.Event()
        pending = sorted(deadlines_ns)

        def run(now_ns):
            calls.append(now_ns)
            while pending and pending[0] <= now_ns:
                pending.pop(0)
            if not pending:
                finished.set()
            return pending[0] if pending else 0

        timer = DeadlineTimer(asyncio.get_running_loop(), run)
        for deadline_ns in reversed(deadlines_ns):
            timer.announce(deadline_ns)
        await asyncio.wait_for(finished.wait(), 10)
        timer.close()
        timer.announce(time.monotonic_ns())

    run_on_uvloop(scenario)
    # Once per deadline, perhaps once more where the loop's clock ran ahead; never a spin. Never early.
    assert 1 <= len(calls) <= 6
    assert calls[-1] >= deadlines_ns[-1]
    assert calls[0] >= deadlines_ns[0] - 5 * MS


def test_timer_with_work_that_stays_due_leaves_the_loop_alive():
    """Others have their turns between two calls, which are a millisecond apart."""
    calls, turns = [], []

    async def scenario():
        def run(now_ns):
            calls.append(now_ns)
            return now_ns - 1

        timer = DeadlineTimer(asyncio.get_running_loop(), run)
        timer.announce(1)
        while len(calls) < 20:
            turns.append(len(calls))
            await asyncio.sleep(0)
        timer.close()

    run_on_uvloop(scenario)
    assert set(turns) >= set(range(1, 20))
    assert calls[-1] - calls[0] >= 19 * MS * 0.9


def test_timer_survives_an_error():
    calls = []
    reported = []

    async def scenario():
        loop = asyncio.get_running_loop()
        told = asyncio.Event()

        def report(_loop, context):
            reported.append(context["exception"])
            told.set()

        loop.set_exception_handler(report)

        def run(now_ns):
            calls.append(now_ns)
            raise RuntimeError("broken")

        timer = DeadlineTimer(loop, run)
        timer.announce(time.monotonic_ns())
        await asyncio.wait_for(told.wait(), 10)
        assert timer._handle is not None
        timer.close()

    run_on_uvloop(scenario)
    assert str(reported[0]) == "broken"
