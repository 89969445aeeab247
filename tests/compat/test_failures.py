"""Policies with clients that know nothing of them: pynsq, and go-nsq in Go's nsq_to_http and to_nsq."""

import importlib.util
import json
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

from support.destination import Destination, answer
from support.server import go_program, start_nsqd
from support.waiting import eventually
from support.web import get, post, request, topic_stats
from support.wire import Client

SCRIPTS = Path(__file__).parent / "scripts"
SECONDS_MAX = 50
COUNT = 20
BODIES = [f"message {number:02}" for number in range(COUNT)]
KEPT = 5  # of these, by a limit of so many messages, or of their bytes
LIMITS = [{"max_messages": KEPT}, {"max_bytes": KEPT * len(BODIES[0])}]

pytestmark = pytest.mark.slow
needs_pynsq = pytest.mark.skipif(
    importlib.util.find_spec("nsq") is None, reason="pynsq is not installed"
)


@pytest.fixture
def broker(request, tmp_path):
    with start_nsqd(
        "nsqfast", tmp_path, "--durable=always", *getattr(request, "param", ())
    ) as server:
        yield server


@pytest.fixture(
    params=[pytest.param("pynsq", marks=needs_pynsq), pytest.param("go-nsq", marks=pytest.mark.go)]
)
def library(request):
    return request.param


