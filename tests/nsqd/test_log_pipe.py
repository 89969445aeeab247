"""Log lines go to whoever reads stderr; a broker whose stderr nobody reads serves its clients all the same."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from nsqfast.program.logs import QUEUE_SIZE_MAX
from support.server import ROOT
from support.web import get
from support.wire import Client, encode_command

LOST = "lines before this one were lost"


@pytest.fixture
def unread(tmp_path):
    """(process, end of its stderr's pipe, addresses): nobody reads its log behind the first lines."""
    flags = ["--tcp-address", "127.0.0.1:0", "--http-address", "127.0.0.1:0"]
    command = [sys.executable, "-m", "nsqfast.nsqd.main", f"--data-path={tmp_path}", *flags]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, cwd=ROOT)
    assert process.stderr is not None
    text = ""
    while "HTTP: listening on" not in text:
        text += os.read(process.stderr.fileno(), 65536).decode()
    yield (
        process,
        process.stderr,
        dict(re.findall(r"(TCP|HTTP): listening on 127.0.0.1:(\d+)", text)),
    )
    process.kill()
    process.wait()
    process.stderr.close()


def fill(ports, count):
    """Each of so many clients causes a line of 20,000 bytes."""
    for _ in range(count):
        assert get(("127.0.0.1", int(ports["HTTP"])), f"/{'x' * 20_000}").status == 404


def test_a_log_that_nobody_reads_keeps_nobody_waiting(unread):
    _, pipe, ports = unread
    address = "127.0.0.1", int(ports["TCP"])
    count = 2 * QUEUE_SIZE_MAX // 20_000
    fill(ports, count)
    # What waited comes whole and in order; behind it stands how many lines there was no room for.
    lines = []
    with Client(address) as client:
        while not any(LOST in line for line in lines):
            lines.append(pipe.readline().decode())
            assert lines[-1]
            client.barrier()
    filling = [line for line in lines if "GET /xxx" in line]
    assert 50 <= len(filling) < count
    assert all(line.rstrip().endswith("s") for line in filling)
    assert all(line.startswith("[nsqd] ") for line in lines)
    # From there on all is as it was.
    with Client(address) as client:
        client.send(encode_command("PUB", "the_last_topic", body=b"x"))
        while "the_last_topic" not in pipe.readline().decode():
            pass


def test_the_end_does_not_wait_for_it_either(unread):
    process, _, ports = unread
    fill(ports, 20)
    process.send_signal(signal.SIGTERM)
    assert process.wait(20) == 0


def test_the_last_lines_are_there(unread):
    process, pipe, ports = unread
    fill(ports, 1)
    process.send_signal(signal.SIGTERM)
    lines = pipe.read().decode().splitlines()
    assert process.wait(20) == 0
    assert lines[-1].endswith("NSQ: bye")


def test_a_file_takes_everything(tmp_path):
    path = Path(tmp_path / "log")
    code = (
        "from nsqfast.program import logs\n"
        "log = logs.set_up('nsqd', '', 2)\n"
        "for number in range(20_000):\n"
        "    log.info('%d %s', number, 'x' * 100)\n"
        "log.info('y' * 100_000)\n"
    )
    with path.open("wb") as file:
        subprocess.run([sys.executable, "-c", code], stderr=file, check=True, cwd=ROOT)
    lines = path.read_text().splitlines()
    assert [int(line.split()[3]) for line in lines[:-1]] == list(range(20_000))
    assert lines[-1].endswith("y" * 100_000)


def test_what_the_pipe_had_no_room_for_comes_behind_it():
    code = (
        "from nsqfast.program import logs\n"
        "log = logs.set_up('nsqd', '', 2)\n"
        "for number in range(5_000):\n"
        "    log.info('%d %s', number, 'x' * 100)\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE, cwd=ROOT) as child:
        assert child.stderr is not None
        lines = child.stderr.read().decode().splitlines()
    assert [int(line.split()[3]) for line in lines] == list(range(5_000))
