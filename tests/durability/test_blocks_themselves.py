"""The instrument of test_blocks.py is itself looked at: what was flushed is there, what was not is lost."""

import contextlib
import os
import shutil
import time

import pytest

from durability.blocks import machine
from durability.blocks.filesystems import FILE_SYSTEMS
from durability.blocks.recording import Kind, Log, recorded
from durability.blocks.replay import Loss, Replay, choose_states
from durability.blocks.writeback import write_back

if REASON := machine.why_not():
    pytest.skip(REASON, allow_module_level=True)

RECORDS = 40
STATES = 25
SEED = 16

pytestmark = pytest.mark.slow


def record(number):
    """Long enough to be torn."""
    return b"%08d" % number * 1500


class Writer:
    """Appends to a few files, and says of each record when it is safe."""

    def __init__(self, folder, syncs_first):
        self.folder = folder
        self.syncs_first = syncs_first
        self.answers = []

    def run(self):
        for number in range(RECORDS):
            with (self.folder / f"file-{number % 4}").open("ab", buffering=0) as file:
                file.write(record(number))
                if not self.syncs_first:
                    self.answer(number)
                os.fsync(file.fileno())
            self.sync_names()
            if self.syncs_first:
                self.answer(number)

    def sync_names(self):
        folder = os.open(self.folder, os.O_RDONLY)
        os.fsync(folder)
        os.close(folder)

    def answer(self, number):
        self.answers.append((time.monotonic_ns(), number))

    def missing(self, folder, time_ns):
        """Of the records that were said to be safe at that moment."""
        found = b"".join(path.read_bytes() for path in folder.glob("file-*"))
        return [n for at_ns, n in self.answers if at_ns <= time_ns and record(n) not in found]


@pytest.fixture
def place():
    with machine.scratch() as folder:
        yield folder


@pytest.fixture(params=FILE_SYSTEMS)
def file_system(request):
    made = FILE_SYSTEMS[request.param]
    if not made.is_there():
        pytest.skip(f"{made.make[0]} is missing: apt install {made.package}")
    return made


def missing_in_states(place, file_system, syncs_first):
    """How many records each state lacks, and how many writes it lost."""
    program = machine.build_program(place)
    with recorded(program, place, file_system) as disk:
        since_ns = time.monotonic_ns()
        writer = Writer(disk.folder, syncs_first)
        writer.run()
        until_ns = time.monotonic_ns()
    with contextlib.closing(Log(disk.log)) as log:
        replay = Replay(disk, log, place)
        for state in choose_states(log, STATES, SEED, since_ns, until_ns):
            with replay.mounted(state) as folder:
                yield state, replay.lost, writer.missing(folder, state.time_ns)


def test_what_was_synced_is_there(place, file_system):
    looked_at = [*missing_in_states(place, file_system, syncs_first=True)]
    assert len(looked_at) == STATES
    assert {state.loss for state, _, _ in looked_at} == {*Loss}
    assert any(lost for _, lost, _ in looked_at)
    assert [(str(state), missing) for state, _, missing in looked_at if missing] == []


def test_what_answers_before_the_sync_is_caught(place, file_system):
    looked_at = [*missing_in_states(place, file_system, syncs_first=False)]
    assert sum(bool(missing) for _, _, missing in looked_at) >= STATES // 5


def test_a_sync_is_a_flush_and_a_write_is_logged_whole(place, file_system):
    body = os.urandom(64 << 10)
    program = machine.build_program(place)
    with recorded(program, place, file_system) as disk:
        since_ns = time.monotonic_ns()
        file = (disk.folder / "file").open("wb", buffering=0)
        file.write(body)
        os.fsync(file.fileno())
        until_ns = time.monotonic_ns()
        file.close()
    with contextlib.closing(Log(disk.log)) as log:
        during = [entry for entry in log.entries if since_ns <= entry.time_ns <= until_ns]
        assert during[-1].kind == Kind.FLUSH
        written = b"".join(log.data(entry) for entry in during)
        assert all(body[start : start + 4096] in written for start in range(0, len(body), 4096))


def test_a_write_without_a_flush_is_lost_in_some_states_and_kept_in_others(place):
    """Written back by the kernel, never flushed: the bytes of a mapped file, say."""
    file_system = FILE_SYSTEMS["ext4"]
    body = os.urandom(64 << 10)
    program = machine.build_program(place)
    with recorded(program, place, file_system) as disk:
        path = disk.folder / "file"
        path.write_bytes(bytes(len(body)))
        os.sync()
        since_ns = time.monotonic_ns()
        with path.open("r+b", buffering=0) as file:
            file.write(body)
            write_back(file.fileno())
        until_ns = time.monotonic_ns()
    with contextlib.closing(Log(disk.log)) as log:
        replay = Replay(disk, log, place)
        found = {}
        for state in choose_states(log, STATES, SEED, since_ns, until_ns):
            with replay.mounted(state) as folder:
                found[state.loss] = (folder / "file").read_bytes()
    assert found[Loss.NONE] == body
    assert found[Loss.ALL] == bytes(len(body))


def test_what_a_killed_run_left_is_released(tmp_path):
    """Its tmpfs bears the id of a process that is gone."""
    left = tmp_path / "left"
    left.mkdir()
    machine.mount("tmpfs", f"{machine.SOURCE}{2**22 + 1}", left, "size=100m")
    image, folder = left / "image", left / "disk"
    FILE_SYSTEMS["ext4"].make_on(image)
    folder.mkdir()
    machine.mount("ext4", str(image), folder, "loop")
    shutil.copy(__file__, folder)
    machine.release_leftovers()
    assert not [where for _, where in machine.mounts() if where.is_relative_to(left)]
    assert not left.exists()
