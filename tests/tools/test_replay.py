"""nsqfast-replay: what comes out of archives, which of it, and where it goes; with our nsqd and Go's."""

import gzip
import logging
import os
import re
import signal
import subprocess
import time
from typing import NamedTuple

import pytest

from nsqfast.client.sync import Producer
from nsqfast.tools.replay.main import main
from support.archives import json_line, lines, members, write_arrow, write_parquet
from support.drain import address_of, message_count
from support.server import start_nsqd
from support.tools import Tool, read_terminal, run_tool, tool_command
from support.topics import await_published, take
from support.waiting import eventually
from support.web import topic_stats

NSQD_FLAGS = ("--mem-queue-size=100000",)
BODIES = [b"%d " % i + b"x" * (i % 150) for i in range(2000)]
RAW = [b"%d " % i + b"\n\0\xff" * (i % 50) for i in range(2000)]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


class Done(NamedTuple):
    status: int
    out: str
    err: str


@pytest.fixture
def here(capsys):
    """Runs it without a process of its own, for what needs no signals; status and output."""
    log = logging.getLogger("nsqfast")
    before = log.handlers[:], log.propagate, log.level
    signals = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield lambda *words: Done(main([str(word) for word in words]), *capsys.readouterr())
    log.handlers[:], log.propagate, level = before
    log.setLevel(level)
    for number, handler in signals.items():
        signal.signal(number, handler)


@pytest.fixture
def replay(broker, here):
    """Its output, both, after it ended in that way; with an input it is a process of its own."""

    def run(*words, stdin=b"", status=0):
        where = f"--nsqd-tcp-address={address_of(broker)}"
        if stdin:
            ended = run_tool("replay", "nsqfast", where, *words, stdin=stdin)
            done = Done(ended.returncode, ended.stdout.decode(), ended.stderr.decode())
        else:
            done = here(where, *words)
        assert done.status == status, done
        assert "Traceback" not in done.err
        return done.out, done.err

    return run


def write(path, data):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


# -- formats


@pytest.mark.parametrize("packer", ["", "gzip", "zstd"])
@pytest.mark.parametrize("window", [1, 8])
def test_lines_in_order(broker, topic, folder, packer, window, replay):
    data = b"".join(members([lines(BODIES)], packer)) if packer else lines(BODIES)
    write(folder / "a.log", data)
    flags = (f"--topic={topic}", "--batch-bytes=3000", f"--window={window}")
    out, err = replay(*flags, folder / "a.log")
    assert out.startswith(
        f"2,000 messages of {sum(map(len, BODIES)):,} bytes from 1 file published"
    )
    assert err == ""
    assert take(broker, topic) == BODIES


@pytest.mark.parametrize("kind", ["jsonl", "parquet", "arrow"])
def test_other_formats_are_exact_and_say_their_topics(broker, topic, folder, kind, replay):
    path = folder / f"a.{kind}"
    topics = [topic, f"{topic}-b"]
    if kind == "jsonl":
        path.write_bytes(b"".join(json_line(i, body, topics[i % 2]) for i, body in enumerate(RAW)))
    else:
        {"parquet": write_parquet, "arrow": write_arrow}[kind](path, RAW, topics=topics)
    replay("--batch-bytes=5000", path)
    assert take(broker, topics[0]) == RAW[::2]
    assert take(broker, topics[1]) == RAW[1::2]


def test_stdin(broker, topic, folder, replay):
    replay(f"--topic={topic}", "-", stdin=b"one\n\ntwo\nlast")
    replay("--format=jsonl", "-", stdin=json_line(1, b"\0\xff", topic))
    assert take(broker, topic) == [b"one", b"two", b"last", b"\0\xff"]


def test_lines_that_come_through_a_pipe_are_sent_as_they_come(broker, topic):
    words = (f"--nsqd-tcp-address={address_of(broker)}", f"--topic={topic}", "-")
    with Tool(tool_command("replay", "nsqfast", *words)) as tool:
        for count in (1, 2):
            tool.process.stdin.write(b"line\n")
            tool.process.stdin.flush()
            await_published(broker, topic, count, tool)
        tool.process.stdin.close()
        assert tool.end(None) == 0


