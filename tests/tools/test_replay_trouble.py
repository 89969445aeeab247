"""nsqfast-replay in trouble: damaged files, nsqd that refuse, die or hang, and ends in the middle. Nothing is lost."""

import asyncio
import collections
import contextlib
import gzip
import itertools
import os
import re
import resource
import signal
import sqlite3
import time

import pytest

from support.archives import json_line, lines, members, write_parquet
from support.drain import address_of, message_count
from support.fake_nsqd import FakeNsqd
from support.ports import hold_port
from support.server import start_nsqd
from support.tools import Tool, run_tool, tool_command
from support.topics import await_published, take

pytestmark = pytest.mark.soak

NSQD_FLAGS = ("--mem-queue-size=1000000", "--max-msg-size=5000", "--max-body-size=20000")
BODIES = [b"%d " % i + b"x" * (i % 150) for i in range(2000)]
BATCH_BYTES = 3000
SECONDS_MAX = 50


@pytest.fixture
def archive(tmp_path):
    """2,000 messages in 100 batches and more."""
    path = tmp_path / "a.log"
    path.write_bytes(lines(BODIES))
    return path


def words_for(address, topic, *words):
    return [
        f"--nsqd-tcp-address={address}",
        f"--topic={topic}",
        f"--batch-bytes={BATCH_BYTES}",
        *words,
    ]


def replay(broker, topic, *words, status):
    done = run_tool("replay", "nsqfast", *words_for(address_of(broker), topic, *words))
    out, err = done.stdout.decode(), done.stderr.decode()
    assert done.returncode == status, out + err
    assert "Traceback" not in err
    return out, err


def begin(broker, topic, *words, **more):
    address = broker if isinstance(broker, str) else address_of(broker)
    return Tool(tool_command("replay", "nsqfast", *words_for(address, topic, *words)), **more)


def counted(broker, topic):
    """How often each message is there."""
    return collections.Counter(take(broker, topic))


def doubled(found):
    """Those that are there twice, as many as that; all of BODIES are there."""
    assert set(found) == set(BODIES)
    assert max(found.values()) <= 2
    return [body for body in BODIES if found[body] == 2]


def fits_a_batch(bodies):
    """Neighbours in the archive, as many as one batch has."""
    if not bodies:
        return True
    first = BODIES.index(bodies[0])
    size = sum(4 + len(body) for body in bodies)
    return bodies == BODIES[first : first + len(bodies)] and size <= BATCH_BYTES


def test_what_is_unfinished_is_named(broker, topic, tmp_path):
    """One that is being written is no damage."""
    folder, work = tmp_path / "in", tmp_path / "in.work"
    for one in (folder, work, tmp_path / "other"):
        one.mkdir()
        (one / "t.a-000000.2026-11-22_08.log").write_bytes(b"body\n")
    out, err = replay(broker, topic, folder, status=3)
    assert out.startswith("1 messages of ")
    assert "1 files are unfinished" in out
    assert f"{work}/t.a-000000.2026-11-22_08.log: left out, unfinished" in err
    _, err = replay(broker, topic, f"--work-dir={tmp_path / 'other'}", folder / "t*", status=3)
    assert f"{tmp_path}/other/t.a-000000.2026-11-22_08.log: left out, unfinished" in err
    replay(broker, topic, folder, work, status=0)
    with (work / "t.a-000000.2026-11-22_08.log").open("ab"):
        _, err = replay(broker, topic, folder, status=0)
        assert "nsq_to_file is writing it" in err


# -- damaged files: named, status 3, and the rest is published