@pytest.fixture
def consume(broker, library):
    """Has its clients post what is in a channel of `t` to a server, and give back at once what that does not take."""
    address = "{}:{}".format(*broker.tcp)

    def command(channel, url):
        if library == "pynsq":
            return [sys.executable, SCRIPTS / "pynsq_to_http.py", address, "t", channel, url]
        options = ("max_attempts,65535", "default_requeue_delay,0s", "max_backoff_duration,0s")
        return [
            *(go_program("nsq_to_http"), "--topic=t", f"--channel={channel}", f"--post={url}"),
            *(f"--nsqd-tcp-address={address}", *(f"--consumer-opt={each}" for each in options)),
        ]

    @contextmanager
    def run(channel, conduct=None):
        with Destination(conduct) as server:
            program = subprocess.Popen(
                [*map(str, command(channel, server.url))],
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            try:
                eventually(lambda: counts(broker, channel)["client_count"] == 1)
                yield server
            finally:
                program.kill()  # nsq_to_http would wait for what its server does not answer
                program.wait(SECONDS_MAX)

    return run


@pytest.fixture
def publish(broker, library):
    """Publishes BODIES one by one with it; returns what the refusal of one was, b"" if there was none."""
    address = "{}:{}".format(*broker.tcp)

    def run():
        command = [sys.executable, SCRIPTS / "pynsq_publish.py", address, "t"]
        if library == "go-nsq":
            command = [go_program("to_nsq"), "--topic=t", f"--nsqd-tcp-address={address}"]
        text = "".join(f"{body}\n" for body in BODIES).encode()
        done = subprocess.run(
            command, input=text, capture_output=True, timeout=SECONDS_MAX, check=False
        )
        return done.stderr if done.returncode else b""

    return run


def begin(broker, channels="c", **definition):
    """A topic with these channels and that policy."""
    post(broker.http, "/topic/create?topic=t")
    for channel in channels:
        post(broker.http, f"/channel/create?topic=t&channel={channel}")
    set_policy(broker, **definition)


def set_policy(broker, **definition):
    policy = json.dumps({"topic": "^t$", "definition": definition}).encode()
    assert request(broker.http, "PUT", "/policies/p", policy).status == 200


def publish_all(broker):
    assert post(broker.http, "/mpub?topic=t", "\n".join(BODIES).encode()).status == 200


def refuse(_caller, _request):
    return answer(500)


def counts(broker, channel="c"):
    return topic_stats(broker.http, "t")["channels"][channel]


def is_empty(broker, channel="c"):
    found = counts(broker, channel)
    return not (found["depth"] or found["deferred_count"] or found["in_flight_count"])


def is_finished(broker, channel, count=COUNT):
    return counts(broker, channel)["message_count"] == count and is_empty(broker, channel)


def dead(broker, channel="c"):
    found = get(broker.http, f"/topic/peek?topic=t.{channel}.dead&limit=100").json()
    return [each for each in found.get("messages", []) if "death" in each]


def expect_dead(broker, bodies, reason):
    eventually(lambda: len(dead(broker)) >= len(bodies))
    letters = dead(broker)
    assert sorted(each["body"] for each in letters) == bodies
    assert {each["death"]["reason"] for each in letters} == {reason}
    return letters


def sorted_bodies(server):
    return sorted(body.decode() for body in server.bodies)


def test_dies_and_goes_back(broker, consume):
    """What its consumer refuses three times dies; when that takes what comes all of it goes back, to this one alone."""
    begin(broker, "cd", max_failures=3, retry_min="1ms")
    publish_all(broker)
    with consume("c", refuse), consume("d"):
        letters = expect_dead(broker, BODIES, "failed")
        assert {each["death"]["failures"] for each in letters} == {3}
        assert is_empty(broker)
        eventually(lambda: is_finished(broker, "d"))
    assert post(broker.http, "/channel/redrive?topic=t&channel=c").status == 200
    with consume("c") as server, consume("d") as other:
        server.wait_for_count(COUNT)
        eventually(lambda: is_empty(broker))
        assert sorted_bodies(server) == BODIES
        assert other.bodies == []
    assert dead(broker) == []
    assert is_finished(broker, "d")


def test_too_old(broker, consume):
    """It waits for a second behind its failure, is too old then, and its consumer does not see it again."""
    begin(broker, max_age="500ms", retry_min="1s", dead_letter_topic="{topic}.{channel}.dead")
    publish_all(broker)
    with consume("c", refuse) as server:
        expect_dead(broker, BODIES, "expired")
        assert len(set(server.bodies)) == len(server.bodies)


@pytest.mark.parametrize("broker", [["--msg-timeout=2s"]], indirect=True)
def test_what_fails_waits(broker, consume):
    """For what the policy says, whether it is given back or times out: the broker says for how long."""
    came_s = []

    def fail(caller, _request):
        came_s.append(time.monotonic())
        if len(came_s) == 2:
            caller.hang()
        return answer(200 if len(came_s) == 4 else 500)

    def expect_to_wait(minutes):
        eventually(lambda: counts(broker)["deferred_count"] == 1)
        found = get(broker.http, "/channel/peek?topic=t&channel=c&state=deferred").json()
        (message,) = found["messages"]
        assert minutes - 1 < message["due_in_ms"] / 60_000 <= minutes
        return f"/channel/deferred/run?topic=t&channel=c&id={message['id']}"

    begin(broker, retry_min="1h", retry_max="90m", retry_jitter=0)
    post(broker.http, "/pub?topic=t", b"x")
    with consume("c", fail):
        assert post(broker.http, expect_to_wait(60)).status == 200
        eventually(lambda: counts(broker)["timeout_count"] == 1)
        run = expect_to_wait(90)
        set_policy(broker, retry_min="500ms", retry_multiplier=1, retry_jitter=0)
        assert post(broker.http, run).status == 200
        eventually(lambda: len(came_s) == 4 and is_empty(broker))
        assert came_s[3] - came_s[2] >= 0.5


def test_a_channel_that_fails_is_paused(broker, consume):
    """Then one message is tried at a time; all others wait until one of these is taken."""
    is_trial, is_over, trials = threading.Event(), threading.Event(), []

    def conduct(caller, request):
        if is_trial.is_set() and not is_over.is_set():
            trials.append(request)
            is_over.wait(SECONDS_MAX)
        return answer(200 if is_over.is_set() else 500)

    begin(broker, pause_when_failing=0.5, pause_time="1s")
    publish_all(broker)
    with consume("c", conduct) as server:
        eventually(lambda: counts(broker).get("paused_by_policy"))
        eventually(lambda: counts(broker)["in_flight_count"] == 0)
        server.wait_for_count(len(server.requests) + 1)  # a trial, which fails
        is_trial.set()
        eventually(lambda: trials)
        found = counts(broker)
        assert (found["in_flight_count"], found["depth"]) == (1, COUNT - 1)
        assert found["paused_by_policy"]
        is_over.set()
        eventually(lambda: is_empty(broker))
        assert not counts(broker).get("paused_by_policy")
        assert {body.decode() for body in server.bodies} == set(BODIES)
        assert len(trials) == 1


@pytest.mark.parametrize("limit", LIMITS)
def test_refuses_publishes(broker, consume, publish, limit):
    """Beyond a limit, until a consumer has made room."""
    begin(broker, **limit)
    assert b"E_PUB_FAILED" in publish()
    eventually(lambda: counts(broker)["depth"] == KEPT)
    with consume("c") as server:
        eventually(lambda: is_finished(broker, "c", KEPT))
        assert sorted_bodies(server) == BODIES[:KEPT]
    assert b"E_PUB_FAILED" in publish()
    eventually(lambda: counts(broker)["depth"] == KEPT)


@pytest.mark.parametrize("limit", LIMITS)
@pytest.mark.parametrize("dies", [False, True])
def test_drops_the_oldest(broker, consume, publish, limit, dies):
    """Beyond a limit, or has them die; the consumer gets the rest."""
    letters = {"dead_letter_topic": "{topic}.{channel}.dead"} if dies else {}
    begin(broker, overflow="drop_head", **limit, **letters)
    assert publish() == b""
    if dies:
        expect_dead(broker, BODIES[:-KEPT], "over_limit")
    else:
        eventually(lambda: counts(broker).get("dropped_count") == COUNT - KEPT)
    with consume("c") as server:
        server.wait_for_count(KEPT)
        eventually(lambda: is_empty(broker))
        assert sorted_bodies(server) == BODIES[-KEPT:]


def test_few_in_flight(broker, consume):
    """However many it asks for, and also while it takes one after the other."""
    lock, is_full, now, most = threading.Lock(), threading.Event(), set(), []

    def conduct(caller, request):
        with lock:
            now.add(caller)
            most.append(len(now))
        is_full.wait(SECONDS_MAX)
        with lock:
            now.discard(caller)
        return answer(200)

    begin(broker, max_in_flight=3)
    publish_all(broker)
    with consume("c", conduct):
        eventually(lambda: len(now) == 3)
        found = counts(broker)
        assert (found["in_flight_count"], found["depth"]) == (3, COUNT - 3)
        is_full.set()
        eventually(lambda: is_finished(broker, "c"))
    assert max(most) == 3


def test_no_faster(broker, consume):
    """The first may come at once, and all others in steps of a tenth of a second."""
    begin(broker, max_rate=10)
    with consume("c") as server:
        began_s = time.monotonic()
        publish_all(broker)
        server.wait_for_count(COUNT)
        assert time.monotonic() - began_s >= (COUNT - 2) / 10


@pytest.mark.go
def test_go_reads_the_folder(tmp_path):
    """What failed has another id there, in letters and digits, and its count again when we have the folder back."""
    with start_nsqd("nsqfast", tmp_path) as broker:
        begin(broker, max_failures=3)
        publish_all(broker)
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
        eventually(lambda: len(dead(broker)) == COUNT - 1)
        assert {each["death"]["failures"] for each in dead(broker)} == {3}
