"""nsqfast-commitlog on real rings: what it says of whole, torn and damaged ones, and that it changes nothing."""

import base64
import fcntl
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from nsqfast._ext.dev.commit_rings import FaultyFiles, OpenRing

from models import commit_ring
from nsqfast.tools.commitlog import check as checks
from nsqfast.tools.commitlog import ring as rings
from nsqfast.tools.commitlog.check import Look, look_again
from nsqfast.tools.commitlog.drive import Mount
from nsqfast.tools.commitlog.main import main
from support.commands import run_command
from support.nobody import as_nobody

COMMAND = [sys.executable, "-m", "nsqfast.tools.commitlog.main"]
SIZE = 4 * 65536
QUARTER = SIZE // 4
STEERING = b"\x1b[31m\x07\x9b\r\n\x00\xff'\"\\ plain"


class Written:
    """A ring in a folder, and what was committed to it: by batch (kind, flags, extra, subject, payload)."""

    def __init__(self, path):
        self.path = path
        self.batches = {}
        self.spans = {}

    def write(self, batches, checkpoint=None, **options):
        ring = OpenRing(str(self.path), SIZE, **options)
        ring.read()
        for records in batches:
            for kind, flags, extra, subject, payload in records:
                ring.append(payload, kind, flags, extra, subject)
            number = ring.filling
            assert ring.wait(number)
            self.batches[number] = records
        if checkpoint:
            ring.checkpoint(checkpoint)
            ring.append(b"behind the checkpoint")
            self.batches[ring.filling] = [(1, 0, 0, 0, b"behind the checkpoint")]
            assert ring.wait(ring.filling)
        fill = ring.fill()
        ring.close()
        return fill

    def harm(self, name, at, data):
        with (self.path / name).open("r+b") as file:
            file.seek(at)
            file.write(data)

    def state(self):
        """All that a check could change."""
        files = sorted(self.path.iterdir())
        return [(each.name, each.read_bytes(), each.stat().st_mtime_ns) for each in files]


@pytest.fixture
def written(tmp_path):
    return Written(tmp_path / "log")


def records_of(number):
    return [(1 + k, k, number, 1000 * k, b"%d.%d " % (number, k) * (20 * k + 1)) for k in range(3)]


def run(capsys, *words):
    """Exit status, stdout, stderr."""
    status = main(list(map(str, words)))
    said = capsys.readouterr()
    return status, said.out, said.err


def check_json(capsys, path):
    status, out, err = run(capsys, "check", path, "--format=json")
    assert err == ""
    found = json.loads(out)
    assert found["is_whole"] == (status == 0)
    return found


# Check


def test_a_whole_ring(written):
    fill = written.write(map(records_of, range(1, 6)), checkpoint=3)
    before = written.state()
    (draft := written.path.with_name("log.new")).mkdir()
    done = run_command(*COMMAND, "check", str(written.path))
    assert (done.returncode, done.stderr) == (0, "")
    head, *lines = done.stdout.splitlines()
    assert head == f"{written.path}: whole"
    rows = {line[:11].strip(): line[11:] for line in lines if line[2] != " "}
    epoch, _ = commit_ring.read_epoch(written.path)
    assert rows["format"] == f"1, epoch {epoch.hex()}"
    assert rows["size"] == f"4 quarters of 65,536 bytes, {fill:.1%} needed"
    assert rows["batches"] == "4 from 3 to 6, needed from 3 on; each is synced"
    kept = [record for n, batch in written.batches.items() if n >= 3 for record in batch]
    size = sum(len(record[-1]) for record in kept)
    assert rows["records"] == f"{len(kept):,}, payloads of {size:,} bytes"
    assert not rows.keys() & {"note", "torn", "bad", "damage"}
    assert written.state() == before
    assert draft.exists(), "a start removes it"


def test_json_says_the_same(capsys, written):
    fill = written.write(map(records_of, range(1, 4)))
    found = check_json(capsys, written.path)
    epoch, quarter_size = commit_ring.read_epoch(written.path)
    assert found == {
        "folder": str(written.path),
        "is_whole": True,
        "is_in_use": False,
        "is_changing": False,
        "format": 1,
        "epoch": epoch.hex(),
        "quarter_bytes": quarter_size,
        "interval_from": 0,
        "first_needed": 1,
        "last": 3,
        "torn": None,
        "bad": [],
        "fill": pytest.approx(fill, abs=1e-4),
        "records": 9,
        "records_by_kind": {"1": 3, "2": 3, "3": 3},
        "payload_bytes": sum(len(each[-1]) for n in (1, 2, 3) for each in records_of(n)),
        "damaged": [],
    }


