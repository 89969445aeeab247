"""One run of one tool: a process of its own, on a broker that is not measured."""

from __future__ import annotations

import gzip
import os
import random
import signal
import subprocess
import sys
import time
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self

from nsqfast.client.sync import Producer
from server.implementation import go_tool
from server.usage import cpu_ns
from tools.scenario import SIZE

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from server.broker import Broker
    from tools.scenario import Scenario

OURS, GO = "nsqfast", "go"
SECONDS_MAX = 120.0
POLL_SECONDS = 0.005
BATCH = 1000
CHANNEL = "bench"
SEED = 13


def make_lines() -> list[bytes]:
    """Make JSON of which half is random: more than gzip's window of 32 KiB."""
    chance = random.Random(SEED)  # noqa: S311 - no secret
    head = '{"level":"info","service":"checkout","message":"order accepted","order":"%s"'
    lines = []
    for number in range(BATCH):
        text = head % chance.randbytes((SIZE - len(head)) // 4).hex() + f',"number":{number}'
        lines.append((text + " " * (SIZE - 1 - len(text)) + "}").encode())
    assert {len(line) for line in lines} == {SIZE}
    return lines


LINES = make_lines()

Sample = dict[str, float]


class HttpSink:
    """The server that nsq_to_http sends to."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("http_sink.py"))],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
        )
        assert self._process.stdout is not None
        self.url = f"http://127.0.0.1:{int(self._process.stdout.readline())}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()

    def count(self) -> int:
        """Return the requests with a body since the start."""
        with urllib.request.urlopen(f"{self.url}/count") as answer:  # noqa: S310 - ours
            return int(answer.read())


@dataclass(frozen=True, slots=True)
class Place:
    """Where a trial has its broker, its files and its peer."""

    broker: Broker
    folder: Path
    sink: HttpSink


def command(scenario: Scenario, name: str) -> list[str] | None:
    """Return the words that begin it; None if it is not available."""
    if name == OURS:
        module = f"nsqfast.tools.{scenario.tool}.main"
        return [sys.executable, "-m", module, *scenario.flags]
    program = go_tool(scenario.tool)
    if scenario.go_flags is None or program is None:
        return None
    return [str(program), *scenario.go_flags]


def run(scenario: Scenario, words: list[str], topic: str, count: int, place: Place) -> Sample:
    """Return messages a second, and microseconds of the tool's CPU time for each."""
    if scenario.tool in {"to_nsq", "replay"}:
        return run_publisher(scenario, words, topic, count, place)
    return run_consumer(scenario, words, topic, count, place)


# -- tools that publish a file


def run_publisher(
    scenario: Scenario, words: list[str], topic: str, count: int, place: Place
) -> Sample:
    """Measure from the start of the process to its end."""
    broker = place.broker
    broker.create(topic, ())
    source = place.folder / f"lines-{count}.log"
    if not source.exists():
        block = b"".join(line + b"\n" for line in LINES)
        source.write_bytes((block * (count // BATCH + 1))[: count * (SIZE + 1)])
    flags = [f"--nsqd-tcp-address={broker.tcp}", f"--topic={topic}"]
    flags += [str(source)] if scenario.tool == "replay" else []
    begun_s = time.monotonic()
    with source.open("rb") as lines:
        process = subprocess.Popen(
            [*words, *flags], stdin=lines, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        )
    assert process.stderr is not None
    said = process.stderr.read()
    _, status, used = os.wait4(process.pid, 0)
    seconds = time.monotonic() - begun_s
    process.stderr.close()
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"{words}: {process.returncode}\n{said.decode()}")
    found = broker.stats(topic)["message_count"]
    if found != count:
        raise RuntimeError(f"{words}: {found} of {count} messages came")
    broker.delete(topic)
    return {"rate": count / seconds, "cpu_us": (used.ru_utime + used.ru_stime) / count * 1e6}


# -- tools that consume a channel


def run_consumer(
    scenario: Scenario, words: list[str], topic: str, count: int, place: Place
) -> Sample:
    """Measure from unpausing a channel until it is empty."""
    broker = place.broker
    broker.create(topic, (CHANNEL,))
    post(broker, f"/channel/pause?topic={topic}&channel={CHANNEL}")
    fill(broker.tcp, topic, count)
    before = place.sink.count() if scenario.tool == "nsq_to_http" else 0
    flags = [f"--nsqd-tcp-address={broker.tcp}", f"--topic={topic}", f"--channel={CHANNEL}"]
    flags += destination(scenario, topic, place)
    log = place.folder / "tool.log"
    with log.open("wb") as errors:
        process = subprocess.Popen(
            [*words, *flags], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=errors
        )
    try:
        wait_connected(broker, topic, process, log)
        cpu_before_ns, begun_s = cpu_ns(process.pid), time.monotonic()
        post(broker, f"/channel/unpause?topic={topic}&channel={CHANNEL}")
        left = wait_drained(broker, topic, process, log)
        seconds, used_ns = time.monotonic() - begun_s, cpu_ns(process.pid) - cpu_before_ns
        process.send_signal(signal.SIGTERM)
        if status := process.wait(SECONDS_MAX):
            raise RuntimeError(f"{words}: {status}\n{log.read_text()}")
    finally:
        process.kill()
        process.wait()
    back = wait_handed_back(broker, topic, process, log)
    if back > left:
        raise RuntimeError(f"{words}: {back} messages came back, {left} were in flight")
    check(scenario, words, topic, count - back, before, place)
    broker.delete(topic)
    done = count - left
    return {"rate": done / seconds, "cpu_us": used_ns / 1000 / done}


def post(broker: Broker, target: str) -> None:
    request = urllib.request.Request(f"http://{broker.http}{target}", method="POST")
    urllib.request.urlopen(request).close()  # noqa: S310 - our broker


def fill(address: str, topic: str, count: int) -> None:
    """Make a backlog in memory."""
    with Producer(address) as producer:
        for _ in range(count // BATCH):
            producer.publish_many(topic, LINES)
        if count % BATCH:
            producer.publish_many(topic, LINES[: count % BATCH])


def destination(scenario: Scenario, topic: str, place: Place) -> list[str]:
    """Return the flags for the tool's output."""
    if scenario.tool == "nsq_to_file":
        folder = place.folder / topic
        folder.mkdir()
        return [f"--output-dir={folder}"]
    if scenario.tool == "nsq_to_nsq":
        flags = [f"--destination-nsqd-tcp-address={place.broker.tcp}"]
        return [*flags, f"--destination-topic={topic}-copy", "--status-every=0"]
    return [f"--post={place.sink.url}/", "--status-every=0"]


def wait_connected(broker: Broker, topic: str, process: subprocess.Popen[bytes], log: Path) -> None:
    """Wait until the tool is subscribed; Go's needs another moment for its RDY before the channel is unpaused."""
    wait(process, log, lambda: broker.stats(topic)["channels"][0]["client_count"])


def wait_drained(broker: Broker, topic: str, process: subprocess.Popen[bytes], log: Path) -> int:
    """Wait until the channel is empty; return how many are in flight then, as a file's last batch may wait."""

    def is_drained() -> bool:
        found = broker.stats(topic)
        return not found["depth"] and not found["channels"][0]["depth"]

    wait(process, log, is_drained)
    channel = broker.stats(topic)["channels"][0]
    if channel["deferred_count"] or channel["requeue_count"]:
        raise RuntimeError(f"messages were requeued\n{log.read_text()}")
    return int(channel["in_flight_count"])


def wait_handed_back(
    broker: Broker, topic: str, process: subprocess.Popen[bytes], log: Path
) -> int:
    """Wait until nsqd has seen the end of the tool, which requeues what it had received and not yet begun."""

    def is_gone() -> bool:
        return not broker.stats(topic)["channels"][0]["client_count"]

    wait(process, log, is_gone, is_running=False)
    return int(broker.stats(topic)["channels"][0]["depth"])


def wait(
    process: subprocess.Popen[bytes],
    log: Path,
    is_so: Callable[[], object],
    *,
    is_running: bool = True,
) -> None:
    deadline_s = time.monotonic() + SECONDS_MAX
    while not is_so():
        if (is_running and process.poll() is not None) or time.monotonic() > deadline_s:
            raise RuntimeError(f"{process.args} ({process.poll()}):\n{log.read_text()}")
        time.sleep(POLL_SECONDS)


# -- whether it did what it was asked to


def check(
    scenario: Scenario,
    words: Sequence[str],
    topic: str,
    count: int,
    before: int,
    place: Place,
) -> None:
    """RuntimeError unless every message is where it belongs."""
    if scenario.tool == "nsq_to_file":
        found = count_records(place.folder / topic)
    elif scenario.tool == "nsq_to_nsq":
        found = place.broker.stats(f"{topic}-copy")["message_count"]
        place.broker.delete(f"{topic}-copy")
    elif any(word.startswith("--batch") for word in words):
        found = count if place.sink.count() > before else 0
    else:
        found = place.sink.count() - before
    if found != count:
        raise RuntimeError(f"{words}: {found} of {count} messages came")


def count_records(folder: Path) -> int:
    """Count those in all files, whatever their format; remove the files."""
    total = 0
    for path in sorted(folder.rglob("*")):
        if not path.is_file():
            continue
        if path.suffix == ".parquet":
            import pyarrow.parquet

            total += pyarrow.parquet.ParquetFile(path).metadata.num_rows
        else:
            data = path.read_bytes()
            total += (gzip.decompress(data) if path.suffix == ".gz" else data).count(b"\n")
        path.unlink()
    return total
