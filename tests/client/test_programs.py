"""Whole programs as users write them, in `programs/`: they get real requests and signals, and have exact types.

They were written against docs/CLIENT.md alone. pyright checks their types as users do; it needs `node`, and is skipped
without it.
"""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np
import pytest

from nsqfast.client.sync import Consumer
from support.fake_nsqd import eventually
from support.programs import Program, left, publish
from support.server import ROOT, start_nsqd, start_nsqlookupd
from support.web import get, post, topic_stats

pytestmark = pytest.mark.slow

PROGRAMS = Path(__file__).parent / "programs"
ALL = sorted(PROGRAMS.glob("*.py"))
BOTH_SIGNALS = pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
HTTP_PORT = "this is an HTTP port"


def start(name, *arguments):
    return Program(sys.executable, str(PROGRAMS / name), *map(str, arguments))


def text_of(address):
    return "{}:{}".format(*address)


def channel_stats(broker, topic, channel="c"):
    return topic_stats(broker.http, topic)["channels"][channel]


def in_flight(broker, topic, channel="c"):
    """None while nobody has subscribed."""
    found = topic_stats(broker.http, topic)["channels"].get(channel)
    return found and found["in_flight_count"]


def message_count(broker, topic):
    found = topic_stats(broker.http, topic)
    return found["message_count"] if found else 0


def take_bodies(address, topic, count):
    bodies = []
    with Consumer(topic, "reader", nsqd=address) as consumer:
        for batch in consumer.batches(max_messages=min(count, 2500), max_wait_s=0.1):
            bodies += [message.body for message in batch]
            batch.finish()
            if len(bodies) >= count:
                break
    return bodies


@contextmanager
def hung(*brokers):
    """They keep their connections and answer nothing, as on a machine that is too busy."""
    with ExitStack() as stack:
        for broker in brokers:
            stack.enter_context(broker.frozen())
        yield


