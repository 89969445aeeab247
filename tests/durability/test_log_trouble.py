"""Trouble with the commit log of a real nsqd: writes that fail, a full disk, files that are damaged or not its own."""

import shutil
import signal
import subprocess

import pytest

from durability.crash import modes
from models.commit_ring import crc32c
from support.bad_writes import SHORT, SYNC, WRITE, BadWrites
from support.lines import complaints, wait_for_ping
from support.server import ROOT, program, start_nsqd
from support.small_disk import small_disk
from support.waiting import eventually
from support.web import post, request, topic_stats
from support.wire import ERROR, Client

MEBIBYTE = 1 << 20
RING_SIZE = 16 * MEBIBYTE
LARGE_SIZE = 100_000
LOG = "nsqd.commitlog"
QUARTERS = tuple(f"{LOG}/{number}.ring" for number in range(4))
REFUSED = "the commit log cannot be written"

pytestmark = pytest.mark.slow
in_both_modes = pytest.mark.parametrize(
    "mode", [modes.ALWAYS, modes.INTERVAL], ids=lambda mode: mode.name
)


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "data"
    folder.mkdir()
    return folder


@pytest.fixture
def bad(tmp_path):
    return BadWrites(tmp_path)


def numbered(*numbers):
    return [b"%05d" % number for number in numbers]


def publish(server, bodies):
    """All are answered with OK."""
    post(server.http, "/topic/create?topic=t")
    post(server.http, "/channel/create?topic=t&channel=c")
    with Client(server.tcp) as client:
        for body in bodies:
            client.pub("t", body)


def refusal(server, body=b"refused", topic="t"):
    """What a publisher is told; each time, so it is the same over HTTP."""
    with Client(server.tcp) as client:
        client.command("PUB", topic, body=body)
        frame = client.read_frame()
        return frame.data.decode() if frame.kind == ERROR else ""


def take(server, count):
    """Finish so many messages; return their bodies."""
    with Client(server.tcp) as client:
        client.sub("t", "c", 1)
        messages = []
        for _ in range(count):
            messages.append(client.read_message())
            client.fin(messages[-1])
        client.ask("CLS")
    return {message.body for message in messages}


def depth(server):
    channel = topic_stats(server.http, "t")["channels"]["c"]
    return channel["depth"] + channel["in_flight_count"] + channel["deferred_count"]


def drain(server):
    """Finish what is there; return the bodies."""
    return take(server, depth(server))