def test_a_folder_by_time_with_topics_from_the_names(broker, topic, folder, replay):
    for name, bodies in (("_09.log", BODIES[10:20]), ("_08.log", BODIES[:10])):
        write(folder / "d" / f"{topic}.h.2026-11-22{name}", lines(bodies))
    write(folder / "d" / f"{topic}.h.2026-11-22_10.log.gz", gzip.compress(lines(BODIES[20:30])))
    write(folder / "d" / "nsqd.dat", b"{}\n")
    out, err = replay(folder / "d")
    assert out.startswith("30 messages of ")
    assert "nsqd.dat: left out" in err
    assert take(broker, topic) == BODIES[:30]
    out, _ = replay(f"--topic={topic}-b", folder / "d" / "*_0?.log")
    assert take(broker, f"{topic}-b") == BODIES[:20]


def test_one_mib_messages(broker, topic, folder, replay):
    """As large as nsqd takes them."""
    bodies = [bytes([65 + i]) * (1 << 20) for i in range(5)]
    write(folder / "a.log", lines(bodies))
    write_parquet(folder / "a.parquet", [b"\n" * (1 << 20), b"\0" * (1 << 20)], topics=[topic])
    replay(f"--topic={topic}", folder / "a.log")
    replay(folder / "a.parquet")
    assert take(broker, topic) == [*bodies, b"\n" * (1 << 20), b"\0" * (1 << 20)]


# -- choosing


def test_topic_map(broker, topic, folder, replay):
    data = b"".join(json_line(i, b"%d" % i, "abc"[i % 3]) for i in range(9))
    write(folder / "a.jsonl", data)
    flags = (f"--topic-map=a:{topic}", f"--topic-map=b:{topic}", f"--topic-map=c:{topic}-c")
    replay(*flags, folder / "a.jsonl")
    assert take(broker, topic) == [b"0", b"1", b"3", b"4", b"6", b"7"]
    assert take(broker, f"{topic}-c") == [b"2", b"5", b"8"]


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_since_and_until_by_the_time_of_messages(broker, topic, folder, kind, replay):
    path = folder / f"{topic}.h.2020-01-01_00.{kind}"
    bodies = [b"%d" % i for i in range(100)]  # one a second, from 08:00:00
    if kind == "jsonl":
        path.write_bytes(b"".join(json_line(i, body, topic) for i, body in enumerate(bodies)))
    else:
        write_parquet(path, bodies, topics=[topic])
    out, _ = replay("--since=2025-11-22T08:00:10Z", "--until", "2025-11-22T09:00:20+01:00", path)
    assert take(broker, topic) == bodies[10:20]
    assert "90 messages are outside --since and --until" in out


def test_since_and_until_by_the_names_of_files(broker, topic, folder, here, replay):
    for hour in range(6, 12):
        body = b"%02d" % hour
        write(folder / f"{topic}.h.2026-11-22_{hour:02}.log", lines([body]))
    flags = ("--since=2026-11-22T07:30:00", "--until=2026-11-22T10:00:00Z")
    out, _ = replay(*flags, folder)
    # An hour of which a part was asked for is there whole.
    assert take(broker, topic) == [b"07", b"08", b"09"]
    assert "3 files are outside" in out
    out = here("--dry-run", *flags, "--datetime-zone=Europe/Berlin", folder).out
    assert [line.split()[-1][-6:-4] for line in out.splitlines() if ".log" in line] == [
        "08",
        "09",
        "10",
    ]


def test_a_message_without_a_time_is_named_when_times_are_asked_for(broker, topic, folder, replay):
    write(
        folder / "a.jsonl",
        b'{"body":"a","topic":"%s"}\n' % topic.encode() + json_line(1, b"b", topic),
    )
    _, err = replay("--since=2000-01-01", folder / "a.jsonl", status=3)
    assert "a.jsonl: byte 0: it has no timestamp_ns" in err
    assert take(broker, topic) == [b"b"]