def test_damage_of_every_kind_is_named(broker, topic, tmp_path):
    good = json_line(1, b"good", topic)
    (tmp_path / "a.log.gz").write_bytes(
        gzip.compress(lines(BODIES[:9])) + gzip.compress(b"torn")[:-9]
    )
    (tmp_path / "b.log.zst").write_bytes(
        b"".join(members([lines(BODIES[9:12]), b"x" * 99], "zstd"))[:-3]
    )
    (tmp_path / "c.jsonl").write_bytes(good + b"{torn\n" + good + b'{"body":""}\n')
    (tmp_path / "d.log").write_bytes(b"whole\ntorn")
    write_parquet(tmp_path / "e.parquet", BODIES)
    with open(tmp_path / "e.parquet", "r+b") as file:
        file.truncate(os.path.getsize(tmp_path / "e.parquet") - 5)
    out, err = replay(broker, topic, tmp_path, status=3)
    expected = collections.Counter([*BODIES[:12], b"good", b"good", b"whole"])
    assert counted(broker, topic) == expected
    # Everything has its file and its place.
    for text in (
        "a.log.gz: byte",
        "b.log.zst: byte",
        f"c.jsonl: byte {len(good)}: ",
        f"c.jsonl: byte {2 * len(good) + 6}: an empty body",
        "d.log: byte 6: torn: 4 bytes",
        "e.parquet: its footer: damaged Parquet",
    ):
        assert text in err
    assert out.startswith("15 messages of ")
    assert "6 damaged or refused records were left out" in out
    out, _ = replay(broker, topic, "--unterminated=publish", tmp_path / "d.log", status=0)
    assert out.startswith("2 messages")


def test_messages_that_nsqd_does_not_take_are_named_and_the_others_stay_in_order(
    broker, topic, tmp_path
):
    bodies = [b"%d " % i + b"y" * (6000 if i % 100 == 7 else i % 90) for i in range(1000)]
    path = tmp_path / "a.log"
    path.write_bytes(lines(bodies))
    out, err = replay(broker, topic, path, status=3)
    assert take(broker, topic) == [body for body in bodies if len(body) <= 5000]
    assert "10 damaged or refused records" in out
    named = re.findall(r"a\.log: byte (\d+): a message of 600\d bytes; nsqd takes 5000", err)
    assert [path.read_bytes()[int(place) :].split(b" ")[0] for place in named] == [
        b"%d" % i for i in range(7, 1000, 100)
    ]


def test_batches_that_nsqd_does_not_take_are_made_smaller(broker, topic, archive):
    out, _ = replay(broker, topic, "--batch-bytes=100000", archive, status=0)
    assert take(broker, topic) == BODIES
    assert "sent again" not in out


# -- nsqd that are not there, die, refuse, or hang


def test_nsqd_comes_later(implementation, topic, archive, tmp_path):
    port = hold_port()
    with begin(f"127.0.0.1:{port}", topic, archive) as tool:
        tool.wait_for(lambda tool: b"connection refused" in tool.err)
        with start_nsqd(implementation, tmp_path, f"--tcp-address=127.0.0.1:{port}") as broker:
            assert tool.end(None) == 0
            assert counted(broker, topic) == collections.Counter(BODIES)


def test_nsqd_never_comes(topic, archive):
    began_s = time.monotonic()
    with begin(f"127.0.0.1:{hold_port()}", topic, "--retry-for=1s", archive) as tool:
        assert tool.end(None) == 1
        assert time.monotonic() - began_s < SECONDS_MAX
        assert b"no connection in time" in tool.err
        assert b"see --retry-for" in tool.err
        assert tool.out.startswith(b"0 messages")


def test_nsqd_is_killed_and_comes_back(implementation, topic, archive, tmp_path):
    """What it has answered is on its disk; what it has not is sent again."""
    port = hold_port()
    flags = (f"--tcp-address=127.0.0.1:{port}", "--mem-queue-size=0", "--sync-every=1")
    broker = start_nsqd(implementation, tmp_path, *flags)
    archive.write_bytes(lines(BODIES[:400]))  # an fsync each
    with begin(broker, topic, "--rate=400", archive) as tool:
        await_published(broker, topic, 100, tool)
        broker.kill()
        tool.wait_for(lambda tool: b"lost" in tool.err)
        with start_nsqd(implementation, tmp_path, *flags) as again:
            assert tool.end(None) == 0
            found = take(again, topic, linger_s=0.5)
    assert set(found) == set(BODIES[:400])


