"""Every program in examples/, as its first line says to run it."""

import re
import subprocess

import pytest

from support.fake_nsqd import eventually
from support.programs import EXAMPLES, SECONDS_MAX, command, left, publish
from support.server import ROOT
from support.web import topic_stats


def run(name, *arguments, lines=b""):
    done = subprocess.run(
        command(name, *arguments),
        input=lines,
        capture_output=True,
        timeout=SECONDS_MAX,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    assert done.stderr == b""
    return done.stdout.decode()


def test_each_has_a_test():
    tests = "".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    missing = [path.name for path in EXAMPLES.glob("*.py") if path.name not in tests]
    assert missing == []


@pytest.mark.slow
def test_lines_in_and_out(broker, topic):
    place = [broker.tcp[0], broker.tcp[1]]
    run("publish.py", topic, *place, lines=b"one\n\ntwo\r\nthree")
    consumer = subprocess.Popen(
        command("consume.py", topic, "c", *place), stdout=subprocess.PIPE, text=True
    )
    with consumer:
        assert [consumer.stdout.readline() for _ in range(3)] == ["one\n", "two\n", "three\n"]
        consumer.terminate()


@pytest.mark.slow
def test_async_publish(broker, address, topic):
    assert run("async_publish.py", topic, address) == "100003 published\n"
    assert topic_stats(broker.http, topic)["message_count"] == 100_004


@pytest.mark.slow
def test_async_consume(broker, address, topic):
    publish(address, topic, b"one", b"later", b"two")
    printed = run("async_consume.py", topic, "c", address, 3)
    assert printed.splitlines() == [
        "one attempt 1",
        "later attempt 1",
        "two attempt 1",
        "later attempt 2",
    ]
    eventually(lambda: left(broker, topic) == 0)


@pytest.mark.slow
def test_batches(broker, address, topic):
    publish(address, topic, *[b"%d" % number for number in range(1200)])
    assert run("batches.py", topic, "c", address, 1200) == "1200 rows\n"
    eventually(lambda: left(broker, topic) == 0)


@pytest.mark.slow
def test_arrays(broker, address, topic):
    publish(address, topic, *[b"x" * 10] * 5000)
    printed = run("arrays.py", topic, "c", address, 5000)
    assert re.fullmatch(r"50000 bytes, the oldest message was \d+\.\d{3} s old\n", printed)
    eventually(lambda: left(broker, topic) == 0)


@pytest.mark.slow
def test_tracing(address, topic):
    """All four spans are of one trace, the publisher's inside out, then the handler's."""
    spans = [line.split() for line in run("tracing.py", topic, "c", address).splitlines()]
    assert len({trace_id for trace_id, *_ in spans}) == 1
    assert [" ".join(words[1:-1]) for words in spans] == [
        f"publish {topic}",
        "checkout",
        "ship 7",
        f"handle {topic}",
    ]
