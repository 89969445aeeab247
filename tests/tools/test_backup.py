"""docs/BACKUP.md: its commands in their order; both machines are lost between them, or each program is killed."""

import re
import shlex
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

from nsqfast.client.sync import Consumer, Producer
from support.server import ROOT, program
from support.tools import Tool, tool_command
from support.waiting import eventually
from support.web import post, topic_stats

pytest.importorskip("pyarrow", reason="pyarrow is missing: pip install 'nsqfast[arrow]'")

TEXT = (ROOT / "docs" / "BACKUP.md").read_text(encoding="utf-8")
SECONDS_MAX = 50
ARCHIVES = ("--output-dir=/backup/a", "--output-dir=/backup/b")
MESSAGES = [b"order %06d" % number for number in range(5_000)]
LISTENING = re.compile(rb"(TCP|HTTP): listening on \S+:(\d+)\n")


def blocks(section):
    """The commands of one section, one text for each block."""
    part = re.search(rf"^## {section}\. .*?(?=^## |\Z)", TEXT, re.DOTALL | re.MULTILINE)
    return re.findall(r"```sh\n(.*?)```", part[0], re.DOTALL)


def commands(section):
    joined = "".join(blocks(section)).replace("\\\n", " ")
    return [line for line in joined.splitlines() if line.strip()]


class Machines:
    """Runs what the page says, with a folder and ports of its own in place of those that it names."""

    def __init__(self, folder, implementation):
        self.folder = folder
        self.implementation = implementation  # of nsqd
        self.nsqd_flags = []
        self.places = {}  # a port of the page: the real one
        self.running = {}  # the first words of a command that was left in the background

    def run(self, line):
        """One command; what it printed, unless it stays in the background."""
        words = self.words(line)
        if line.endswith("&"):
            return self.start(line, words)
        done = subprocess.run(
            words, capture_output=True, timeout=SECONDS_MAX, cwd=ROOT, check=False
        )
        assert done.returncode == 0, (line, done.stdout, done.stderr)
        return done.stdout.decode()

    def words(self, line):
        words = shlex.split(re.sub(r" &$", "", self.translated(line)))
        if words[0].startswith("nsqfast-"):
            name = words[0].removeprefix("nsqfast-").replace("-", "_")
            if name == "nsqd":
                words[:1] = [*program(name, self.implementation), *self.nsqd_flags]
            else:
                words[:1] = tool_command(name, "nsqfast")
        return words

    def translated(self, line):
        # In one pass: a real port may begin with the digits of another one of the page.
        line = re.sub(r"(?<=:)\d+\b", lambda port: str(self.places.get(port[0], port[0])), line)
        return re.sub(r"(?<![\w.])/(?=(?:data|backup)/)", f"{self.folder}/", line)

    def start(self, line, words):
        named = re.findall(r"-address=127\.0\.0\.1:(\d+)", line) if "nsqfast-nsqd " in line else []
        for port in named:  # one that is started again has the ports that it had
            words = [word.replace(f"127.0.0.1:{port}", "127.0.0.1:0") for word in words]
        tool = self.running[line] = Tool(words)
        if named:
            tool.wait_for(lambda tool: len(LISTENING.findall(tool.err)) == 2)
            found = dict(LISTENING.findall(tool.err))
            tcp, http = named
            self.places[tcp], self.places[http] = int(found[b"TCP"]), int(found[b"HTTP"])
        return ""

    def background(self, text):
        """The one whose command contains that."""
        (found,) = [tool for line, tool in self.running.items() if text in line]
        return found

    def kill(self, text):
        """And start it again."""
        (line,) = [line for line in self.running if text in line]
        self.running.pop(line).kill()
        self.run(line)
        if "nsqfast-nsqd " not in line:
            self.background(text).wait_for(lambda tool: b"subscribed" in tool.err)

    def http(self, port):
        return "127.0.0.1", self.places[port]

    def count(self, port, channel):
        """Messages that came to that channel since its nsqd began."""
        return topic_stats(self.http(port), "orders")["channels"][channel]["message_count"]

    def wait_left(self, port, channel, is_so):
        """Until that holds of depth and in-flight messages of a channel."""
        deadline_s = time.monotonic() + SECONDS_MAX
        while True:
            found = topic_stats(self.http(port), "orders")["channels"][channel]
            if is_so(found["depth"], found["in_flight_count"]):
                return
            said = {line: tool.err[-1000:] for line, tool in self.running.items()}
            assert time.monotonic() < deadline_s, (found, said)
            time.sleep(0.02)

    def sync(self, port, archive):
        """Until all has been finished; each file is closed, and the next message begins another."""
        tool = self.background(archive)
        tool.wait_for(lambda tool: b"subscribed" in tool.err)

        def has_all(depth, in_flight):
            tool.process.send_signal(signal.SIGHUP)
            return depth + in_flight == 0

        self.wait_left(port, "archive", has_all)

    def close(self):
        for tool in self.running.values():
            tool.kill()


@pytest.fixture(params=["nsqfast", pytest.param("go", marks=pytest.mark.go)])
def machines(request, tmp_path):
    one = Machines(tmp_path, request.param)
    yield one
    one.close()


def lose_all(machines):
    """Both machines; what the folder of each archive has is left."""
    for name in ("a", "b"):
        machines.background(f"--data-path=/data/{name}").kill()
        shutil.rmtree(machines.folder / "data" / name)


def take(address, topic, channel, count):
    """The bodies of that many messages."""
    bodies = []
    with Consumer(topic, channel, nsqd=address) as consumer:
        while len(bodies) < count:
            message = consumer.get(timeout_s=SECONDS_MAX)
            assert message is not None, f"{len(bodies)} of {count}"
            bodies.append(message.body)
            message.finish()
    return bodies