def test_a_ring_without_batches(capsys, written):
    written.write([])
    assert (
        "  batches  none, needed from 1 on; each is synced\n"
        in run(capsys, "check", written.path)[1]
    )
    assert run(capsys, "dump", written.path) == (0, "", "")


def test_a_ring_that_is_synced_by_time(capsys, written):
    written.write(map(records_of, (1, 2)), align=512, is_interval=True)
    found = check_json(capsys, written.path)
    assert (found["interval_from"], found["first_needed"], found["last"]) == (3, 1, 2)
    assert "; up to 2 synced, later ones by time\n" in run(capsys, "check", written.path)[1]


def test_a_torn_batch(capsys, written):
    """It is no damage: it was never answered."""
    written.write([*map(records_of, (1, 2)), [(9, 0, 0, 0, b"t" * 9000)]])
    written.harm("0.ring", 2 * 4096 + 5000, b"\0" * 512)
    before = written.state()
    found = check_json(capsys, written.path)
    assert found["torn"] == {"batch": 3, "file": "0.ring", "start": 8192}
    assert (found["is_whole"], found["last"], found["records"]) == (True, 2, 6)
    assert (
        "  torn     batch 3 at 0.ring 8192: it was never committed"
        in run(capsys, "check", written.path)[1]
    )
    assert written.state() == before


def test_a_damaged_batch(capsys, written):
    written.write(map(records_of, range(1, 4)))
    written.harm("0.ring", 4096 + 64 + 17, b"\xff")  # in the first record of batch 2
    before = written.state()
    found = check_json(capsys, written.path)
    (damage,) = found["damaged"]
    assert (damage["file"], damage["first"], damage["last"]) == ("0.ring", 2, 2)
    assert damage["start"] <= 4096 + 64 + 17 < damage["end"]
    assert found["records"] == 8
    status, out, _ = run(capsys, "check", written.path)
    assert status == 1
    assert out.startswith(f"{written.path}: damaged\n")
    assert f"  damage   0.ring {damage['start']}-{damage['end']}: batch 2\n" in out
    assert written.state() == before


def test_damage_of_what_nobody_needs_is_none(capsys, written):
    written.write(map(records_of, range(1, 6)), checkpoint=4)
    written.harm("0.ring", 4096 + 64 + 17, b"\xff")
    assert check_json(capsys, written.path)["is_whole"]


def test_many_damages_are_counted(capsys, written):
    payload = b"p" * 48
    written.write([[(1, 0, 0, n, payload) for n in range(100)], *map(records_of, (2, 3))])
    for n in range(0, 100, 2):
        written.harm("0.ring", 64 + 64 * n + 17, b"\xff")
    found = check_json(capsys, written.path)
    assert (len(found["damaged"]), found["records"]) == (50, 56)
    out = run(capsys, "check", written.path)[1]
    assert out.count("\n  damage ") == checks.DAMAGES_SHOWN
    assert out.endswith("and 30 more: --format=json has all\n")


def test_a_bad_quarter(capsys, written):
    """Its ring goes on with the others, and is whole."""
    files = FaultyFiles()
    ring = OpenRing(str(written.path), SIZE, files)
    ring.append(b"first")
    assert ring.wait(1)
    files.fail_writes(5)
    ring.append(b"second")
    assert ring.wait(2)
    ring.close()
    found = check_json(capsys, written.path)
    assert found["bad"] == [{"quarter": 0, "batch": 2}]
    assert (found["is_whole"], found["records"]) == (True, 2)
    out = run(capsys, "check", written.path)[1]
    assert "  bad      quarter 0: writing batch 2 failed there\n" in out


@pytest.mark.parametrize("folder", [".", ".."])
def test_a_broker_that_runs_on_it(capsys, written, folder):
    """It has locked its data path, and the lock is not touched."""
    written.write([records_of(1)])
    held = os.open(written.path / folder, os.O_RDONLY)
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        assert check_json(capsys, written.path)["is_in_use"]
        note = "a broker runs on it: the figures may be behind\n"
        assert f"\n  note     {note}" in run(capsys, "check", written.path)[1]
        assert run(capsys, "dump", written.path)[2].endswith(note)
    finally:
        os.close(held)
    assert not check_json(capsys, written.path)["is_in_use"]