def test_another_nsqd_takes_over(implementation, broker, topic, archive, tmp_path):
    with start_nsqd(implementation, tmp_path) as first:
        where = f"--nsqd-tcp-address={address_of(broker)}"
        with begin(first, topic, where, "--rate=1000", archive) as tool:
            await_published(first, topic, 300, tool)
            before = message_count(first, topic)
            first.stop()
            first._killed = True
            assert tool.end(None) == 0
    with start_nsqd(implementation, tmp_path) as first:
        here, there = counted(first, topic), counted(broker, topic)
    assert before <= sum(here.values()) < 2000
    assert set(here + there) == set(BODIES)


def test_a_refusal_that_no_retry_mends(archive):
    """It ends at once, with nsqd's words."""

    async def refuse(peer):
        await peer.greet()
        await peer.expect("MPUB")
        peer.refuse("E_UNAUTHORIZED AUTH failed for MPUB on t")
        await peer.read_to_end()

    async def replay_to_it():
        async with FakeNsqd(refuse) as nsqd:
            command = tool_command("replay", "nsqfast", *words_for(nsqd.address, "t", archive))
            process = await asyncio.create_subprocess_exec(*command, stderr=asyncio.subprocess.PIPE)
            async with asyncio.timeout(SECONDS_MAX):
                _, err = await process.communicate()
            return process.returncode, err

    status, err = asyncio.run(replay_to_it())
    assert status == 1
    assert b"topic t: E_UNAUTHORIZED AUTH failed for MPUB on t" in err


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_told_to_stop_while_nsqd_hangs(implementation, topic, archive, tmp_path, number):
    with (
        start_nsqd(implementation, tmp_path) as broker,
        begin(broker, topic, "--rate=1000", archive) as tool,
    ):
        await_published(broker, topic, 300, tool)
        with broker.frozen():
            began_s = time.monotonic()
            assert tool.end(number) == 1
            assert time.monotonic() - began_s < 5
        assert b"told to stop before all was published" in tool.err


# -- ends in the middle


def count_of(out):
    return int(re.match(rb"([0-9,]+) messages", out)[1].replace(b",", b""))


def test_sigterm_in_the_middle_then_on_from_there(broker, topic, archive, tmp_path):
    """What was answered counts, so that nothing is there twice."""
    state = tmp_path / "state"
    with begin(broker, topic, f"--state={state}", "--rate=1000", archive) as tool:
        await_published(broker, topic, 300, tool)
        assert tool.end(signal.SIGTERM) == 1
        first = count_of(tool.out)
    assert message_count(broker, topic) == first
    assert 300 <= first < 2000
    out, _ = replay(broker, topic, f"--state={state}", archive, status=0)
    assert count_of(out.encode()) == 2000 - first
    assert counted(broker, topic) == collections.Counter(BODIES)
    out, _ = replay(broker, topic, f"--state={state}", archive, status=0)
    assert out.startswith("0 messages")
    assert "1 files were published before" in out


@pytest.mark.parametrize("kind", ["log", "log.gz", "jsonl", "parquet"])
def test_kill_9_again_and_again_with_state(broker, topic, tmp_path, kind):
    """Everything is there, and after each kill at most one batch twice."""
    state, path = tmp_path / "state", tmp_path / f"a.{kind}"
    if kind == "jsonl":
        path.write_bytes(b"".join(itertools.starmap(json_line, enumerate(BODIES))))
    elif kind == "parquet":
        write_parquet(path, BODIES, group_rows=300)
    else:
        blocks = [lines(BODIES[at : at + 100]) for at in range(0, 2000, 100)]
        path.write_bytes(b"".join(members(blocks, "gzip") if kind == "log.gz" else blocks))
    kills = 0
    while True:
        with begin(broker, topic, f"--state={state}", "--rate=1500", path) as tool:
            before = message_count(broker, topic)
            if kills == 4:
                assert tool.end(None) == 0, tool.text
                break
            await_published(broker, topic, before + 100 + 37 * kills, tool)
            tool.end(signal.SIGKILL)
            kills += 1
    twice = doubled_by_runs(counted(broker, topic))
    assert len(twice) <= kills
    assert all(fits_a_batch(run) for run in twice)