def test_dedupe_by_body(broker, topic, folder, here, replay):
    """The pair of archives that two machines wrote of the same messages."""
    write(folder / "a.log", lines(BODIES[:500]) + lines(BODIES[:3]))
    write(folder / "b.log", lines(BODIES[250:750]))
    write(folder / "c.jsonl", b"".join(json_line(i, b, "other") for i, b in enumerate(BODIES[:4])))
    flags = ("--dedupe=body", "--batch-bytes=2000")
    out, _ = replay(*flags, f"--topic={topic}", folder / "a.log", folder / "b.log")
    assert take(broker, topic) == BODIES[:750]
    assert "253 duplicates were left out" in out
    # Another topic's are others, until both go to one.
    words = (folder / "c.jsonl", folder / "d.jsonl")
    write(words[1], b"".join(json_line(i, b, "more") for i, b in enumerate(BODIES[:4])))
    out = here("--dry-run", *flags, *words).out
    assert out.count("\n           4 ") == 2
    out = here("--dry-run", *flags, "--topic-map=other:more", *words).out
    assert "4 duplicates were left out" in out


def test_dedupe_by_id(broker, topic, folder, replay):
    first = [json_line(i, b"same", topic) for i in range(10)]
    write(folder / "a.jsonl", b"".join(first + first[:5]) + b'{"body":"no id"}\n' * 2)
    write_parquet(folder / "b.parquet", [b"same"] * 12, topics=[topic])
    out, _ = replay("--dedupe=id", f"--topic={topic}", folder / "a.jsonl", folder / "b.parquet")
    assert take(broker, topic) == [b"same"] * 10 + [b"no id"] * 2 + [b"same"] * 2
    assert "15 duplicates were left out" in out


def test_dedupe_in_bounded_memory_says_what_it_may_have_missed(folder, here):
    bodies = [b"%d" % i for i in range(100_000)]
    write(folder / "a.log", lines(bodies + bodies[-20_000:] + bodies[:1000]))
    flags = ("--dry-run", "--topic=t", "--dedupe=body", "--dedupe-memory=1048576")
    out = here(*flags, folder / "a.log").out
    # Near ones are found, however many there were; those at the far end are not.
    assert out.startswith("    MESSAGES")
    assert "20,000 duplicates were left out" in out
    assert "101,000 messages of" in out
    assert "more than 24,576 other messages came between" in out


def test_dry_run_counts_per_file_and_topic(folder, here):
    write(folder / "a.log", lines([b"12", b"345"]))
    write(folder / "b.jsonl", json_line(1, b"x", "one") + json_line(2, b"yy", "two"))
    status, out, err = here("--dry-run", "--topic-map=a:b", "--filename-format=<TOPIC>.log", folder)
    assert status == 0
    rows = [line.split() for line in out.splitlines()]
    assert rows[0] == ["MESSAGES", "BYTES", "TOPIC", "FILE"]
    assert [row[:3] for row in rows[1:4]] == [["2", "5", "b"], ["1", "1", "one"], ["1", "2", "two"]]
    assert [os.path.basename(row[3]) for row in rows[1:4]] == ["a.log", "b.jsonl", "b.jsonl"]
    assert rows[4] == ["4", "8", "total"]
    assert err == ""


def test_rate(broker, topic, folder, replay):
    write(folder / "a.log", lines(BODIES[:100]))
    begun_s = time.monotonic()
    replay(f"--topic={topic}", "--rate=100", folder / "a.log")
    assert 0.75 < time.monotonic() - begun_s < 10
    assert take(broker, topic) == BODIES[:100]


def test_settings_of_the_producer(broker, topic, folder, replay):
    write(folder / "a.log", lines(BODIES))
    opts = ("--producer-opt=deflate", "--producer-opt=deflate_level,1")
    replay(*opts, f"--topic={topic}", folder / "a.log")
    assert take(broker, topic) == BODIES


def test_spread_over_several_nsqd(broker, topic, folder, tmp_path_factory, replay):
    write(folder / "a.log", lines(BODIES))
    with start_nsqd("nsqfast", tmp_path_factory.mktemp("second")) as second:
        where = f"--nsqd-tcp-address={address_of(second)}"
        flags = (where, "--batch-bytes=2000", f"--topic={topic}")
        ours = f"--nsqd-tcp-address={address_of(broker)}"
        with Tool(tool_command("replay", "nsqfast", ours, *flags, "--mode=spread", "-")) as tool:
            pipe, first = tool.process.stdin, b"x" * 2000

            def is_connected_to_both():
                pipe.write(first + b"\n")
                pipe.flush()
                return all(message_count(each, topic) for each in (broker, second))

            eventually(is_connected_to_both)  # one of them takes all until then
            pipe.write(lines(BODIES))
            pipe.close()
            assert tool.end(None) == 0, tool.text
        found = [[body for body in take(each, topic) if body != first] for each in (broker, second)]
        assert min(map(len, found)) > 500
        assert sorted(found[0] + found[1]) == sorted(BODIES)
        before = message_count(second, topic)
        replay(*flags, "--mode=failover", folder / "a.log")
        assert take(broker, topic) == BODIES
        assert message_count(second, topic) == before


