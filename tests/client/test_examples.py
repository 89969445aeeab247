"""Every program in examples/, as its first lines say to run it: with all arguments, and with none."""

import re
import signal
import subprocess

import pytest

from support.namespaces import Network, why_not
from support.programs import EXAMPLES, SECONDS_MAX, Program, command, left, publish
from support.server import ROOT, Server, program
from support.waiting import eventually
from support.web import post, request

NAMES = sorted(path.name for path in EXAMPLES.glob("*.py"))


def run(name, *arguments, lines=b""):
    done = subprocess.run(
        command(name, *arguments),
        input=lines,
        capture_output=True,
        timeout=SECONDS_MAX,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    assert b"Traceback" not in done.stderr
    return done.stdout.decode()


def test_each_has_a_test():
    tests = "".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    assert [name for name in NAMES if name not in tests] == []


# -- with arguments


@pytest.mark.slow
def test_lines_in_and_out(broker, address, topic):
    said = run("publish.py", topic, "--nsqd", address, lines=b"one\n\ntwo\r\nthree")
    assert said == f"messages published to {topic}: 3\n"
    with Program(*command("consume.py", topic, "c", "--nsqd", address)) as consumer:
        for body in ("one", "two", "three"):
            consumer.read_until(f"^{body}$")
        eventually(lambda: left(broker, topic) == 0)
        assert consumer.end(signal.SIGTERM) == 0, consumer.text
    assert consumer.lines[-1] == "messages finished: 3"


@pytest.mark.slow
def test_async_consume(broker, address, topic):
    publish(address, topic, b"one", b"later", b"two")
    printed = run("async_consume.py", topic, "c", "--nsqd", address, "--count", 3)
    assert printed.splitlines() == [
        "one attempt 1",
        "later attempt 1",
        "two attempt 1",
        "later attempt 2",
    ]
    eventually(lambda: left(broker, topic) == 0)


@pytest.mark.slow
def test_tracing(address, topic):
    """All four spans are of one trace, the publisher's inside out, then the handler's."""
    spans = [line.split() for line in run("tracing.py", topic, "c", "--nsqd", address).splitlines()]
    assert len({trace_id for trace_id, *_ in spans}) == 1
    assert [" ".join(words[1:-1]) for words in spans] == [
        f"publish {topic}",
        "checkout",
        "ship 7",
        f"handle {topic}",
    ]


# -- without, beside a broker on the default ports


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A network in which all ports are free, with a broker on the default ones."""
    if reason := why_not():
        pytest.skip(reason)
    folder = tmp_path_factory.mktemp("default")
    with Network() as network:
        network.add("here")
        nsqd = [*program("nsqd", "nsqfast"), f"--data-path={folder}"]
        with Server(network.on("here", *nsqd)) as server:
            yield Place(network, server)


class Place:
    def __init__(self, network, server):
        self._network = network
        self.server = server

    def start(self, folder, name):
        """It runs in the folder, where it may leave files."""
        return Program(*self._network.on("here", "env", "-C", str(folder), *command(name)))

    def call(self, work):
        return self._network.call("here", work)

    def publish(self, topic, body):
        assert self.call(lambda: post(self.server.http, f"/pub?topic={topic}", body)).status == 200

    def left(self, topic, channel):
        return self.call(lambda: left(self.server, topic, channel))


CONSUMERS = {
    "consume.py": ("test", "printer", b"tea", ["tea", "messages finished: 1"]),
    "async_consume.py": ("test", "printer", b"tea", ["tea attempt 1", "messages finished: 1"]),
    "batches.py": ("test", "batches", b"tea", ["messages: 1, rows: 1"]),
    "arrays.py": ("test", "arrays", b"tea", [r"messages: 1, bytes: 3, the oldest was \S+ s old"]),
    "pandas_frame.py": ("test", "pandas", b'{"amount": 1}', [r"messages added to sums\.csv: 1"]),
    "task_group.py": ("temperatures", "task-group", b"20", [r"68\.0"]),
    "app_worker.py": (
        "orders",
        "billing",
        b'{"sku": "tea", "count": 2}',
        ["bill: 6 for tea", "open", "closed"],
    ),
    "worker.py": (
        "jobs",
        "workers",
        b'{"name": "tea", "seconds": 0}',
        ["begun: tea", "done: tea", "jobs finished: 1, of which given up: 0"],
    ),
    "tasks.py": (
        "math",
        "workers",
        b'{"task": "add", "args": [2, 3], "kwargs": {}}',
        [r"2 \+ 3 = 5", "calls finished: 1"],
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", CONSUMERS)
def test_a_consumer_without_arguments(place, tmp_path, name):
    """It says what it did, and ends in order at Ctrl-C."""
    topic, channel, body, said = CONSUMERS[name]
    with place.start(tmp_path, name) as consumer:
        consumer.read_until(f"{topic}/{channel}.*connected")
        place.publish(topic, body)
        eventually(lambda: place.left(topic, channel) == 0)
        if name in {"app_worker.py", "task_group.py"}:  # it says so in the end, or another time
            consumer.read_until(f"^{said[0]}$")
        assert consumer.end(signal.SIGINT) == 0, consumer.text
    for line in said:
        assert re.search(f"^{line}$", consumer.text, re.MULTILINE), consumer.text
    assert "Traceback" not in consumer.text


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("publish.py", "messages published to test: 0"),
        ("async_publish.py", "messages published to test: 100003"),
        ("tracing.py", r"[0-9a-f]{32} ship 7 UNSET"),
        ("delayed_jobs.py", r"reminded now: True\ncancelled later: True"),
    ],
)
def test_a_publisher_without_arguments(place, tmp_path, name, said):
    with place.start(tmp_path, name) as publisher:
        assert publisher.end(None) == 0, publisher.text
    assert re.search(f"^{said}$", publisher.text, re.MULTILINE), publisher.text


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("auth_server.py", r"auth server on 127\.0\.0\.1:(4180)"),
        ("django_orders.py", r"http://127\.0\.0\.1:(8000)"),
        ("fastapi_app.py", r"http://127\.0\.0\.1:(8000)"),
    ],
)
def test_a_server_without_arguments(place, tmp_path, name, said):
    """It serves before Ctrl-C: while Django starts, that may meet a weak reference's callback, in which it is lost."""
    with place.start(tmp_path, name) as server:
        address = ("127.0.0.1", int(server.read_until(said)[1]))
        assert place.call(lambda: request(address, "GET", "/")).status < 500
        assert server.end(signal.SIGINT) == 0, server.text
    assert "Traceback" not in server.text


@pytest.mark.slow
def test_they_say_why_they_cannot_connect(dead, topic):
    """arguments.py: a broker that is not there is named, with the reason, and Ctrl-C ends the program all the same."""
    with Program(*command("consume.py", topic, "c", "--nsqd", dead)) as consumer:
        consumer.read_until(f"{dead}.*refused")
        assert consumer.end(signal.SIGINT) == 0, consumer.text
    assert consumer.lines[-1] == "messages finished: 0"
