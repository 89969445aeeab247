"""Whole programs as users write them, in `programs/`: they get real requests and signals, and have exact types.

They were written against docs/CLIENT.md alone. pyright checks their types as users do; it needs `node`, and is skipped
without it.
"""

import json
import os
import re
import shutil
import sys
from pathlib import Path

import pytest

from nsqfast.client.sync import Consumer
from support.commands import run_command
from support.drain import message_count
from support.programs import Program, left, publish
from support.server import ROOT, start_nsqd
from support.waiting import eventually
from support.web import topic_stats

pytestmark = pytest.mark.slow

PROGRAMS = Path(__file__).parent / "programs"
# Nothing runs these: each says in which of its lines a type checker finds something wrong.
TYPES = sorted((Path(__file__).parent / "types").glob("*.py"))
ALL = sorted(PROGRAMS.glob("*.py"))
HTTP_PORT = "this is an HTTP port"


def start(name, *arguments):
    return Program(sys.executable, str(PROGRAMS / name), *map(str, arguments))


def text_of(address):
    return "{}:{}".format(*address)


def channel_stats(broker, topic, channel="c"):
    return topic_stats(broker.http, topic)["channels"][channel]


def in_flight(broker, topic, channel="c"):
    """None while dead has subscribed."""
    found = topic_stats(broker.http, topic)["channels"].get(channel)
    return found and found["in_flight_count"]


def take_bodies(address, topic, count):
    bodies = []
    with Consumer(topic, "reader", nsqd=address) as consumer:
        for batch in consumer.batches(max_messages=min(count, 2500), max_wait_s=0.1):
            bodies += [message.body for message in batch]
            batch.finish()
            if len(bodies) >= count:
                break
    return bodies


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
        "csv_import.py": [wrong, "topic", file],
        "jobs.py": [wrong, "topic", "--http", wrong],
        "mail_worker.py": [wrong, "topic", "c"],
    }
    with start(name, *arguments[name]) as program:
        assert program.end(None) == 1, program.text
    assert HTTP_PORT in program.lines[-1]
    assert "Traceback" not in program.text


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


def test_csv_import_without_nsqd(dead, topic, tmp_path):
    file = tmp_path / "lines.csv"
    file.write_bytes(b"line\n")
    with start("csv_import.py", dead, topic, file, "--timeout-s=1") as program:
        assert program.end(None) == 1, program.text
    assert program.lines == [f"csv_import: no connection in 1 s: {dead}: connection refused"]


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


# -- jobs.py


def test_jobs(tmp_path, topic):
    with (
        start_nsqd("nsqfast", tmp_path) as server,
        start("jobs.py", text_of(server.tcp), topic, "--http", text_of(server.http)) as program,
    ):
        assert program.end(None) == 0, program.text
    kept, other, *said = program.lines
    assert [line.split()[1:] for line in (kept, other)] == [["kept", "True"], ["other", "True"]]
    assert said == [
        "cancelled in 1, run in 0",
        "deferred: 1",
        "run in 1, cancelled in 0",
        "ready: [b'kept'], deleted at 1",
    ]


# -- types


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
    done = run_command(*command, cwd=folder, env=os.environ | {"PATH": path}, timeout=None)
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


def list_wrong_lines(path):
    lines = path.read_text(encoding="utf-8").splitlines()
    return {number for number, line in enumerate(lines, 1) if line.endswith("# wrong")}


@pytest.mark.timeout(300)
@pytest.mark.parametrize("path", TYPES, ids=lambda path: path.name)
def test_mypy_finds_what_is_wrong(installed, path):
    environment = os.environ | {"MYPYPATH": str(installed)}
    flags = ("--strict", "--no-error-summary", "--cache-dir", str(ROOT / ".mypy_cache" / "types"))
    done = run_command(
        sys.executable,
        "-m",
        "mypy",
        *flags,
        str(path),
        cwd=installed,
        env=environment,
        timeout=None,
    )
    found = re.findall(rf"^.*{path.name}:(\d+): error:", done.stdout, re.MULTILINE)
    assert set(map(int, found)) == list_wrong_lines(path) != set(), done.stdout + done.stderr