def go_round(server, size=2 * RING_SIZE):
    """Publish and finish so much that the log is written over."""
    with Client(server.tcp) as client, Client(server.tcp) as consumer:
        consumer.sub("round", "c", 1)
        for number in range(size // LARGE_SIZE):
            body = (b"%05d." % number).ljust(LARGE_SIZE, b"x")
            client.pub("round", body)
            consumer.fin(consumer.read_message())
        consumer.ask("CLS")


def end(server, status):
    """A clean stop, with what it says at the end."""
    before = len(complaints(server))
    server.process.send_signal(signal.SIGTERM)
    assert server.process.wait(50) == status, server.stderr
    server.kill()
    return complaints(server)[before:]


@in_both_modes
def test_the_first_publish_of_a_start_waits_for_nothing_else(folder, mode):
    """Its answer came with the next heartbeat."""
    for _ in range(2):
        with start_nsqd("nsqfast", folder, *mode.flags) as server:
            with Client(server.tcp) as client:
                client.identify(heartbeat_interval=-1)
                client.pub("t", b"first")
            server.kill()


@in_both_modes
@pytest.mark.parametrize("what", [WRITE, SHORT])
def test_a_quarter_that_fails(folder, bad, mode, what):
    """What was being written goes to the next one, and every OK counts; the bad one is never written again."""
    with bad.nsqd(folder, *mode.flags) as server:
        publish(server, numbered(*range(20)))
        bad.fail(QUARTERS[:1], what)
        publish(server, [body.ljust(5000) for body in numbered(*range(20, 40))])
        bad.heal()
        failed = (folder / QUARTERS[0]).read_bytes()
        assert refusal(server, b"00040") == ""
        wait_for_ping(server, 200)
        take(server, 41)
        go_round(server)
        server.kill()
    assert (folder / QUARTERS[0]).read_bytes() == failed
    assert (folder / QUARTERS[1]).read_bytes().count(b"x") > MEBIBYTE
    with start_nsqd("nsqfast", folder, *mode.flags) as server:
        publish(server, numbered(*range(50, 60)))
        go_round(server)
        server.kill()
    assert (folder / QUARTERS[0]).read_bytes() == failed


@in_both_modes
def test_all_quarters_fail(folder, bad, mode):
    """No publish is taken until a restart, consumers go on; what was refused may be there, or not."""
    with bad.nsqd(folder, *mode.flags) as server:
        publish(server, numbered(*range(100)))
        bad.fail(QUARTERS)
        assert f"E_PUB_FAILED PUB failed {REFUSED}" in refusal(server, b"first")
        bad.heal()
        assert f"E_PUB_FAILED PUB failed {REFUSED}" in refusal(server, b"second")
        answer = request(server.http, "POST", "/pub?topic=t", b"third")
        assert (answer.status, REFUSED in answer.text) == (503, True)
        assert wait_for_ping(server, 500).startswith("NOK - ")
        done = take(server, 50)
        assert done <= {*numbered(*range(100)), b"first"}
        wait_for_ping(server, 500)
        lines = end(server, 1)
        assert any("COMMIT LOG: it was not closed" in line for line in lines), lines
    with start_nsqd("nsqfast", folder, *mode.flags) as server:
        wait_for_ping(server, 200)
        publish(server, [b"last"])
        assert {*numbered(*range(100)), b"last"} <= drain(server) | done


@in_both_modes
def test_a_sync_that_fails(folder, bad, mode):
    """It is not tried again: with `interval` the log has failed; with `always` no sync may be needed at all."""
    with bad.nsqd(folder, *mode.flags, "--durable-interval=10ms") as server:
        publish(server, numbered(*range(100)))
        bad.fail([f"{LOG}/head", *QUARTERS], SYNC)
        if mode is modes.INTERVAL:
            eventually(lambda: REFUSED in refusal(server, b"tried"))
            assert wait_for_ping(server, 500).startswith("NOK - ")
            bad.heal()
            assert REFUSED in refusal(server, b"tried")
        server.kill()
    with start_nsqd("nsqfast", folder, *mode.flags) as server:
        wait_for_ping(server, 200)
        assert set(numbered(*range(100))) <= drain(server)


@pytest.fixture
def full(folder):
    """A disk with a file that takes all that is left beside the log, until it is removed."""
    with small_disk(folder, RING_SIZE + 4 * MEBIBYTE):
        yield folder / "filler"


def fill(filler):
    with filler.open("wb", buffering=0) as file:
        try:
            while file.write(bytes(4096)):
                pass
        except OSError:
            pass


@in_both_modes
def test_no_room_for_checkpoints(folder, full, mode):
    """Publishes are taken up to 75 % of the log, consumers go on, and publishes are taken again by themselves."""
    with start_nsqd("nsqfast", folder, *mode.flags) as server:
        publish(server, numbered(*range(100)))
        fill(full)
        count, told = 0, ""
        with Client(server.tcp) as consumer:
            consumer.sub("large", "c", 1)
            while not told:
                told = refusal(server, b"x" * LARGE_SIZE, topic="large")
                if not told:
                    consumer.fin(consumer.read_message())
                    count += 1
            consumer.ask("CLS")
        assert 0.5 * RING_SIZE < count * LARGE_SIZE < 0.8 * RING_SIZE
        assert "the commit log is full, and there is no checkpoint: no space left on device" in told
        assert take(server, 40) == set(numbered(*range(40)))
        full.unlink()
        eventually(lambda: refusal(server, b"x", topic="large") == "")
        server.wait_for_line("COMMIT LOG: checkpoints work again")
        go_round(server)
        server.kill()
    with start_nsqd("nsqfast", folder, *mode.flags) as server:
        assert set(numbered(*range(40, 100))) <= drain(server)


@in_both_modes
def test_a_stop_on_a_full_disk(folder, full, mode):
    """What finds no room in the files stays in the log."""
    bodies = [body.ljust(1000) for body in numbered(*range(500))]
    with start_nsqd("nsqfast", folder, *mode.flags) as server:
        publish(server, bodies)
        fill(full)
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(50) == 1
        server.kill()
        assert any("COMMIT LOG: it was not closed" in line for line in complaints(server)), (
            server.stderr
        )
    full.unlink()
    with start_nsqd("nsqfast", folder, *mode.flags) as server:
        assert set(bodies) <= drain(server)


def refuse_start(folder, *flags):
    """The only line that a start says which is refused."""
    command = [*program("nsqd", "nsqfast"), f"--data-path={folder}", "--tcp-address=127.0.0.1:0"]
    command += ["--http-address=127.0.0.1:0", "--broadcast-address=127.0.0.1", *flags]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=50, check=False, cwd=ROOT
    )
    assert done.returncode == 1, done.stderr
    lines = [line for line in done.stderr.splitlines() if " INFO: " not in line]
    assert len(lines) == 1, done.stderr
    return lines[0]