def publish_and_wait(machines, messages, *, is_synced=True):
    """Until the mirror has them, and both archives; what is in flight in an archive waits for its fsync."""
    places = (("4151", "mirror"), ("4151", "archive"), ("5151", "archive"))
    before = [machines.count(*place) for place in places]
    with Producer(f"127.0.0.1:{machines.places['4150']}") as producer:
        for start in range(0, len(messages), 500):
            producer.publish_many("orders", messages[start : start + 500])
    for place, count in zip(places, before, strict=True):
        # Until then the topic has them, not the channel.
        end = count + len(messages)
        eventually(lambda place=place, end=end: machines.count(*place) >= end)
    machines.wait_left("4151", "mirror", lambda depth, in_flight: depth + in_flight == 0)
    for port, archive in zip(("4151", "5151"), ARCHIVES, strict=True):
        machines.wait_left(port, "archive", lambda depth, _in_flight: depth == 0)
        if is_synced:
            machines.sync(port, archive)


@pytest.mark.soak
@pytest.mark.slow
@pytest.mark.timeout(180)
def test_both_machines_are_lost_and_every_message_comes_back(machines):
    for section in (1, 2, 3):
        for line in commands(section):
            machines.run(line)
    half = len(MESSAGES) // 2
    publish_and_wait(machines, MESSAGES[:half])
    # Two hours are two files, and each begins with the first message after its end.
    publish_and_wait(machines, MESSAGES[half:])
    for line in commands(4):
        header, _, figures = machines.run(line).splitlines()
        assert header.startswith("------rate------")
        assert len(figures.replace("|", " ").split()) == 11
    # The hour is over.
    for name in ("--output-dir=/backup/a", "--output-dir=/backup/b"):
        assert machines.background(name).end() == 0
    assert machines.background("nsq-to-nsq").end() == 0
    lose_all(machines)
    for name in ("a", "b"):
        folder = machines.folder / "backup" / f"{name}.work"
        assert not [path for path in folder.rglob("*") if path.is_file()]
        assert len(list((machines.folder / "backup" / name).iterdir())) >= 2

    dry_run, *rest = commands(6)
    assert f"{len(MESSAGES)}" in machines.run(dry_run).replace(",", "")
    *before, other_copy = rest
    for line in before:
        machines.run(line)
    address = f"127.0.0.1:{machines.places['6150']}"
    assert sorted(take(address, "orders", "workers", len(MESSAGES))) == MESSAGES

    post(machines.http("6151"), "/topic/create?topic=orders-again")
    post(machines.http("6151"), "/channel/create?topic=orders-again&channel=workers")
    machines.run(other_copy)
    assert sorted(take(address, "orders-again", "workers", len(MESSAGES))) == MESSAGES
    for topic in ("orders", "orders-again"):
        found = topic_stats(machines.http("6151"), topic)
        assert found["message_count"] == len(MESSAGES)


@pytest.mark.soak
@pytest.mark.slow
@pytest.mark.timeout(180)
def test_each_program_is_killed_once(machines):
    """What a killed archive left is named until it is started again; then nothing is missing."""
    machines.nsqd_flags = ["--msg-timeout=5s"]  # for Go's: there it is in flight until then
    for section in (1, 2, 3):
        for line in commands(section):
            machines.run(line)
    half = len(MESSAGES) // 2
    publish_and_wait(machines, MESSAGES[:half], is_synced=False)
    machines.kill("nsq-to-nsq")
    for archive in ARCHIVES:
        work = machines.translated(archive.removeprefix("--output-dir=")) + ".work"
        eventually(lambda work=work: any(Path(work).glob("*-000000.*")))
        machines.background(archive).kill()
    dry_run, *rest = commands(6)
    for name in ("a", "b"):
        words = tool_command("replay", "nsqfast")
        folder = machines.folder / "backup" / name
        folder.mkdir(exist_ok=True)
        named = subprocess.run([*words, "--dry-run", folder], capture_output=True, check=False)
        assert named.returncode == 3
        assert f"{folder}.work/orders." in named.stderr.decode()
    for archive in ARCHIVES:
        machines.kill(archive)
    # An nsqd that is killed loses what is in memory: nothing is.
    for port, archive in zip(("4151", "5151"), ARCHIVES, strict=True):
        machines.sync(port, archive)
    for name in ("a", "b"):
        machines.kill(f"--data-path=/data/{name}")
    publish_and_wait(machines, MESSAGES[half:])
    for archive in ARCHIVES:
        assert machines.background(archive).end() == 0
    assert machines.background("nsq-to-nsq").end() == 0
    lose_all(machines)

    assert "damaged" not in machines.run(dry_run)
    *before, replay, other_copy = rest
    for line in before:
        machines.run(line)
    slowly = replay.replace("--state=", "--batch-bytes=2000 --rate=2000 --state=")
    with Tool(machines.words(slowly)):
        eventually(lambda: topic_stats(machines.http("6151"), "orders")["message_count"])
    machines.run(replay)
    found = topic_stats(machines.http("6151"), "orders")["message_count"]
    address = f"127.0.0.1:{machines.places['6150']}"
    assert set(take(address, "orders", "workers", found)) == set(MESSAGES)

    post(machines.http("6151"), "/topic/create?topic=orders-again")
    post(machines.http("6151"), "/channel/create?topic=orders-again&channel=workers")
    machines.run(other_copy)
    found = topic_stats(machines.http("6151"), "orders-again")["message_count"]
    assert set(take(address, "orders-again", "workers", found)) == set(MESSAGES)
