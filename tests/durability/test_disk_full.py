"""No room for another byte: publishers are told, nothing that was accepted is lost."""

import os
import resource
import subprocess

import pytest

from support.lines import wait_for_ping
from support.prometheus import scrape
from support.server import start_nsqd
from support.waiting import eventually
from support.web import post, request, stats, topic_stats
from support.wire import ERROR, Client, encode_messages

BODY_SIZE = 4096
LIMIT_BYTES = 1 << 20
ATTEMPTS_MAX = 2000

RING_SIZE = 16 << 20
# Whether consumers keep up or not, what is published goes to a file, too.
ON_DISK = ("--mem-queue-size=0",)
ALWAYS = (*ON_DISK, "--durable=always", f"--commit-log-size={RING_SIZE}", "--max-body-size=2000000")

pytestmark = pytest.mark.slow


class FileSizeLimit:
    """No file of the broker may grow beyond the limit: 'file too large'."""

    words = ("too large",)

    def __init__(self, folder):
        self.folder = folder

    def prepare(self):
        resource.setrlimit(resource.RLIMIT_FSIZE, (LIMIT_BYTES, resource.RLIM_INFINITY))

    def make_room(self, server):
        unlimited = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
        resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, unlimited)

    def close(self):
        pass


class SmallFileSystem:
    """A file system of a few megabytes with a filler that is deleted later: 'no space left'."""

    words = ("no space left",)
    prepare = None

    def __init__(self, folder):
        self.folder = folder
        size = 3 * LIMIT_BYTES + RING_SIZE + 65536  # the log has a head, too
        command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
        done = subprocess.run(command, capture_output=True, check=False)
        if done.returncode:
            pytest.skip("not allowed to mount a small file system")
        (folder / "filler").write_bytes(bytes(2 * LIMIT_BYTES))

    def make_room(self, server):
        (self.folder / "filler").unlink()

    def close(self):
        subprocess.run(["umount", "-l", str(self.folder)], check=True)


DISKS = [(FileSizeLimit, ON_DISK), (SmallFileSystem, ON_DISK), (SmallFileSystem, ALWAYS)]


@pytest.fixture(params=DISKS, ids=["file-size", "small", "small-always"])
def disk(request, tmp_path):
    kind, flags = request.param
    made = kind(tmp_path)
    made.flags = (*flags, "--max-msg-size=1000000")
    if flags is ON_DISK and kind is SmallFileSystem:
        (tmp_path / "no ring").write_bytes(bytes(RING_SIZE + 65536))
    yield made
    made.close()


def fill(server, bodies):
    """Publishes until refused; returns what was accepted and the error."""
    accepted = []
    with Client(server.tcp) as client:
        for body in bodies:
            client.command("PUB", "t", body=body)
            frame = client.read_frame()
            if frame.kind == ERROR:
                assert client.read_to_end() == b""
                return accepted, frame.data.decode()
            assert frame.data == b"OK"
            accepted.append(body)
    raise AssertionError("never refused")


def publish(server, kind, body):
    """How many messages were accepted: all of them or none."""
    if kind.startswith("/"):
        many = body + b"\n" + body
        return (1 + (kind == "/mpub?")) * (
            request(
                server.http, "POST", f"{kind}topic=t", many if kind == "/mpub?" else body
            ).status
            == 200
        )
    with Client(server.tcp) as client:
        if kind == "MPUB":
            client.command("MPUB", "t", body=encode_messages([body, body]))
        else:
            client.command(kind, "t", *["60000"] * (kind == "DPUB"), body=body)
        return (1 + (kind == "MPUB")) * (client.read_frame().data == b"OK")


def test_full_disk(disk):
    bodies = [b"%06d" % number + os.urandom(BODY_SIZE) for number in range(ATTEMPTS_MAX)]
    with start_nsqd("nsqfast", disk.folder, *disk.flags, prepare=disk.prepare) as server:
        post(server.http, "/topic/create?topic=t")
        accepted, error = fill(server, bodies)
        assert 10 < len(accepted) < ATTEMPTS_MAX
        assert error.startswith("E_PUB_FAILED PUB failed ")
        assert any(word in error.lower() for word in disk.words)
        reason = wait_for_ping(server, 500)
        assert reason.startswith("NOK - ")
        assert stats(server.http)["health"] == reason
        for body in bodies[-3:]:  # refused every time, over HTTP as well
            answer = request(server.http, "POST", "/pub?topic=t", body)
            assert answer.status == 503
            told = answer.json()
            assert told["message"] == "DISK_FULL"
            assert any(word in told["reason"] for word in disk.words)
        counted = scrape(server.http).value("nsqd_publish_refused_total", reason="disk")
        assert counted == 4  # each error answers once
        disk.make_room(server)
        with Client(server.tcp) as client:
            client.pub("t", b"room again")
            wait_for_ping(server, 200)
            client.sub("t", "c", 100)
            got = []
            while b"room again" not in got:
                message = client.read_message()
                got.append(message.body)
                client.fin(message)
            client.barrier()
        assert set(accepted) <= set(got)
        # A refused message may be there whole or not at all, never in pieces.
        assert set(got) <= {*bodies, b"room again"}
    assert list(disk.folder.glob("*.bad")) == []


def test_accepted_messages_survive_a_restart_after_a_full_disk(disk):
    bodies = [b"%06d" % number + os.urandom(BODY_SIZE) for number in range(ATTEMPTS_MAX)]
    with start_nsqd("nsqfast", disk.folder, *disk.flags, prepare=disk.prepare) as server:
        accepted, _ = fill(server, bodies)
        disk.make_room(server)
        server.kill()
    with start_nsqd("nsqfast", disk.folder, *disk.flags) as server, Client(server.tcp) as client:
        client.pub("t", b"last")
        client.sub("t", "c", 100)
        missing = {*accepted, b"last"}
        while missing:
            message = client.read_message()
            missing.discard(message.body)
            client.fin(message)
        client.barrier()


@pytest.mark.parametrize("kind", ["PUB", "MPUB", "DPUB", "/pub?", "/mpub?", "/pub?defer=60000&"])
def test_what_was_accepted_is_counted_and_what_was_refused_is_logged_once(disk, kind):
    body = b"x" * BODY_SIZE
    with start_nsqd("nsqfast", disk.folder, *disk.flags, prepare=disk.prepare) as server:
        post(server.http, "/topic/create?topic=t")
        for name in "ab":
            post(server.http, f"/channel/create?topic=t&channel={name}")
        # Written a moment later, which on a busy machine may be when the disk is full.
        eventually(lambda: b'"b"' in (disk.folder / "nsqd.dat").read_bytes())
        accepted, refused = 0, 0
        while refused < 20:
            count = publish(server, kind, body)
            accepted += count
            refused += count == 0
        assert wait_for_ping(server, 500).startswith("NOK - ")
        found = topic_stats(server.http, "t")
        assert found["message_count"] == accepted
        assert found["message_bytes"] == accepted * BODY_SIZE
        for channel in found["channels"].values():
            assert channel["message_count"] == accepted
            assert channel["depth"] + channel["deferred_count"] == accepted
        disk.make_room(server)
        accepted += publish(server, kind, body)
        assert wait_for_ping(server, 200) == "OK"
        server.wait_for_line("DISK: writing works again after ")
        found = topic_stats(server.http, "t")
        assert found["message_count"] == accepted
        lines = [line for line in server.lines if " ERROR: " in line and "acks.dat" not in line]
        assert len(lines) == 1
        assert " ERROR: DISK: " in lines[0]
        assert any(word in lines[0] for word in disk.words)