def test_a_lock_on_a_file_system_whose_files_have_other_numbers(monkeypatch, tmp_path, written):
    """The kernel lists that of the mount, as on btrfs."""
    written.write([records_of(1)])
    number = written.path.parent.stat().st_ino
    (tmp_path / "locks").write_text(f"1: FLOCK  ADVISORY  WRITE 77 00:2b:{number} 0 EOF\n")
    monkeypatch.setattr(rings, "LOCKS", tmp_path / "locks")
    assert not rings.is_in_use(str(written.path))
    monkeypatch.setattr(rings, "find_mount", lambda _: Mount(os.makedev(0, 0x2B)))
    assert rings.is_in_use(str(written.path))


def test_a_ring_that_is_written_to(written):
    """Lap after lap, while it is looked at: nothing is called damaged, and the ring is not disturbed."""
    ring = OpenRing(str(written.path), SIZE)
    stop, errors = threading.Event(), []

    def write():
        while not stop.is_set():
            ring.append(b"w" * 3000)
            if not ring.wait(ring.filling):
                errors.append(ring.failed)
                return
            ring.checkpoint(ring.committed)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        looks = [look_again(str(written.path)) for _ in range(30)]
    finally:
        stop.set()
        thread.join()
        ring.close()
    assert [look.damaged for look in looks] == [[]] * 30
    assert (errors, ring.failed) == ([], 0)
    lasts = [look.figures["last"] for look in looks]
    assert lasts == sorted(lasts)


@pytest.mark.parametrize(
    ("is_changing", "wanted"), [([True, True, True], [2]), ([True, False, True], [2, 3])]
)
def test_damage_of_a_ring_that_is_written_to_is_found_twice(monkeypatch, is_changing, wanted):
    def damage(n):
        return ("0.ring", 4096 * n, 4096 * n + 8, (n, n))

    found = [[1, 2], [2, 3], [2, 4]]
    looks = iter(
        Look({}, [damage(n) for n in each], changing)
        for each, changing in zip(found, is_changing, strict=True)
    )
    monkeypatch.setattr(checks, "look_at", lambda _: next(looks))
    assert look_again("log").damaged == [damage(n) for n in wanted if n != 3]


# Dump


def test_what_was_written_is_dumped(written):
    written.write([*map(records_of, range(1, 4)), [(200, 255, 65535, 2**32 - 1, STEERING)]])
    done = run_command(*COMMAND, "dump", "--format=jsonl", "--bodies", str(written.path))
    assert (done.returncode, done.stderr) == (0, "")
    found = {}
    for line in map(json.loads, done.stdout.splitlines()):
        if line["type"] == "batch":
            found[line["batch"]] = []
            assert (line["is_whole"], line["file"]) == (True, "0.ring")
            assert line["records"] == len(written.batches[line["batch"]])
            continue
        payload = base64.b64decode(line["payload"])
        assert line["size"] == len(payload)
        fields = (line["kind"], line["flags"], line["extra"], line["subject"], payload)
        found[line["batch"]].append(fields)
    assert found == written.batches


def test_text_steers_no_terminal(written):
    written.write([[(1, 0, 0, 0, STEERING)], [(2, 16, 3, 4, STEERING * 10)]])
    done = subprocess.run(
        [*COMMAND, "dump", written.path, "--bodies"], capture_output=True, check=True
    )
    assert re.fullmatch(rb"[\n\x20-\x7e]*", done.stdout)
    first, record, second, long = done.stdout.decode().splitlines()
    assert re.fullmatch(
        r"batch 1  0\.ring 0-\d+  records 1  needed from 1  20\d\d-\d\d-\d\dT.*", first
    )
    assert record == (
        f"  kind 1  flags 0x00  extra 0  subject 0  size {len(STEERING)}  {repr(STEERING)[1:]}"
    )
    assert second.startswith("batch 2  0.ring 4096-")
    assert long.startswith("  kind 2  flags 0x10  extra 3  subject 4  size ")
    assert long.endswith(f"{repr((STEERING * 10)[:64])[1:]}...")


@pytest.mark.parametrize("form", ["text", "jsonl"])
def test_bodies_are_shown_where_that_is_asked_for(capsys, written, form):
    secret = b"a secret of somebody"
    written.write([[(1, 0, 0, 0, secret)]])
    status, out, _ = run(capsys, "dump", written.path, f"--format={form}")
    assert status == 0
    assert "secret" not in out
    assert base64.b64encode(secret).decode() not in out


def batches_in(out):
    return [int(n) for n in re.findall(r"^batch (\d+) ", out, re.MULTILINE)]