def doubled_by_runs(found):
    """Those that are there twice, neighbours together. (A batch may begin where another one ended: count that, too.)"""
    runs = []
    for body in doubled(found):
        index = BODIES.index(body)
        if runs and BODIES.index(runs[-1][-1]) == index - 1 and fits_a_batch([*runs[-1], body]):
            runs[-1].append(body)
        else:
            runs.append([body])
    return runs


def test_kill_9_without_state(broker, topic, archive):
    """From the start again: more than once, and all of it."""
    with begin(broker, topic, "--rate=1000", archive) as tool:
        await_published(broker, topic, 300, tool)
        tool.end(signal.SIGKILL)
    replay(broker, topic, archive, status=0)
    assert set(counted(broker, topic)) == set(BODIES)


def test_a_killed_run_with_dedupe_still_knows_what_came_before(broker, topic, tmp_path):
    state = tmp_path / "state"
    first, second = tmp_path / "1.log", tmp_path / "2.log"
    first.write_bytes(lines(BODIES[:1500]))
    second.write_bytes(lines(BODIES[500:]))
    flags = (f"--state={state}", "--dedupe=body", first, second)
    with begin(broker, topic, "--rate=1000", *flags) as tool:
        await_published(broker, topic, 300, tool)
        assert tool.end(signal.SIGTERM) == 1
    replay(broker, topic, *flags, status=0)
    assert counted(broker, topic) == collections.Counter(BODIES)


def test_damage_of_an_earlier_run_is_not_forgotten(broker, topic, tmp_path):
    path, state = tmp_path / "a.jsonl", tmp_path / "state"
    path.write_bytes(b"{torn\n" + b"".join(itertools.starmap(json_line, enumerate(BODIES))))
    with begin(broker, topic, f"--state={state}", "--rate=1000", path) as tool:
        await_published(broker, topic, 300, tool)
        assert tool.end(signal.SIGTERM) == 1
    out, err = replay(broker, topic, f"--state={state}", path, status=3)
    assert "1 were left out in earlier runs" in out
    assert err == ""


def test_state_of_files_that_grow_or_shrink(broker, topic, archive, tmp_path):
    flag = f"--state={tmp_path / 'state'}"
    replay(broker, topic, flag, archive, status=0)
    with archive.open("ab") as file:
        file.write(b"more\n")
    out, _ = replay(broker, topic, flag, archive, status=0)
    assert out.startswith("1 messages")
    archive.write_bytes(b"less\n")
    _, err = replay(broker, topic, flag, archive, status=1)
    assert "a.log: it had " in err
    assert counted(broker, topic) == collections.Counter([*BODIES, b"more"])


def test_state_belongs_to_its_flags_and_to_one_run(broker, topic, archive, tmp_path):
    state = tmp_path / "state"
    with begin(broker, topic, f"--state={state}", "--rate=100", archive) as tool:
        await_published(broker, topic, 1, tool)
        _, err = replay(broker, topic, f"--state={state}", archive, status=1)
        assert "another run uses it" in err
        tool.end()
    _, err = replay(broker, f"{topic}-b", f"--state={state}", archive, status=1)
    assert f"other flags: --topic was '{topic}'" in err
    with contextlib.closing(sqlite3.connect(state)) as database:
        database.executescript("UPDATE run SET format = 9")
    _, err = replay(broker, topic, f"--state={state}", archive, status=1)
    assert "another release (format 9)" in err


def test_the_disk_of_the_state_is_full(broker, topic, archive, tmp_path):
    """It ends there, and the next run goes on, with at most one batch twice."""
    state = tmp_path / "state"
    limit = (1 << 16, 1 << 16)
    with begin(
        broker,
        topic,
        f"--state={state}",
        archive,
        prepare=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, limit),
    ) as tool:
        assert tool.end(None) == 1, tool.text
        assert b"--state: " in tool.err
        assert 0 < count_of(tool.out) < 2000
    replay(broker, topic, f"--state={state}", archive, status=0)
    assert fits_a_batch(doubled(counted(broker, topic)))