@pytest.mark.timeout(300)
@pytest.mark.parametrize("path", TYPES, ids=lambda path: path.name)
def test_pyright_finds_what_is_wrong(installed, tmp_path, path):
    found = read_pyright(installed, tmp_path, path)["generalDiagnostics"]
    lines = {each["range"]["start"]["line"] + 1 for each in found if each["severity"] == "error"}
    assert lines == list_wrong_lines(path) != set(), found


@pytest.mark.timeout(300)
def test_pyright_knows_the_names_of_the_package_and_no_others(installed, tmp_path):
    program = tmp_path / "names.py"
    program.write_text("from nsqfast import Producer, Produzer\n\nProducer().publish(1)\n")
    found = read_pyright(installed, tmp_path, program)
    rules = {each["rule"] for each in found["generalDiagnostics"] if each["severity"] == "error"}
    # The name that there is not; the argument and the topic that a publish needs.
    assert rules == {"reportAttributeAccessIssue", "reportCallIssue"}


# Each line that is marked is a mistake, and no other one is.
MISTAKES = """
import datetime

import nsqfast.client.sync
from nsqfast.client import Config, Consumer, Message, Producer

async def handle(message: Message) -> None: ...
async def main(producer: Producer, message: Message) -> None:
    await producer.publish(b"orders", b"x")  # wrong
    await producer.publish("orders", "x")  # wrong
    await producer.publish("orders", {"id": 7})  # wrong
    await producer.publish_later("orders", b"x", datetime.timedelta(seconds=1))  # wrong
    message.requeue(datetime.timedelta(seconds=1))  # wrong
    Consumer("orders", b"c", nsqd="127.0.0.1:4150")  # wrong
    Consumer("orders", "c", nsqd="127.0.0.1:4150", config={})  # wrong
    Consumer("orders", "c", nsqd="127.0.0.1:4150", backoff="often")  # wrong
    Consumer("orders", "c", nsqd="127.0.0.1:4150", dead_letter_topic=b"dead")  # wrong
    with Producer("127.0.0.1:4150"):  # wrong
        pass
    for _ in Consumer("orders", "c", nsqd="127.0.0.1:4150"):  # wrong
        pass
    async with nsqfast.client.sync.Producer("127.0.0.1:4150"):  # wrong
        pass
    nsqfast.client.sync.Consumer("orders", "c", nsqd="127.0.0.1:4150").run(handle)  # wrong
    nsqfast.client.sync.Producer("127.0.0.1:4150").send_many("orders", "abc")  # wrong
    await Consumer("orders", "c", nsqd="127.0.0.1:4150,127.0.0.1:5150").run(handle, stop_on_signals=False)
    await Consumer("orders", "c", backoff="nsq", dead_letter_topic="dead", config=Config()).run(handle)
"""
MARKED = {
    number for number, line in enumerate(MISTAKES.splitlines(), 1) if line.endswith("# wrong")
}


@pytest.fixture
def mistakes(tmp_path):
    program = tmp_path / "mistakes.py"
    program.write_text(MISTAKES, encoding="utf-8")
    return program


@pytest.mark.timeout(300)
def test_pyright_finds_mistakes(installed, tmp_path, mistakes):
    found = read_pyright(installed, tmp_path, mistakes)["generalDiagnostics"]
    assert {each["range"]["start"]["line"] + 1 for each in found} == MARKED


@pytest.mark.timeout(300)
def test_mypy_finds_mistakes(installed, mistakes):
    done = run_command(
        sys.executable,
        *("-m", "mypy", "--strict", "--output=json", f"--cache-dir={mistakes.parent}", mistakes),
        env=os.environ | {"MYPYPATH": str(installed)},
        cwd=mistakes.parent,
        timeout=None,
    )
    assert {json.loads(line)["line"] for line in done.stdout.splitlines()} == MARKED