def test_from_and_limit(capsys, written):
    written.write(map(records_of, range(1, 7)), checkpoint=3)
    assert batches_in(run(capsys, "dump", written.path)[1]) == [3, 4, 5, 6, 7]
    assert batches_in(run(capsys, "dump", "--from", 5, written.path)[1]) == [5, 6, 7]
    assert batches_in(run(capsys, "dump", written.path, "--from=1")[1]) == list(range(1, 8))
    out = run(capsys, "dump", written.path, "--from=4", "--limit=4")[1]
    assert (batches_in(out), out.count("\n  kind ")) == ([4, 5], 4)
    assert run(capsys, "dump", written.path, "--from=99") == (0, "", "")


def test_a_batch_longer_than_a_piece(capsys, written):
    written.write([[(1, 0, 0, n, b"") for n in range(2500)], records_of(2)])
    out = run(capsys, "dump", written.path)[1]
    assert batches_in(out) == [1, 2]
    subjects = [int(n) for n in re.findall(r"subject (\d+)", out)]
    assert subjects[:2500] == list(range(2500))


def test_a_damaged_batch_is_dumped_as_far_as_it_is_whole(capsys, written):
    written.write(map(records_of, range(1, 4)))
    written.harm("0.ring", 4096, b"\0" * 64)  # its header
    written.harm("0.ring", 4096 + 64 + 17, b"\xff")
    status, out, _ = run(capsys, "dump", written.path)
    assert (status, batches_in(out)) == (1, [1, 2, 3])
    assert "\nbatch 2  damaged\n" in out
    assert out.count("\n  kind ") == 8
    assert re.search(r"^damage  0\.ring \d+-\d+: batch 2$", out, re.MULTILINE)
    status, out, _ = run(capsys, "dump", written.path, "--format=jsonl")
    lines = [json.loads(line) for line in out.splitlines()]
    assert {"type": "batch", "batch": 2, "is_whole": False} in lines
    assert [line["first"] for line in lines if line["type"] == "damage"] == [2] * (
        sum(line["type"] == "damage" for line in lines)
    )


def test_a_reader_that_is_gone(written):
    written.write([[(1, 0, 0, n, b"") for n in range(3000)]])
    with subprocess.Popen(
        [*COMMAND, "dump", written.path], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == -signal.SIGPIPE


@pytest.mark.parametrize("command", ["check", "dump"])
def test_a_disk_that_takes_no_output(written, command):
    written.write([[(1, 0, 0, n, b"") for n in range(3000)]])
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [*COMMAND, command, written.path], stdout=full, stderr=subprocess.PIPE, check=False
        )
    assert done.stderr == b"nsqfast-commitlog: standard output: no space left on device\n"
    assert done.returncode == 1


def test_a_folder_that_vanishes(capsys, monkeypatch, written):
    written.write([records_of(1)])
    monkeypatch.setattr(checks, "read_figures", lambda _: shutil.rmtree(written.path) or {})
    status, out, err = run(capsys, "check", written.path)
    assert (status, out) == (1, "")
    assert err == f"nsqfast-commitlog: {written.path}/head: no such file or directory\n"


# What is no ring


def empty(path):
    shutil.rmtree(path)
    path.mkdir()


def no_folder(path):
    shutil.rmtree(path)


def a_file(path):
    shutil.rmtree(path)
    path.write_bytes(b"")


def foreign(path):
    empty(path)
    (path / "notes.txt").write_text("hello")


def data_path(path):
    empty(path)
    (path / "nsqd.dat").write_text("{}")


def newer(path):
    heads = [commit_ring.encode_head(bytes(16), QUARTER, n, version=2) for n in (0, 1)]
    (path / "head").write_bytes(b"".join(heads))


def without(name):
    def harm(path):
        (path / name).unlink()

    return harm


def cut_short(name, size):
    def harm(path):
        os.truncate(path / name, size)

    return harm


def fifo(name):
    def harm(path):
        (path / name).unlink()
        os.mkfifo(path / name)

    return harm


def link(name):
    def harm(path):
        (path / name).rename(path.parent / "elsewhere")
        (path / name).symlink_to(path.parent / "elsewhere")

    return harm


def zeros(path):
    (path / "head").write_bytes(bytes(8192))


def circle(path):
    shutil.rmtree(path)
    path.symlink_to(path)


