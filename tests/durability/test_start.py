"""What a broker finds at its start: a full disk, one that takes nothing, a list of topics that cannot be read. A stop
without room.
"""

import json
import signal
import subprocess
import sys

import pytest

from support.lines import wait_for_ping
from support.server import ROOT, start_nsqd
from support.small_disk import small_disk
from support.web import get, post, stats
from support.wire import Client

SIZE = 4 << 20
COUNT = 50


@pytest.fixture(name="small_disk")
def mounted(tmp_path):
    with small_disk(tmp_path, SIZE) as folder:
        yield folder


def fill(folder):
    """Not one byte is left."""
    with (folder / "filler").open("wb", buffering=0) as file:
        for size in (65536, 1):
            try:
                while file.write(bytes(size)):
                    pass
            except OSError:
                continue


def leave_messages(folder, *flags):
    """A channel with messages on disk, left by a broker that was killed."""
    with start_nsqd("nsqfast", folder, "--mem-queue-size=0", *flags) as server:
        post(server.http, "/topic/create?topic=t")
        for channel in ("c", "other"):
            post(server.http, f"/channel/create?topic=t&channel={channel}")
        post(server.http, "/channel/pause?topic=t&channel=other")
        with Client(server.tcp) as client:
            for number in range(COUNT):
                client.pub("t", b"%d" % number)
        server.kill()


def drain(server, channel):
    """All that the channel has, finished."""
    with Client(server.tcp) as client:
        client.sub("t", channel, COUNT)
        bodies = set()
        while len(bodies) < COUNT:
            message = client.read_message()
            bodies.add(message.body)
            client.fin(message)
        client.ask("CLS")
    assert bodies == {b"%d" % number for number in range(COUNT)}


def errors(server):
    return [line for line in server.lines if " ERROR: " in line or "Traceback" in line]


def test_a_full_disk(small_disk):
    """It starts with the list that it has, consumers get what is there, and room is noticed."""
    leave_messages(small_disk)
    before = (small_disk / "nsqd.dat").stat().st_ino
    fill(small_disk)
    with start_nsqd("nsqfast", small_disk, "--mem-queue-size=0") as server:
        (error,) = [line for line in errors(server) if "persist metadata" in line]
        assert error.endswith(" - no space left on device; tried again every second")
        assert "Traceback" not in server.stderr
        reason = wait_for_ping(server, 500)
        assert reason.endswith("no space left on device")
        assert stats(server.http)["health"] == reason
        assert (small_disk / "nsqd.dat").stat().st_ino == before
        assert post(server.http, "/channel/unpause?topic=t&channel=other").status == 500
        drain(server, "c")
        drain(server, "other")
        (small_disk / "filler").unlink()
        server.wait_for_line("metadata is persisted again")
        assert b'"paused":true' not in (small_disk / "nsqd.dat").read_bytes()
        assert post(server.http, "/pub?topic=t", b"x").status == 200
        wait_for_ping(server, 200)


def test_a_list_that_is_not_written_yet(small_disk):
    """There is no room for a list of more names than before."""
    leave_messages(small_disk)
    (small_disk / "nsqd.dat").write_bytes(b"")
    fill(small_disk)
    with start_nsqd("nsqfast", small_disk, "--mem-queue-size=0") as server:
        wait_for_ping(server, 500)
        drain(server, "c")
        (small_disk / "filler").unlink()
        server.wait_for_line("metadata is persisted again")
        (topic,) = json.loads((small_disk / "nsqd.dat").read_bytes())["topics"]
        assert [channel["name"] for channel in topic["channels"]] == ["c", "other"]
    assert (small_disk / "nsqd.dat.bad").read_bytes() == b""


def test_a_stop_that_cannot_keep_everything(small_disk):
    """One line says so, and the exit status does."""
    with start_nsqd("nsqfast", small_disk) as server:
        with Client(server.tcp) as client:
            client.mpub("t", [bytes(1000)] * 1000)
        fill(small_disk)
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(20) == 1
        server.kill()
        assert "Traceback" not in server.stderr
        assert " ERROR: stopped, but " in server.lines[-1]
        assert "no space left on device" in server.lines[-1]


@pytest.mark.parametrize("how", ["empty", "zeroed", "half", "garbage"])
def test_a_broken_list(tmp_path, how):
    leave_messages(tmp_path)
    path = tmp_path / "nsqd.dat"
    data = path.read_bytes()
    broken = {
        "empty": b"",
        "zeroed": bytes(len(data)),
        "half": data[: len(data) // 2],
        "garbage": bytes(255 - byte for byte in data),
    }[how]
    path.write_bytes(broken)
    with start_nsqd("nsqfast", tmp_path, "--mem-queue-size=0") as server:
        server.wait_for_line("the run before this one did not stop cleanly")
        warning, _ = [line for line in server.lines if " WARNING: " in line]
        assert (
            "1 topics and 2 channels were found by their files, none of them is paused" in warning
        )
        assert get(server.http, "/ping").status == 200
        drain(server, "c")
        drain(server, "other")  # a pause is lost with the list
    assert (tmp_path / "nsqd.dat.bad").read_bytes() == broken
    with start_nsqd("nsqfast", tmp_path) as server:
        assert not [line for line in server.lines if " WARNING: " in line]


def test_a_read_only_disk(small_disk):
    """Nothing that it accepts could be kept, so it does not start."""
    leave_messages(small_disk)
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    advice = "mount it for writing, or give --data-path another folder"
    said = f"failed to load metadata - {small_disk} cannot be written to - read-only file system"
    assert run_to_end(small_disk) == [f"{said}: {advice}"]


def test_a_folder_that_is_named_like_a_data_file(tmp_path):
    """Nothing of it is taken for a queue."""
    (tmp_path / "t:c.diskqueue.000000.dat").mkdir()
    (tmp_path / "t.diskqueue.000007.dat").mkdir()
    with start_nsqd("nsqfast", tmp_path) as server:
        assert stats(server.http)["topics"] == []
        assert errors(server) == []


def run_to_end(folder):
    """The texts of the lines that are no INFO."""
    command = [sys.executable, "-m", "nsqfast.nsqd.main", f"--data-path={folder}"]
    flags = ["--tcp-address=127.0.0.1:0", "--http-address="]
    done = subprocess.run(
        [*command, *flags], capture_output=True, text=True, timeout=20, cwd=ROOT, check=False
    )
    assert done.returncode == 1
    lines = [line for line in done.stderr.splitlines() if " INFO: " not in line]
    assert all(" FATAL: " in line for line in lines), done.stderr
    return [line.partition(" FATAL: ")[2] for line in lines]


@pytest.mark.parametrize("mode", ["always", "interval"])
def test_without_a_log_what_only_the_log_has_is_repeated(tmp_path, mode):
    """The first publish of a client that says nothing else, after kills with the log and without it."""
    flags = (f"--durable={mode}", "--commit-log-size=33554432")
    with start_nsqd("nsqfast", tmp_path, *flags) as server:
        with Client(server.tcp) as client:
            client.pub("t", b"1")
        assert post(server.http, "/pub?topic=t&defer=3000000", b"2").status == 200
        server.kill()
    for _ in range(2):
        with start_nsqd("nsqfast", tmp_path) as server:
            assert stats(server.http)["topics"][0]["depth"] == 2
            if any("is repeated and closed first" in line for line in server.lines):
                server.kill()
    assert errors(server) == []
