"""Programs and libraries that others wrote, against the broker: Go's tools and pynsq."""

import importlib.util
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from support.server import go_program
from support.waiting import wait_until
from support.web import topic_stats

LINES = [b"line %d" % number for number in range(500)]
SECONDS_MAX = 50
SCRIPTS = Path(__file__).parent / "scripts"

pytestmark = pytest.mark.slow


def address_of(broker):
    host, port = broker.tcp
    return f"{host}:{port}"


def run(*command, text=b""):
    done = subprocess.run(
        command, input=text, capture_output=True, timeout=SECONDS_MAX, check=False
    )
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


def wait_until_finished(broker, topic, channel, count):
    """Until the tool has finished all its messages.

    Go reads a channel's depth before its message count, so only the look after the one that saw
    all messages says what became of them.
    """

    def look():
        found = topic_stats(broker.http, topic)
        return (found and found["channels"].get(channel)) or {}

    def is_over():
        counts = look()
        return not any(counts[name] for name in ("depth", "in_flight_count", "deferred_count"))

    wait_until(lambda: look().get("message_count") == count, look)
    wait_until(is_over, look)


@pytest.mark.go
def test_to_nsq(broker, client, topic):
    flag = f"--nsqd-tcp-address={address_of(broker)}"
    run(go_program("to_nsq"), f"--topic={topic}", flag, text=b"\n".join(LINES) + b"\n")
    client.sub(topic, "c", 1000)
    assert [message.body for message in client.read_messages(len(LINES))] == LINES


@pytest.mark.go
def test_nsq_tail(broker, client, topic):
    client.mpub(topic, LINES)
    flags = [f"--topic={topic}", f"--nsqd-tcp-address={address_of(broker)}", "-n=100"]
    flags += ["--max-in-flight=100"]
    assert run(go_program("nsq_tail"), *flags).split(b"\n")[:100] == LINES[:100]


@pytest.mark.go
def test_nsq_to_file(broker, client, topic, tmp_path):
    client.mpub(topic, LINES)
    command = [go_program("nsq_to_file"), f"--topic={topic}", f"--output-dir={tmp_path}"]
    command += [f"--nsqd-tcp-address={address_of(broker)}", "--sync-interval=100ms"]
    program = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    try:
        wait_until_finished(broker, topic, "nsq_to_file", len(LINES))
        program.send_signal(signal.SIGTERM)
        assert program.wait(SECONDS_MAX) == 0
    finally:
        program.kill()
        program.wait()
    (log,) = tmp_path.iterdir()
    assert sorted(log.read_bytes().splitlines()) == sorted(LINES)


@pytest.mark.go
def test_nsq_to_nsq(broker, client, topic):
    client.mpub(topic, LINES)
    target = topic + "-copy"
    client.sub(target, "c", 1000)
    address = address_of(broker)
    command = [go_program("nsq_to_nsq"), f"--topic={topic}", f"--destination-topic={target}"]
    command += [f"--nsqd-tcp-address={address}", f"--destination-nsqd-tcp-address={address}"]
    program = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    try:
        got = [message.body for message in client.read_messages(len(LINES))]
        assert sorted(got) == sorted(LINES)
        wait_until_finished(broker, topic, "nsq_to_nsq", len(LINES))
    finally:
        program.terminate()
        program.wait(SECONDS_MAX)


@pytest.mark.skipif(importlib.util.find_spec("nsq") is None, reason="pynsq is not installed")
def test_pynsq(broker, topic):
    script = str(SCRIPTS / "pynsq_roundtrip.py")
    answer = run(sys.executable, script, address_of(broker), topic, "400")
    assert answer.strip() == b"all arrived"
    found = topic_stats(broker.http, topic)["channels"]["pynsq"]
    assert (found["message_count"], found["requeue_count"]) == (400, 5)
    assert (found["depth"], found["deferred_count"]) == (0, 0)
