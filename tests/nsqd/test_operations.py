"""docs/OPERATIONS.md: its commands are run as they stand, and what it says of them is so."""

import re
import shlex
import shutil
import subprocess

import pytest

from nsqfast.nsqd.main import main
from nsqfast.nsqd.options import Options
from nsqfast.program.options import declared
from nsqfast.tools.completion.programs import programs
from support.server import ROOT, Server, go_program, start_nsqd
from support.web import get, post, topic_stats

PAGE = (ROOT / "docs" / "OPERATIONS.md").read_text(encoding="utf-8")
SECTIONS = dict(re.findall(r"^## (.*?)\n(.*?)(?=^## |\Z)", PAGE, re.DOTALL | re.MULTILINE))
FLAG = re.compile(r"(?<![\w-])--([a-z][a-z0-9-]*)")
PLACES = {"127.0.0.1:4150": "127.0.0.1:0", "127.0.0.1:4151": "127.0.0.1:0"}


def commands_of(section):
    """The words of each command in a section's blocks of sh."""
    blocks = re.findall(r"```sh\n(.*?)```", SECTIONS[section], re.DOTALL)
    return [shlex.split(line) for block in blocks for line in block.splitlines()]


def placed(words, folder):
    """With a folder and ports of the test's own in place of those that the page names."""
    line = shlex.join(words)
    for named, real in {**PLACES, "/var/lib/nsq": str(folder)}.items():
        line = line.replace(named, real)
    return shlex.split(line)


def test_every_command_is_known():
    found = {section for section in SECTIONS if "```sh" in SECTIONS[section]}
    assert found == {
        "Before a start",
        "Taking a broker away",
        "Going back to Go, and coming again",
    }


def test_the_check_prints_the_lines_of_the_page(tmp_path, capsys):
    ((name, *words),) = commands_of("Before a start")
    assert name == "nsqfast-nsqd"
    assert main(placed(words, tmp_path)) == 0
    lines = capsys.readouterr().out.splitlines()
    shown = re.findall(
        r"^    (?:ok|warning|error) +(.+?): ", SECTIONS["Before a start"], re.MULTILINE
    )
    assert [re.sub(r"^\w+ +", "", line).partition(": ")[0] for line in lines] == shown


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is missing: apt install curl")
def test_the_drain_goes_as_the_page_says(tmp_path):
    with start_nsqd("nsqfast", tmp_path, "--http-drain") as broker:
        assert post(broker.http, "/topic/create?topic=t").status == 200
        assert post(broker.http, "/channel/create?topic=t&channel=c").status == 200
        assert post(broker.http, "/pub?topic=t", b"x").status == 200
        answers = []
        pings = []
        for words in commands_of("Taking a broker away"):
            here = f"127.0.0.1:{broker.http[1]}"
            command = [word.replace("127.0.0.1:4151", here) for word in words]
            done = subprocess.run([*command, "-s"], capture_output=True, timeout=20, check=True)
            answers.append(done.stdout.decode())
            pings.append(get(broker.http, "/ping").body)
    keys = re.findall(r'"(\w+)":', re.search(r"^    (\{.*\})$", PAGE, re.MULTILINE)[1])
    assert re.findall(r'"(\w+)":', answers[0]) == keys
    assert answers[1] == answers[0]
    held = '[{"topic":"t","channel":"c","messages":1,"reason":"no consumers"}]'
    assert answers[2] == f'{{"draining":false,"messages":1,"held":1,"held_by":{held}}}'
    assert pings == [b"NOK - draining", b"NOK - draining", b"OK"]


@pytest.mark.go
def test_to_go_and_back(tmp_path):
    ((name, *words),) = commands_of("Going back to Go, and coming again")
    command = [go_program(name), *placed(words, tmp_path)]
    with start_nsqd("nsqfast", tmp_path, "--mem-queue-size=0") as broker:
        assert post(broker.http, "/pub?topic=t", b"one").status == 200
    with Server(command) as go:
        assert topic_stats(go.http, "t")["depth"] == 1
        assert post(go.http, "/pub?topic=t", b"two").status == 200
    with start_nsqd("nsqfast", tmp_path) as broker:
        assert topic_stats(broker.http, "t")["depth"] == 2