def test_progress_is_shown_on_a_terminal(broker, topic, folder):
    import pty

    write(folder / "a.log", lines(BODIES))
    main, other = pty.openpty()
    words = (f"--nsqd-tcp-address={address_of(broker)}", f"--topic={topic}", "--rate=4000")
    command = tool_command("replay", "nsqfast", *words, folder / "a.log")
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=other) as process:
        os.close(other)
        seen = read_terminal(main)
        os.close(main)
        assert process.wait(30) == 0
    assert re.search(rb"[0-9,]+ messages, [0-9,]+/s", seen), seen


# -- flags


def test_version_and_help(capsys):
    for word in ("--version", "--help"):
        with pytest.raises(SystemExit) as ended:
            main([word])
        assert ended.value.code == 0
    said = capsys.readouterr()
    assert said.out.startswith("nsqfast-replay v")
    assert "--dedupe-memory int" in said.out
    assert said.err == ""


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--nsqd-tcp-address=h:1"], "no files to replay"),
        (["a.log"], "--nsqd-tcp-address required"),
        (["--nsqd-tcp-address=nowhere", "--topic=t", "a.log"], "host:port"),
        (["--dry-run", "a.log"], "a.log: its name says no topic; --topic is required"),
        (["--dry-run", "--topic=no good", "a.log"], "no name of a topic"),
        (["--dry-run", "--topic=t", "gone.log"], "gone.log: no such file or directory"),
        (["--dry-run", "--topic=t", "a.log", "--rate=5"], "flags stand before the files"),
        (["--dry-run", "--topic=t", "--topic-map=a:b", "a.log"], "not both"),
        (["--dry-run", "--topic-map=ab", "a.log"], "is not <old>:<new>"),
        (["--dry-run", "--topic-map=a:b", "--topic-map=a:c", "a.log"], "a goes to b and to c"),
        (["--dry-run", "--topic=t", "--since=yesterday", "a.log"], "--since: 'yesterday' is no time"),
        (["--dry-run", "--topic=t", "--since=2026-01-02", "--until=2026-01-01", "a.log"], "nothing between"),
        (["--dry-run", "--topic=t", "--since=2026-01-02", "a.log"], "nor its name say a time"),
        (["--dry-run", "--topic=t", "--dedupe=id", "a.log"], "plain lines have no ids"),
        (["--dry-run", "--topic=t", "--dedupe=all", "a.log"], "--dedupe is 'all'"),
        (["--dry-run", "--topic=t", "--dedupe=body", "--dedupe-memory=1", "a.log"], "--dedupe-memory is at least"),
        (["--dry-run", "--topic=t", "--rate=-1", "a.log"], "--rate"),
        (["--dry-run", "--topic=t", "--batch-bytes=0", "a.log"], "--batch-bytes"),
        (["--dry-run", "--topic=t", "--window=0", "a.log"], "--window"),
        (["--dry-run", "--topic=t", "--datetime-zone=Mars", "a.log"], "no time zone"),
        (["--dry-run", "--topic=t", "--state=s", "-"], "stdin cannot be read again"),
        (["--dry-run", "--topic=t", "--format=parquet", "-"], "give parquet as a file"),
        (["--nsqd-tcp-address=h:1", "--topic=t", "--state=gone/s", "a.log"], "--state: gone/s: unable to open"),
        (["--nsqd-tcp-address=h:1", "--topic=t", "--state=a.log", "a.log"], "--state: a.log: file is not a database"),
    ],
)  # fmt: skip
def test_what_cannot_be_done_is_one_line_and_status_1(folder, here, words, text):
    write(folder / "a.log", lines([b"some text that is no database"] * 10))
    done = here(*words)
    assert done.status == 1, done
    (line,) = done.err.splitlines()
    assert text in line
    assert done.out == ""