HARMS = {
    "no folder": (no_folder, 2, "log: no such file or directory"),
    "a file": (a_file, 2, "log: not a folder"),
    "empty": (empty, 2, "log: no ring: it has none of head, 0.ring, 1.ring, 2.ring, 3.ring"),
    "foreign": (foreign, 2, "log: no ring: it has none of head, 0.ring, 1.ring, 2.ring, 3.ring"),
    "data path": (data_path, 2, "log: a data path, not the folder of a ring"),
    "circle": (circle, 2, "log: too many levels of symbolic links"),
    "newer": (
        newer,
        2,
        "log: a newer nsqfast wrote this commit log (format 2): start that one",
    ),
    "no head": (without("head"), 1, "log/head is missing"),
    "no quarter": (without("2.ring"), 1, "log/2.ring is missing"),
    "head of zeros": (zeros, 1, "log/head is damaged"),
    "head cut short": (cut_short("head", 100), 1, "log/head is damaged"),
    "empty head": (cut_short("head", 0), 1, "log/head is damaged"),
    "quarter cut short": (
        cut_short("1.ring", 5000),
        1,
        f"log/1.ring has 5000 bytes instead of {QUARTER}",
    ),
    "pipe as head": (fifo("head"), 1, "log/head: no regular file; no ring has that"),
    "pipe as quarter": (fifo("3.ring"), 1, "log/3.ring: no regular file; no ring has that"),
    "link": (link("0.ring"), 1, "log/0.ring: a symbolic link; no ring has that"),
}


@pytest.mark.parametrize("command", ["check", "dump"])
@pytest.mark.parametrize("name", HARMS)
def test_what_cannot_be_looked_at(capsys, written, name, command):
    harm, status, said = HARMS[name]
    written.write([records_of(1)])
    harm(written.path)
    wanted = f"nsqfast-commitlog: {written.path.parent}/{said}\n"
    assert run(capsys, command, written.path) == (status, "", wanted)


def test_a_link_to_a_ring(capsys, written, tmp_path):
    """What the operator names may be one."""
    written.write([records_of(1)])
    (tmp_path / "link").symlink_to(written.path)
    assert check_json(capsys, tmp_path / "link")["records"] == 3


@pytest.mark.parametrize("name", ["", "head", "1.ring"])
def test_no_permission(capsys, monkeypatch, tmp_path, written, name):
    written.write([records_of(1)])
    monkeypatch.chdir(tmp_path)
    for each in (written.path, *written.path.iterdir()):
        each.chmod(0o755)
    (written.path / name).chmod(0)
    with as_nobody():
        status, out, err = run(capsys, "check", "log")
    (written.path / name).chmod(0o700)
    assert (status, out) == (2, "")
    assert err == f"nsqfast-commitlog: log{name and '/' + name}: permission denied\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "nsqfast-commitlog: no command: the first word is one of probe, check, dump"),
        (["fix"], "nsqfast-commitlog: unknown command 'fix': the first word is one of"),
        (["check"], "nsqfast-commitlog: which ring? nsqfast-commitlog check <folder>"),
        (["check", "a", "b"], "unexpected word 'b'"),
        (["check", "a", "--limit=1"], "flag provided but not defined: -limit"),
        (["check", "a", "--format=jsonl"], "nsqfast-commitlog: --format is jsonl; for check it is"),
        (["dump", "a", "--format=json"], "nsqfast-commitlog: --format is json; for dump it is"),
        (["dump", "a", "--limit=-1"], "nsqfast-commitlog: --from and --limit are 0 or more"),
        (["dump", "a", "--from=x"], 'invalid value "x" for flag -from'),
        (["probe", "a"], "unexpected word 'a'"),
        (["probe", "--seconds=0"], "nsqfast-commitlog: --seconds is 0; it is more than 0"),
        (["probe", "--seconds=nan"], "nsqfast-commitlog: --seconds is nan; it is more than 0"),
        (["check", "a\0b"], "nsqfast-commitlog: a\\x00b: "),
        (["probe", "--data-path=a\0b"], "nsqfast-commitlog: a\\x00b: "),
    ],
)
def test_wrong_use(capsys, words, said):
    status, out, err = run(capsys, *words)
    assert (status, out) == (2, "")
    assert err.startswith(said)


@pytest.mark.parametrize("words", [["--help"], ["check", "--help"], ["dump", "-h"], ["--version"]])
def test_help(capsys, words):
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 0
    out = capsys.readouterr().out
    assert out.startswith("nsqfast " if words == ["--version"] else "Usage: nsqfast-commitlog ")


def test_a_folder_with_a_strange_name(written, tmp_path):
    written.write([records_of(1)])
    strange = os.fsdecode(bytes(tmp_path) + b"/\xff\x1b[31m\n")
    written.path.rename(strange)
    for words in (["check", strange], ["dump", strange], ["check", f"{strange}/none"]):
        done = subprocess.run([*COMMAND, *words], capture_output=True, check=False)
        assert b"Traceback" not in done.stderr
        assert b"\x1b" not in done.stdout + done.stderr
        assert done.returncode == (2 if "none" in words[1] else 0)
    assert Path(strange).exists()