def damage_carried(log):
    data = bytearray((log / "carried").read_bytes())
    data[-20] ^= 1
    (log / "carried").write_bytes(data)


def damage_head(log):
    (log / "head").write_bytes(bytes(8192))


def make_newer(log):
    data = bytearray((log / "head").read_bytes())
    for at in (0, 4096):
        data[at + 8] = 2
        data[at : at + 4] = crc32c(bytes(data[at + 4 : at + 4096])).to_bytes(4, "little")
    (log / "head").write_bytes(data)


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (damage_carried, "carried is damaged"),
        (damage_head, "head is damaged"),
        (lambda log: (log / "2.ring").unlink(), "2.ring is missing"),
        (make_newer, "a newer nsqfast wrote this commit log (format 2)"),
    ],
    ids=["carried", "head", "missing", "newer"],
)
@in_both_modes
def test_a_log_that_cannot_be_opened(folder, tmp_path, mode, damage, said):
    """It is refused in one line, also by a broker without a log, and a copy of before has all."""
    with start_nsqd("nsqfast", folder, *mode.flags) as server:
        publish(server, numbered(*range(50)))
        go_round(server)
        server.kill()
    carried = (folder / LOG / "carried").read_bytes()
    assert int.from_bytes(carried[-8:], "little") == crc32c(carried[:-16])
    shutil.copytree(folder, tmp_path / "copy")
    damage(folder / LOG)
    assert said in refuse_start(folder, *mode.flags)
    assert said in refuse_start(folder)
    if damage is damage_carried:  # a bit is flipped back
        damage(folder / LOG)
        with start_nsqd("nsqfast", folder, *mode.flags) as server:
            assert set(numbered(*range(50))) <= drain(server)
    # As from another machine, under other inodes.
    with start_nsqd("nsqfast", tmp_path / "copy", *mode.flags) as server:
        assert set(numbered(*range(50))) <= drain(server)


@in_both_modes
def test_a_second_process(folder, mode):
    with start_nsqd("nsqfast", folder, *mode.flags) as server:
        publish(server, numbered(*range(10)))
        for durable in ("always", "interval", "off"):
            assert "in use by" in refuse_start(folder, *mode.flags, f"--durable={durable}")
        publish(server, numbered(*range(10, 20)))
        server.kill()
    with start_nsqd("nsqfast", folder, *mode.flags) as server:
        assert drain(server) == set(numbered(*range(20)))


@in_both_modes
def test_a_log_that_is_too_small_for_a_request(folder, mode):
    """It keeps the size that it was made with."""
    with start_nsqd("nsqfast", folder, *mode.flags) as server:
        publish(server, numbered(*range(10)))
        server.kill()
    larger = ("--max-body-size=8388608", "--commit-log-size=67108864")
    assert f"has {RING_SIZE} bytes" in refuse_start(folder, *mode.flags, *larger)
    with start_nsqd("nsqfast", folder, *mode.flags) as server:
        assert drain(server) == set(numbered(*range(10)))
        end(server, 0)
    shutil.rmtree(folder / LOG)
    with start_nsqd("nsqfast", folder, *mode.flags, *larger) as server:
        publish(server, numbered(*range(10, 20)))
        assert drain(server) == set(numbered(*range(10, 20)))