@pytest.fixture
def nobody():
    """An address that refuses connections for as long as the test lasts."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield text_of(bound.getsockname())


@pytest.fixture
def own(implementation, tmp_path):
    """A broker that the test may kill."""
    folder = tmp_path / "own"
    folder.mkdir()
    with start_nsqd(implementation, folder) as server:
        yield server


@pytest.mark.parametrize("name", [path.name for path in ALL])
def test_each_tells_an_http_port_apart(broker, tmp_path, name):
    """One clear line and exit status 1, not a program that waits for ever."""
    wrong = text_of(broker.http)
    file = tmp_path / "lines"
    file.write_text("line\n", encoding="ascii")
    arguments = {
        "orders_api.py": [wrong, "--port=0"],
        "csv_import.py": [wrong, "topic", file],
        "hourly_rollup.py": [wrong, "topic", "c", tmp_path / "out.npz"],
        "mail_worker.py": [wrong, "topic", "c"],
        "thumbnails.py": [wrong, "topic", "c", tmp_path],
        "zone_bridge.py": ["--lookupd", wrong, "--zone=", "--to", wrong, "topic", "c"],
    }
    with start(name, *arguments[name]) as program:
        assert program.end(None) == 1, program.text
    assert HTTP_PORT in program.lines[-1]
    assert "Traceback" not in program.text


# -- orders_api.py


class OrdersApi:
    def __init__(self, *addresses):
        self.program = start("orders_api.py", *addresses, "--port=0")

    def __enter__(self):
        self.program.__enter__()
        found = self.program.read_until(r"^listening on port (\d+)$")
        self.address = ("127.0.0.1", int(found[1]))
        return self

    def __exit__(self, *error):
        self.program.__exit__(*error)

    def order(self, body):
        return post(self.address, "/orders", body)

    def end(self, number=signal.SIGTERM):
        assert self.program.end(number) == 0, self.program.text
        assert "Traceback" not in self.program.text


def test_orders_are_at_nsqd_when_it_answers(own):
    with OrdersApi(text_of(own.tcp)) as api:
        assert get(api.address, "/health").status == 200
        assert api.order(b'{"item": "tea"}').status == 202
        assert message_count(own, "orders") == 1
        assert api.order(b"tea").status == 400
        assert api.order(b"").status == 400
        api.end()
    (body,) = take_bodies(text_of(own.tcp), "orders", 1)
    assert json.loads(body) == {"item": "tea"}


def test_order_that_takes_too_long_is_503(own):
    with OrdersApi(text_of(own.tcp)) as api:
        assert api.order(b"1").status == 202
        with hung(own):
            began_s = time.monotonic()
            answer = api.order(b"2")
            took_s = time.monotonic() - began_s
        assert (answer.status, answer.json()) == (503, {"error": "no answer in time"})
        assert 2 <= took_s < 20
        assert api.order(b"3").status == 202
        own.kill()
        eventually(lambda: get(api.address, "/health").status == 503)
        api.end()


def test_order_that_has_begun_is_published_before_the_end(own):
    with OrdersApi(text_of(own.tcp)) as api, ThreadPoolExecutor() as threads:
        with hung(own):
            answer = threads.submit(api.order, b"7")
            api.program.read_until("order: 7$")
            api.program.process.send_signal(signal.SIGTERM)
            api.program.read_until("^stopping$")
        assert answer.result().status == 202
        api.end(None)
    assert take_bodies(text_of(own.tcp), "orders", 1) == [b"7"]


# -- mail_worker.py


def test_mails_are_tried_again_and_buried(broker, address, topic):
    good = [b"mail %d" % number for number in range(40)]
    busy = [b"busy %d" % number for number in range(7)]
    bad = [b"bad %d" % number for number in range(5)]
    publish(address, topic, *good, *busy, *bad)
    with start("mail_worker.py", address, topic, "c", "--send-s=0", "--retry-s=0.1") as worker:
        # Go's nsqd may look at the delays of a new channel for the first time after five seconds.
        eventually(lambda: message_count(broker, f"{topic}-dead") == len(bad), 20)
        eventually(lambda: left(broker, topic) == 0)
        assert worker.end() == 0, worker.text
    requeued = len(busy) + 3 * len(bad)
    assert f"sent {len(good) + len(busy)}, requeued {requeued}, dead {len(bad)}" in worker.lines
    assert channel_stats(broker, topic)["requeue_count"] == requeued
    assert sorted(take_bodies(address, f"{topic}-dead", len(bad))) == bad


def test_mail_worker_loses_nothing_at_its_end(broker, address, topic):
    """What is being sent is sent, everything else stays at nsqd."""
    count, concurrency = 100, 32
    publish(address, topic, *[b"mail %d" % number for number in range(count)])
    with start("mail_worker.py", address, topic, "c", "--send-s=1") as worker:
        for _ in range(concurrency):
            worker.read_until("sending: mail")
        assert worker.end() == 0, worker.text
    assert f"sent {concurrency}, requeued 0, dead 0" in worker.lines
    eventually(lambda: left(broker, topic) == count - concurrency)
    assert in_flight(broker, topic) == 0


# -- csv_import.py


def test_csv_import(broker, address, topic, tmp_path):
    file = tmp_path / "lines.csv"
    lines = [b"%06d,tea" % number for number in range(100_000)]
    file.write_bytes(b"\r\n".join(lines) + b"\n\n")
    with start("csv_import.py", address, topic, file) as program:
        assert program.end(None) == 0, program.text
    assert program.lines == ["published 100000 lines"]
    assert message_count(broker, topic) == len(lines)
    assert sorted(take_bodies(address, topic, len(lines))) == lines


def test_csv_import_without_nsqd(nobody, topic, tmp_path):
    file = tmp_path / "lines.csv"
    file.write_bytes(b"line\n")
    with start("csv_import.py", nobody, topic, file, "--timeout-s=1") as program:
        assert program.end(None) == 1, program.text
    assert program.lines == [f"csv_import: no connection in 1 s: {nobody}: connection refused"]


def test_csv_import_that_loses_nsqd(own, topic, tmp_path):
    """The file is a pipe, so that the broker dies while the program still reads."""
    file = tmp_path / "pipe"
    os.mkfifo(file)
    where = text_of(own.tcp)
    with start("csv_import.py", where, topic, file, "--timeout-s=1") as program:
        with file.open("wb") as pipe:
            pipe.write(b"line\n" * 5000)
            pipe.flush()
            eventually(lambda: message_count(own, topic) > 0)
            own.kill()
            pipe.write(b"line\n" * 1000)
        assert program.end(None) == 1, program.text
    assert program.lines == [f"csv_import: no connection in time: {where}: connection refused"]


# -- hourly_rollup.py


def test_rollup_adds_up(broker, address, topic, tmp_path):
    file = tmp_path / "table.npz"
    sizes = [1 + number % 50 for number in range(6000)]
    began_ns = time.time_ns()
    publish(address, topic, *[b"x" * size for size in sizes])
    with start("hourly_rollup.py", address, topic, "c", file) as program:
        assert program.end(None) == 0, program.text
    took_ns = time.time_ns() - began_ns
    with np.load(file) as table:
        assert table["count"].sum() == len(sizes)
        assert table["bytes"].sum() == sum(sizes)
        assert 0 < table["age_ns"].sum() < len(sizes) * took_ns
        minute_ns = 60 * 10**9
        assert began_ns // minute_ns <= table["minute"].min()
        assert table["minute"].max() <= (began_ns + took_ns) // minute_ns
        assert program.lines == [f"{len(sizes)} messages, {len(table['minute'])} minutes"]
    assert left(broker, topic) == 0


def test_rollup_that_cannot_be_stored_finishes_nothing(broker, address, topic, tmp_path):
    publish(address, topic, b"a", b"b")
    nowhere = tmp_path / "nowhere" / "table.npz"
    with start("hourly_rollup.py", address, topic, "c", nowhere) as program:
        assert program.end(None) == 1
    assert len(program.lines) == 1
    assert "No such file or directory" in program.text
    eventually(lambda: channel_stats(broker, topic)["depth"] == 2)


# -- thumbnails.py


def make_images(folder, count):
    names = [f"{number}.png" for number in range(count)]
    for name in names:
        (folder / name).write_text(name, encoding="ascii")
    return [name.encode() for name in names]


def thumbnails_in(folder):
    return len(list(folder.glob("*.thumb")))


def test_thumbnails_pause_for_maintenance(broker, address, topic, tmp_path):
    flag = tmp_path / "maintenance"
    flag.touch()
    first, second = make_images(tmp_path, 20)[:10], make_images(tmp_path, 20)[10:]
    publish(address, topic, *first)
    with start("thumbnails.py", address, topic, "c", tmp_path, "--job-s=0") as program:
        program.read_until("waiting for the end of maintenance")
        assert thumbnails_in(tmp_path) == 0
        flag.unlink()
        eventually(lambda: in_flight(broker, topic) is not None and left(broker, topic) == 0)
        flag.touch()
        program.read_until("paused$")
        eventually(lambda: ready_count(broker, topic) == 0)
        publish(address, topic, *second)
        assert left(broker, topic) == len(second)
        assert thumbnails_in(tmp_path) == len(first)
        flag.unlink()
        program.read_until("resumed$")
        eventually(lambda: left(broker, topic) == 0)
        assert program.end() == 0, program.text
    assert "finished 20, requeued 0, touched 0" in program.lines
    assert thumbnails_in(tmp_path) == 20


def ready_count(broker, topic):
    return sum(client["ready_count"] for client in channel_stats(broker, topic)["clients"])


@BOTH_SIGNALS
def test_thumbnails_end_in_order(broker, address, topic, tmp_path, number):
    """Jobs that take longer than nsqd waits for an answer: none is delivered twice, and those that run are finished."""
    threads = 4
    publish(address, topic, *make_images(tmp_path, 6))
    times = ["--job-s=1.2", "--msg-timeout-s=1"]
    with start("thumbnails.py", address, topic, "c", tmp_path, *times) as program:
        for _ in range(threads):
            program.read_until("begun: ")
        assert program.end(number) == 0, program.text
    assert thumbnails_in(tmp_path) == threads
    assert program.lines[-1].startswith(f"finished {threads}, requeued 0, touched ")
    assert not program.lines[-1].endswith(" 0")
    assert any(
        line.startswith("INFO:thumbnails:") and "subscribed" in line for line in program.lines
    )
    eventually(lambda: channel_stats(broker, topic)["depth"] == 6 - threads)
    assert channel_stats(broker, topic)["timeout_count"] == 0


# -- zone_bridge.py


@pytest.fixture
def zones(implementation, tmp_path):
    """An nsqlookupd, an nsqd in each of two zones, and three that know nothing of them."""
    with start_nsqlookupd(implementation) as lookupd:
        listed = f"--lookupd-tcp-address={text_of(lookupd.tcp)}"

        def begin(name, *flags):
            folder = tmp_path / name
            folder.mkdir()
            return start_nsqd(implementation, folder, *flags)

        elsewhere = ["--tcp-address=0.0.0.0:0", "--broadcast-address=127.0.0.2"]
        with (
            begin("near", listed) as near,
            begin("far", listed, *elsewhere) as far,
            begin("one") as one,
            begin("two") as two,
            begin("three") as three,
        ):
            yield lookupd, near, far, [one, two, three]


def is_listed(lookupd, topic, count):
    answer = get(lookupd.http, f"/lookup?topic={topic}")
    return answer.status == 200 and len(answer.json()["producers"]) == count


def test_zone_bridge(zones, topic, tmp_path):
    lookupd, near, far, targets = zones
    one, two, three = targets
    file = tmp_path / "targets.txt"
    for source in (near, far):
        publish(text_of(source.tcp), topic, *[b"%d" % number for number in range(100)])
    eventually(lambda: is_listed(lookupd, topic, 2))
    to = [f"--to={text_of(target.tcp)}" for target in (one, two)]
    zone = ["--lookupd", text_of(lookupd.http), "--zone=127.0.0.1:", "--to-file", file]
    with start("zone_bridge.py", *zone, *to, topic, "c") as bridge:
        eventually(lambda: in_flight(near, topic) is not None and left(near, topic) == 0)
        assert [message_count(target, topic) for target in targets] == [50, 50, 0]

        with hung(one, two):
            publish(text_of(near.tcp), topic, *[b"%d" % number for number in range(100, 110)])
            eventually(lambda: in_flight(near, topic) == 10)  # finished only when a target has it
        eventually(lambda: left(near, topic) == 0)

        one.kill()
        publish(text_of(near.tcp), topic, *[b"%d" % number for number in range(110, 150)])
        eventually(lambda: left(near, topic) == 0)
        assert message_count(two, topic) == 50 + 5 + 40

        file.write_text(f"{text_of(three.tcp)}\n", encoding="ascii")
        bridge.process.send_signal(signal.SIGHUP)
        bridge.read_until(f"targets: {text_of(three.tcp)}$")
        publish(text_of(near.tcp), topic, *[b"%d" % number for number in range(150, 200)])
        eventually(lambda: left(near, topic) == 0)
        assert bridge.end() == 0, bridge.text
    assert [message_count(target, topic) for target in (two, three)] == [95, 50]
    assert topic_stats(far.http, topic)["channels"] == {}
    assert [line.split(" in ")[0] for line in bridge.lines[-2:]] == ["handled 200", "published 200"]
    assert "Traceback" not in bridge.text


# -- types


def output_of(*command, **options):
    done = subprocess.run(
        [*map(str, command)], capture_output=True, text=True, check=False, **options
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.timeout(300)
def test_mypy():
    path = f"{ROOT}{os.pathsep}{ROOT / 'build' / 'pxd'}"
    command = [sys.executable, "-m", "mypy", "--strict", *ALL]
    output_of(*command, cwd=ROOT, env=os.environ | {"MYPYPATH": path})


@pytest.fixture
def installed(tmp_path):
    """The library in one folder, as a wheel has it: pyright does not put a package together from two, as mypy does."""
    folder = tmp_path / "installed" / "nsqfast"
    folder.mkdir(parents=True)
    for path in [*(ROOT / "nsqfast").iterdir(), ROOT / "_ext"]:
        (folder / path.name).symlink_to(path)
    return folder.parent


def read_pyright(installed, folder, *files):
    """What pyright reports of them, as JSON; it ends with 1 where it finds errors."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    pyright = shutil.which("pyright", path=path)
    if pyright is None or shutil.which("node", path=path) is None:
        pytest.skip("no pyright, or no node to run it")
    config = folder / "pyrightconfig.json"
    config.write_text(json.dumps({"extraPaths": [str(installed)]}), encoding="utf-8")
    command = [pyright, "--outputjson", "--pythonpath", sys.executable, *map(str, files)]
    done = subprocess.run(
        command,
        cwd=folder,
        env=os.environ | {"PATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode in (0, 1), done.stdout + done.stderr
    found = json.loads(done.stdout)
    assert found["summary"]["filesAnalyzed"] == len(files)
    return found


@pytest.mark.soak
@pytest.mark.timeout(300)
def test_pyright(installed, tmp_path):
    """Each program asks for the strict rules in its first line."""
    found = read_pyright(installed, tmp_path, *ALL)
    assert found["generalDiagnostics"] == []


@pytest.mark.timeout(300)
def test_pyright_knows_the_names_of_the_package_and_no_others(installed, tmp_path):
    program = tmp_path / "names.py"
    program.write_text("from nsqfast import Producer, Produzer\n\nProducer().publish(1)\n")
    found = read_pyright(installed, tmp_path, program)
    rules = {each["rule"] for each in found["generalDiagnostics"] if each["severity"] == "error"}
    # The name that there is not; the argument and the topic that a publish needs.
    assert rules == {"reportAttributeAccessIssue", "reportCallIssue"}
