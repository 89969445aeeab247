"""What killed runs left in the work folder is finished at the next start."""

import gzip
import os
import subprocess
import sys

import pytest

from nsqfast.tools.nsq_to_file.formats import packer
from nsqfast.tools.nsq_to_file.leftovers import Leftovers
from nsqfast.tools.nsq_to_file.options import parse

BODIES = [b'{"number":%d}' % number for number in range(300)]
WHOLE = b"".join(body + b"\n" for body in BODIES)
NAME = "t.a-000000.2026-11-22_08"
TAIL = b'{"number":3'


class Folders:
    """Both folders of nsq_to_file, as runs with host identifier `a` left them."""

    def __init__(self, folder):
        self.work, self.output = folder / "out.work", folder / "out"
        self.work.mkdir()
        self.output.mkdir()

    def leave(self, name, data):
        path = self.work / name
        path.write_bytes(data)
        return path

    def start(self, *flags, topic="t"):
        places = [f"--output-dir={self.output}", f"--work-dir={self.work}"]
        words = ["--nsqd-tcp-address=127.0.0.1:1", f"--topic={topic}", *places, *flags]
        Leftovers(parse([*words, "--host-identifier=a"])).recover(topic)

    def found(self):
        """What is in the output folder, by name; nothing is left in the other one."""
        assert not list(self.work.iterdir())
        return {path.name: path.read_bytes() for path in self.output.iterdir()}


@pytest.fixture
def folders(tmp_path):
    return Folders(tmp_path)


@pytest.mark.parametrize("tail", [b"", TAIL])
@pytest.mark.parametrize("ending", [".log", ".jsonl"])
def test_lines(folders, ending, tail):
    folders.leave(NAME + ending, WHOLE + tail)
    folders.start()
    assert folders.found() == {NAME + ending: WHOLE}


def test_a_last_record_that_only_lacks_its_end(folders):
    folders.leave(NAME + ".jsonl", WHOLE[:-1])
    folders.start("--format=jsonl")
    assert folders.found() == {NAME + ".jsonl": WHOLE}


@pytest.mark.parametrize("cut", [1, 9, 40])
@pytest.mark.parametrize(("compression", "ending"), [("gzip", ".gz"), ("zstd", ".zst")])
def test_packed_ones(folders, compression, ending, cut):
    pack = packer(compression, 6)
    members = [pack(WHOLE), pack(WHOLE[:50]), pack(WHOLE)]
    folders.leave(f"{NAME}.log{ending}", b"".join(members)[:-cut])
    folders.start()
    assert folders.found() == {f"{NAME}.log{ending}": members[0] + members[1]}


def test_damage_before_whole_members_takes_none_of_them(folders):
    """Who reads it says what is lost."""
    pack = packer("gzip", 6)
    damaged = bytearray(pack(WHOLE))
    damaged[30] ^= 0xFF
    members = [pack(WHOLE), bytes(damaged), pack(WHOLE)]
    folders.leave(NAME + ".log.gz", b"".join(members) + members[0][:40])
    folders.start()
    assert folders.found() == {NAME + ".log.gz": b"".join(members)}


@pytest.mark.parametrize("data", [b"", TAIL])
def test_one_without_a_record_goes(folders, data):
    folders.leave(NAME + ".log", data)
    folders.start()
    assert folders.found() == {}


def test_one_that_another_process_has_finished_meanwhile(folders):
    path = folders.leave(NAME + ".log", WHOLE)
    words = [f"--output-dir={folders.output}", f"--work-dir={folders.work}", "--topic=t"]
    leftovers = Leftovers(parse(["--nsqd-tcp-address=127.0.0.1:1", "--host-identifier=a", *words]))
    path.unlink()
    leftovers.recover("t")
    assert folders.found() == {}


def test_a_folder_that_is_removed_meanwhile(folders, monkeypatch):
    """Where the work folder is one that others use, such as /tmp."""
    scan = os.scandir

    def scan_late(place):
        if os.fspath(place) == str(folders.work / "gone"):
            os.rmdir(place)
        return scan(place)

    folders.leave(NAME + ".log", WHOLE)
    (folders.work / "gone").mkdir()
    with monkeypatch.context() as patch:
        patch.setattr("os.scandir", scan_late)
        folders.start()
    assert folders.found() == {NAME + ".log": WHOLE}


def test_a_name_that_is_taken(folders):
    (folders.output / (NAME + ".log")).write_bytes(b"other\n")
    folders.leave(NAME + ".log", WHOLE)
    folders.start()
    assert folders.found() == {
        NAME + ".log": b"other\n",
        NAME.replace("-000000", "-000001") + ".log": WHOLE,
    }


def test_killed_between_its_name_and_the_end(folders):
    path = folders.leave(NAME + ".log", WHOLE)
    os.link(path, folders.output / (NAME.replace("-000000", "-000007") + ".log"))
    folders.start()
    assert list(folders.found().values()) == [WHOLE]


def test_what_a_backup_linked_is_moved_all_the_same(folders, tmp_path):
    path = folders.leave(NAME + ".log", WHOLE)
    os.link(path, tmp_path / "elsewhere")
    folders.start()
    assert folders.found() == {NAME + ".log": WHOLE}


def test_an_output_folder_that_is_not_there(folders):
    folders.leave(NAME + ".log", WHOLE)
    folders.output.rmdir()
    folders.start()
    assert folders.found() == {NAME + ".log": WHOLE}


def test_of_another_host(folders, caplog):
    """Only if that does not write it any more."""
    other = NAME.replace("t.a-", "t.b-") + ".log"
    path = folders.leave(other, WHOLE)
    with path.open("ab"):
        folders.start()
    assert not caplog.text
    folders.start()
    assert path.exists()
    assert f"{path} is unfinished, and another host's" in caplog.text
    assert "--recover-host" in caplog.text
    folders.start("--recover-host=b")
    assert folders.found() == {other: WHOLE}


def test_of_another_topic(folders, caplog):
    path = folders.leave("t.more.a-000000.2026-11-22_08.log", WHOLE)
    folders.start()
    assert path.exists()
    assert not caplog.text


@pytest.mark.parametrize("has_lock", [True, False], ids=["ours", "Go's"])
def test_what_another_process_writes_is_left_alone(folders, has_lock):
    path = folders.leave(NAME + ".log", WHOLE)
    lock = "fcntl.flock(file, fcntl.LOCK_SH);" * has_lock
    code = f"import fcntl, sys; file = open(sys.argv[1], 'ab'); {lock} print(flush=True); input()"
    words = [sys.executable, "-c", code, str(path)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as writer:
        writer.stdout.readline()
        folders.start()
        assert path.read_bytes() == WHOLE
        assert not list(folders.output.iterdir())
        writer.communicate(b"\n")
    folders.start()
    assert folders.found() == {NAME + ".log": WHOLE}


def test_many_topics_cost_no_look_at_all_files_each(folders, monkeypatch):
    for number in range(200):
        folders.leave(f"t{number}.a-000000.2026-11-22_08.log.gz", gzip.compress(WHOLE))
    words = [f"--output-dir={folders.output}", f"--work-dir={folders.work}", "--topic=t"]
    leftovers = Leftovers(parse(["--nsqd-tcp-address=127.0.0.1:1", "--host-identifier=a", *words]))
    monkeypatch.delattr("os.walk")
    for number in range(200):
        leftovers.recover(f"t{number}")
    assert len(folders.found()) == 200
