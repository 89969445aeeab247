"""What `make up` runs, against the real daemon."""

import re
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from nsqfast.client.sync import Consumer
from nsqfast.dev import demo

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def up(tmp_path):
    """`make up ARGS=--nsqd-only` on free ports: its process, and the two ports it told us."""
    command = [sys.executable, "-m", "nsqfast.dev.demo", "--nsqd-only", "--free-ports"]
    process = subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    with process:
        try:
            told = ""
            while not (ports := re.search(r"TCP on port (\d+), HTTP on port (\d+)", told)):
                line = process.stdout.readline()
                assert line, f"ended with {process.wait()} after {told!r}"
                told += line
            yield process, int(ports[1]), int(ports[2])
        finally:
            process.terminate()


@pytest.mark.slow
def test_demo_shows_both_ends(capsys):
    assert demo.main(["--demo"]) == 0
    printed = capsys.readouterr().out
    for body in demo.OVER_HTTP + demo.OVER_TCP:
        assert re.search(rf"^in .*{body.decode()}", printed, re.MULTILINE)
        assert re.search(
            rf"^out  [0-9a-f]{{16}}  attempt 1  {body.decode()}$", printed, re.MULTILINE
        )
    assert printed.endswith("nsqfast-nsqd: stopped\n")


@pytest.mark.slow
def test_demo_reports_a_daemon_that_does_not_start(capsys):
    assert demo.main(["--demo", "--no-such-flag"]) == 1
    assert "nsqfast-nsqd did not start:\nflag provided but not defined" in capsys.readouterr().err


@pytest.mark.slow
def test_up_serves_until_it_is_told_to_stop(up, tmp_path):
    process, tcp_port, http_port = up
    url = f"http://127.0.0.1:{http_port}/pub?topic=t"
    with urllib.request.urlopen(url, data=b"hello", timeout=10) as answer:
        assert answer.read() == b"OK"
    with Consumer("t", "c", nsqd=f"127.0.0.1:{tcp_port}") as consumer:
        message = consumer.get(timeout_s=10)
        assert (message.body, message.attempts) == (b"hello", 1)
        message.finish()
    process.send_signal(signal.SIGTERM)
    assert process.wait(20) == 0
    assert (tmp_path / "data" / "nsqd.dat").exists()
