"""nsqfast-commitlog probe: what it measures, what it leaves behind, and what the kernel says of drives."""

import errno
import json
import os
import re
import signal
import subprocess
import sys

import pytest

from nsqfast.tools.commitlog import drive, probe
from nsqfast.tools.commitlog.main import main
from support.commands import run_command
from support.waiting import wait_until

COMMAND = [sys.executable, "-m", "nsqfast.tools.commitlog.main", "probe"]
WAYS = ["append, fdatasync", "overwrite, fdatasync", "overwrite, O_DIRECT and O_DSYNC"]
BRIEF = "--seconds=0.001"  # one commit at least


def run(capsys, *words):
    status = main(["probe", BRIEF, *map(str, words)])
    said = capsys.readouterr()
    return status, said.out, said.err


def test_a_table(tmp_path):
    done = run_command(*COMMAND, BRIEF, f"--data-path={tmp_path}")
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert re.fullmatch(rf"{tmp_path}: .+ on .+; it (takes|refuses) O_DIRECT", lines[0])
    assert re.fullmatch(r"A ring .+ by (O_DIRECT and O_DSYNC|write and fdatasync)\.", lines[1])
    table = lines[lines.index("") + 1 :]
    assert table[0].split() == "commit way p50 µs p99 µs max µs commits/s".split()
    wanted = [f"{size:<8}{way}" for size in ("4 KiB", "64 KiB", "1 MiB") for way in WAYS]
    assert [row[:41].rstrip() for row in table[1:]] == wanted
    assert list(tmp_path.iterdir()) == []


def test_json(capsys, tmp_path):
    status, out, err = run(capsys, f"--data-path={tmp_path}", "--format=json")
    found = json.loads(out)
    assert (status, err, found["folder"]) == (0, "", str(tmp_path))
    sizes = (4096, 65536, 1 << 20)
    rows = found["rows"]
    assert [(each["bytes"], each["way"]) for each in rows] == [
        (n, way) for n in sizes for way in WAYS
    ]
    for each in rows:
        if each["is_supported"]:
            assert 0 < each["p50_us"] <= each["p99_us"] <= each["max_us"]
            assert each["commits"] >= 1
            assert each["commits_per_s"] > 0
    assert found["has_o_direct"] == all(each["is_supported"] for each in rows)


def test_the_current_folder_is_the_default(capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert run(capsys)[1].startswith(".: ")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("call", ["open", "pwrite"])
def test_a_file_system_without_direct_writes(capsys, monkeypatch, tmp_path, call):
    """Some refuse to open such a file, some the first write."""
    real_open, real_pwrite, direct = os.open, os.pwrite, set()

    def open_(path, flags, *mode, **how):
        if flags & os.O_DIRECT and call == "open":
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), path)
        fd = real_open(path, flags, *mode, **how)
        (direct.add if flags & os.O_DIRECT else direct.discard)(fd)
        return fd

    def pwrite(fd, *data):
        if fd in direct:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        return real_pwrite(fd, *data)

    monkeypatch.setattr(os, "open", open_)
    monkeypatch.setattr(os, "pwrite", pwrite)
    status, out, _ = run(capsys, f"--data-path={tmp_path}")
    assert status == 0
    assert "; it refuses O_DIRECT\n" in out
    assert "would overwrite its files by write and fdatasync.\n" in out
    refused = re.findall(
        rf"^(\d+ .iB) +{WAYS[2]} +not supported by this file system$", out, re.MULTILINE
    )
    assert refused == ["4 KiB", "64 KiB", "1 MiB"]
    assert list(tmp_path.iterdir()) == []


def test_a_disk_that_has_no_room(capsys, monkeypatch, tmp_path):
    monkeypatch.setattr(probe, "ROOM_BYTES", 1 << 70)
    status, out, err = run(capsys, f"--data-path={tmp_path}")
    assert (status, out, err.count("\n")) == (1, "", 1)
    assert err.startswith(f"nsqfast-commitlog: {tmp_path}: no space left on device: ")


