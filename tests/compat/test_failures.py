"""Policies on failures with clients that know nothing of them: go-nsq, in Go's nsq_to_http, and pynsq."""

import importlib.util
import json
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

from support.destination import Destination, answer
from support.server import go_program, start_nsqd
from support.waiting import eventually
from support.web import get, post, request, topic_stats
from support.wire import Client

SCRIPT = Path(__file__).parent / "scripts" / "pynsq_failing.py"
COUNT = 20
BODIES = sorted(f"message {number}" for number in range(COUNT))

needs_pynsq = pytest.mark.skipif(
    importlib.util.find_spec("nsq") is None, reason="pynsq is not installed"
)


@pytest.fixture
def broker(tmp_path):
    with start_nsqd("nsqfast", tmp_path, "--durable=always") as server:
        yield server


def begin(broker, channel, **definition):
    post(broker.http, "/topic/create?topic=t")
    post(broker.http, f"/channel/create?topic=t&channel={channel}")
    policy = json.dumps({"topic": "^t$", "definition": definition}).encode()
    assert request(broker.http, "PUT", "/policies/p", policy).status == 200
    assert post(broker.http, "/mpub?topic=t", "\n".join(BODIES).encode()).status == 200


@contextmanager
def running(*command):
    program = subprocess.Popen(
        [str(word) for word in command], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        yield
    finally:
        program.terminate()
        program.wait(50)


@contextmanager
def go_nsq(broker, channel, conduct=None):
    """nsq_to_http, which gives back what its server does not take."""
    with Destination(conduct) as server:
        yield running(
            go_program("nsq_to_http"),
            "--topic=t",
            f"--channel={channel}",
            f"--post={server.url}",
            f"--nsqd-tcp-address={broker.tcp[0]}:{broker.tcp[1]}",
            "--consumer-opt=max_attempts,65535",
            "--consumer-opt=default_requeue_delay,0s",
        )


def dead(broker, channel):
    found = get(broker.http, f"/topic/peek?topic=t.{channel}.dead&limit=100").json()
    return [each for each in found.get("messages", []) if "death" in each]


def expect_dead(broker, channel, failures):
    eventually(lambda: len(dead(broker, channel)) == COUNT)
    letters = dead(broker, channel)
    assert sorted(each["body"] for each in letters) == BODIES
    assert {each["death"]["failures"] for each in letters} == {failures}
    assert {each["death"]["reason"] for each in letters} == {"failed"}
    found = topic_stats(broker.http, "t")["channels"][channel]
    assert (found["depth"], found["deferred_count"], found["in_flight_count"]) == (0, 0, 0)


@needs_pynsq
def test_pynsq(broker):
    begin(broker, "c", max_failures=3, retry_min="1ms")
    with running(sys.executable, SCRIPT, f"{broker.tcp[0]}:{broker.tcp[1]}", "t", "c"):
        expect_dead(broker, "c", 3)


@pytest.mark.go
def test_go_nsq(broker):
    """What its server refuses dies; when it takes what comes all goes back, and is finished."""
    begin(broker, "c", max_failures=1)
    with go_nsq(broker, "c", lambda _caller, _request: answer(500)) as program, program:
        expect_dead(broker, "c", 1)
    assert post(broker.http, "/channel/redrive?topic=t&channel=c").status == 200
    with go_nsq(broker, "c") as program, program:
        eventually(
            lambda: topic_stats(broker.http, "t")["channels"]["c"]["message_count"] == 2 * COUNT
        )
        eventually(lambda: is_empty(broker))
    assert dead(broker, "c") == []


def is_empty(broker):
    found = topic_stats(broker.http, "t")["channels"]["c"]
    return not (found["depth"] or found["deferred_count"] or found["in_flight_count"])


@pytest.mark.go
def test_go_reads_the_folder(tmp_path):
    """What failed has another id there, in letters and digits, and its count again when we have the folder back."""
    with start_nsqd("nsqfast", tmp_path) as broker:
        begin(broker, "c", max_failures=3)
        with Client(broker.tcp) as client:
            client.sub("t", "c", COUNT)
            for _ in range(2):
                for message in client.read_messages(COUNT):
                    client.command("REQ", message.id.decode(), "0")
            client.read_messages(COUNT)
    with start_nsqd("go", tmp_path) as broker, Client(broker.tcp) as client:
        client.sub("t", "c", COUNT)
        messages = client.read_messages(COUNT)
        assert sorted(message.body.decode() for message in messages) == BODIES
        assert all(message.id.isalnum() for message in messages)
        client.fin(messages.pop())
        client.barrier()
    with start_nsqd("nsqfast", tmp_path) as broker, Client(broker.tcp) as client:
        client.sub("t", "c", COUNT)
        again = client.read_messages(COUNT - 1)
        for message in again:
            int(message.id, 16)
            client.command("REQ", message.id.decode(), "0")
        eventually(lambda: len(dead(broker, "c")) == COUNT - 1)
        assert {each["death"]["failures"] for each in dead(broker, "c")} == {3}


@needs_pynsq
def test_too_old(broker):
    """It waits for a second behind each failure, and is too old then."""
    begin(broker, "c", max_age="500ms", retry_min="1s", dead_letter_topic="{topic}.{channel}.dead")
    with running(sys.executable, SCRIPT, f"{broker.tcp[0]}:{broker.tcp[1]}", "t", "c"):
        eventually(lambda: len(dead(broker, "c")) == COUNT)
    assert {each["death"]["reason"] for each in dead(broker, "c")} == {"expired"}