def test_no_flag_is_named_that_there_is_not():
    known = {flag.name for program in programs() for flag in program.flags} | {"help"}
    assert set(FLAG.findall(PAGE)) - known == set()
    assert "max-memory" in {item.flag for item in declared(Options)} & set(FLAG.findall(PAGE))


def figure(report, start, column, load=""):
    """The first number in a cell of a report's table; `load` chooses among rows that begin alike."""
    text = (ROOT / "benchmarks" / "results" / report).read_text(encoding="utf-8")
    part = text.partition("## Cost per message\n")[2] if report == "REPORT.md" else text
    rows = [line for line in part.splitlines() if line.startswith(f"| {start} | {load}")]
    assert rows, start
    return float(rows[0].split(" | ")[column].split(" ")[0].replace(",", ""))


@pytest.mark.parametrize(
    ("row", "number", "start", "load"),
    [
        ("MPUB of 200", 0, "MPUB 200 × 200 B, 2 connections", "nsqfast-bench"),
        ("PUB, 100 in the air", 0, "PUB pipelined, 2 connections, 100 in the air", "nsqfast-bench"),
        ("PUB, 100 in the air", 1, "PUB one at a time, 50 connections", "nsqfast-bench"),
        ("SUB and FIN of a backlog", 0, "SUB + FIN of a backlog", "nsqfast-bench"),
        ("to disk / from disk", 0, "disk only, in", "nsqfast-bench"),
        ("to disk / from disk", 1, "disk only, out", "nsqfast-bench"),
        (
            "`--sync-every=1`, pipelined PUB",
            0,
            "--sync-every=1, PUB pipelined, 2 connections, 100 in the air",
            "nsqfast-bench",
        ),
        ("HTTP `/pub`", 0, "HTTP /pub, 32 keep-alive connections", "wrk"),
    ],
)
def test_what_a_message_costs_was_measured(row, number, start, load):
    """Rounded, and as far off as two runs of the benchmark are."""
    (line,) = re.findall(rf"^\| {re.escape(row)}.*$", SECTIONS["Sizing"], re.MULTILINE)
    shown = re.findall(r"[0-9.]+", line.split(" | ")[1])[number]
    assert float(shown) == pytest.approx(figure("REPORT.md", start, 2, load), rel=0.3)


@pytest.mark.parametrize(
    ("row", "number", "start", "unit"),
    [
        ("a topic, a channel", 0, "10,000 topics", 1000),
        ("a topic, a channel", 1, "10,000 channels of a topic", 1000),
        ("a queue on disk that is in use", 0, "9,500 queues on disk", 1000),
        ("a connection, a consumer", 0, "10,000 idle connections", 1000),
        ("a connection, a consumer", 1, "10,000 consumers of a channel", 1000),
        ("a message that waits in memory", 2, "1,000,000 messages of a backlog in memory", 1),
        ("a message that waits in memory", 4, "1,000 bytes in a message", 1),
        ("a message in flight", 1, "1,000,000 messages in flight", 1),
        ("a message in flight", 2, "10,000 messages in flight", 1),
        ("a message in flight", 3, "1,000,000 deferred messages", 1),
    ],
)
def test_what_things_take_in_memory_was_measured(row, number, start, unit):
    (line,) = re.findall(rf"^\| {re.escape(row)}.*$", SECTIONS["Sizing"], re.MULTILINE)
    shown = re.findall(r"\d[\d,.]*", line)[number].rstrip(",").replace(",", "")
    assert float(shown) * unit == pytest.approx(figure("GROWTH.md", start, 4), rel=0.3)