@pytest.mark.parametrize(
    "word", ["--nonsense", "--rate=x", "--producer-opt=bogus,1", "--retry-for=5"]
)
def test_what_cannot_be_read_is_status_2(here, word):
    done = here(word, "a.log")
    assert done.status == 2
    assert done.err.splitlines()[1:] == ["see nsqfast-replay --help"]


def test_nobody_reads_the_summary(folder):
    """A pipe that is closed is no error; a disk that is full is one."""
    write(folder / "a.log", lines(BODIES))
    command = tool_command("replay", "nsqfast", "--dry-run", "--topic=t", folder / "a.log")
    read, closed = os.pipe()
    os.close(read)
    done = subprocess.run(command, stdout=closed, stderr=subprocess.PIPE, timeout=30, check=False)
    os.close(closed)
    assert (done.returncode, done.stderr) == (0, b"")
    with open("/dev/full", "wb") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, timeout=30, check=False)
    assert done.returncode == 1
    assert b"could not be written" in done.stderr


def test_sigint_is_heeded_as_sigterm_is(broker, topic, folder):
    write(folder / "a.log", lines(BODIES))
    words = (f"--nsqd-tcp-address={address_of(broker)}", f"--topic={topic}", "--rate=100")
    with Tool(tool_command("replay", "nsqfast", *words, folder / "a.log")) as tool:
        await_published(broker, topic, 1, tool)
        assert tool.end(signal.SIGINT) == 1
        assert b"told to stop before all was published" in tool.err
    assert take(broker, topic) == BODIES[: int(tool.out.split()[0].replace(b",", b""))]


# -- what nsq_to_file writes


def archived(broker, topic, bodies, folder, tool, *flags, number=signal.SIGTERM):
    """They are published, go to files, and are finished; then the tool ends by that signal."""
    with Producer(address_of(broker)) as producer:
        producer.publish_many(topic, bodies)
    where = (f"--nsqd-tcp-address={address_of(broker)}", f"--topic={topic}")
    words = (*where, f"--output-dir={folder}", "--max-in-flight=2500", "--sync-interval=200ms")

    def is_done():
        channel = topic_stats(broker.http, topic)["channels"].get("nsq_to_file")
        clients = channel["clients"] if channel else []
        # What Go's nsqd says of one channel is not of one moment: all may seem to be gone before the first was sent.
        return sum(client["finish_count"] for client in clients) >= len(bodies)

    with Tool(tool_command("nsq_to_file", tool, *words, *flags)) as running:
        eventually(is_done, 20)
        running.end(number)


@pytest.mark.parametrize(
    ("tool", "flags"),
    [
        ("nsqfast", ()),
        ("nsqfast", ("--gzip",)),
        ("nsqfast", ("--compression=zstd", "--rotate-size=20000")),
        ("nsqfast", ("--format=jsonl", "--gzip")),
        ("nsqfast", ("--format=parquet", "--compression=zstd")),
        ("nsqfast", ("--format=arrow", "--compression=zstd")),
        pytest.param("go", (), marks=pytest.mark.go),
        pytest.param("go", ("--gzip", "--rotate-size=20000"), marks=pytest.mark.go),
    ],
)
def test_files_of_nsq_to_file(broker, topic, folder, tool, flags, replay):
    archived(broker, topic, BODIES, folder / "d", tool, *flags)
    out, err = replay(f"--topic-map={topic}:{topic}-b", folder / "d")
    assert err == ""
    assert sorted(take(broker, f"{topic}-b")) == sorted(BODIES), out


@pytest.mark.parametrize("form", ["parquet", "jsonl"])
def test_files_of_an_nsq_to_file_that_was_killed(broker, topic, folder, form, replay):
    """What it had finished is there, in whatever files it was."""
    flags = (f"--format={form}", "--compression=gzip")
    archived(broker, topic, RAW, folder / "d", "nsqfast", *flags, number=signal.SIGKILL)
    replay(f"--topic-map={topic}:{topic}-b", folder / "d")
    assert sorted(take(broker, f"{topic}-b")) == sorted(RAW)