@pytest.mark.parametrize("answer", [errno.ENOSPC, errno.EDQUOT, errno.EIO, "short"])
def test_a_disk_that_fails_meanwhile(capsys, monkeypatch, tmp_path, answer):
    """One line, and nothing is left."""

    def pwrite(fd, data, at):
        if answer == "short":
            return len(data) - 1
        raise OSError(answer, os.strerror(answer))

    monkeypatch.setattr(os, "pwrite", pwrite)
    status, out, err = run(capsys, f"--data-path={tmp_path}")
    assert (status, out, err.count("\n")) == (1, "", 1)
    assert err.endswith(
        "input/output error\n" if answer == errno.EIO else " MiB have to be free for a probe\n"
    )
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "said"), [("none", "no such file or directory"), ("file", "not a directory")]
)
def test_no_folder(capsys, tmp_path, name, said):
    (tmp_path / "file").touch()
    status, out, err = run(capsys, f"--data-path={tmp_path / name}")
    assert (status, out) == (2, "")
    assert err == f"nsqfast-commitlog: {tmp_path / name}: {said}\n"


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_it_and_nothing_is_left(tmp_path, number, status):
    command = [*COMMAND, "--seconds=3600", f"--data-path={tmp_path}"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        wait_until(lambda: [each for each in tmp_path.glob("*/append") if each.stat().st_size])
        process.send_signal(number)
        out, err = process.communicate(timeout=50)
    assert (process.returncode, out, err) == (status, b"", b"")
    assert list(tmp_path.iterdir()) == []


# Drives, by files as the kernel has them


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """A machine with one file system on /dev/mapper/data: a mapping over two partitions, of two drives."""
    devices = tmp_path / "devices"
    for name, cache, fua in (("sda", "write back", "0"), ("nvme0n1", "write through", "1")):
        (devices / name / "queue").mkdir(parents=True)
        (devices / name / "queue" / "write_cache").write_text(f"{cache}\n")
        (devices / name / "queue" / "fua").write_text(f"{fua}\n")
        (devices / name / f"{name}1").mkdir()
        (devices / name / f"{name}1" / "partition").write_text("1\n")
    slaves = devices / "dm-0" / "slaves"
    slaves.mkdir(parents=True)
    (slaves / "sda1").symlink_to(devices / "sda" / "sda1")
    (slaves / "nvme0n1p1").symlink_to(devices / "nvme0n1" / "nvme0n11")
    blocks = tmp_path / "blocks"
    blocks.mkdir()
    number = tmp_path.stat().st_dev
    (blocks / f"{os.major(number)}:{os.minor(number)}").symlink_to(devices / "dm-0")
    mounts = tmp_path / "mountinfo"
    mounts.write_text(
        "21 1 8:1 / / rw - ext4 /dev/root rw\n"
        f"22 21 253:0 / {tmp_path} rw,noatime shared:1 - xfs data rw\n"
        f"23 21 253:0 / {tmp_path}/with\\040space rw - tmpfs none rw\n"
        f"24 21 0:5 / {tmp_path}x rw - ext2 other rw\n"
    )
    monkeypatch.setattr(drive, "BLOCKS", blocks)
    monkeypatch.setattr(drive, "MOUNTS", mounts)
    return tmp_path


def test_drives_below_a_mapping(machine):
    place = drive.find_place(machine)
    assert (place.file_system, place.source) == ("xfs", "data")
    assert {each.name: (each.write_cache, each.has_fua) for each in place.drives} == {
        "sda": ("write back", False),
        "nvme0n1": ("write through", True),
    }
    lost, kept = sorted(place.hints(), key=lambda text: text.startswith("nvme"))
    assert lost.startswith("sda: as far as the kernel knows its cache is lost in a power cut")
    assert "each commit is flushed" in lost
    assert kept.startswith("nvme0n1: as far as the kernel knows no cache of it is lost")


def test_a_file_system_in_memory(machine):
    (machine / "with space").mkdir()
    place = drive.find_place(machine / "with space")
    assert place.hints() == ["tmpfs is in memory: nothing of it survives a restart"]


def test_a_kernel_that_says_nothing(machine, monkeypatch):
    for name in ("BLOCKS", "MOUNTS"):
        monkeypatch.setattr(drive, name, machine / "nothing")
    place = drive.find_place(machine)
    assert (place.file_system, place.source, place.drives) == ("", "", ())
    assert place.hints() == [
        "the kernel does not say which drive that is, nor whether its cache is lost in a power cut"
    ]


def test_a_drive_that_says_nothing(machine):
    for each in machine.glob("devices/*/queue/*"):
        each.unlink()
    hints = drive.find_place(machine).hints()
    assert sorted(hints) == [
        f"{name}: the kernel does not say whether its cache is volatile"
        for name in ("nvme0n1", "sda")
    ]
