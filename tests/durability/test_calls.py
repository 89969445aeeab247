"""A crash between any two calls of the broker: what an OK proves is there afterwards.

Every workload is run under a recorder of the calls that change files, with --durable. For each boundary between two
calls the folder is rebuilt as kill -9 or a power cut may leave it (crash/states.py), opened by the broker, and emptied.
Beside each workload large bodies fill the log, so that checkpoints come while it runs. More is asked for than that
messages are there (crash/owed.py): FINs, attempts, deadlines, emptied and deleted queues, names, MPUBs as a whole. With
always this holds for kill -9 and power cuts, with interval for kill -9; a power cut then leaves less, and a start must
still go well.

Here and in the other files of this folder `make trust` runs all (marker trust), and all other runs a few;
docs/GUARANTEES.md says what they are. These need a C compiler and mount namespaces, the control also strace and Go's
nsqd; where something is missing they are skipped with one line. NSQFAST_SEED repeats a run, NSQFAST_CRASH_STATES says
how many states per workload.
"""

import os
import re

import pytest

from durability.crash import boots, log, modes, traced
from durability.crash.replay import Examiner, GoExaminer, is_checkpoint, record
from durability.crash.workloads import WORKLOADS
from support.seeds import seeds

SEED = seeds("calls", 1)[0]
STATES = int(os.environ.get("NSQFAST_CRASH_STATES", "160"))
GO_STATES = 64
IS_DATA_FILE = re.compile(r"\.diskqueue\.\d+\.dat$")
QUICK = [
    ("requeue", modes.ALWAYS, 32),
    ("requeue-small-files", modes.ALWAYS, 32),
    ("pause-small-files", modes.ALWAYS, 32),
    ("start", modes.ALWAYS, 24),
    ("large", modes.ALWAYS, 24),
    ("defer", modes.INTERVAL, 12),
]
MODES = [modes.ALWAYS, modes.INTERVAL]


@pytest.fixture(scope="module")
def examiner():
    reason = log.why_not() or boots.why_not()
    if reason:
        pytest.skip(reason)
    print(f"NSQFAST_SEED={os.environ['NSQFAST_SEED']}")
    with Examiner() as made:
        yield made


def check(examiner, name, mode, place, states_max):
    recording = record(name, place, SEED, mode)
    # A broker that is stopped for good may have been filled too little.
    assert name.startswith("stop") or any(map(is_checkpoint, recording.calls))
    tally = examiner.examine(recording, states_max, SEED)
    print(f"\n{tally}")
    assert not tally.failures, "\n".join([str(tally), *tally.failures[:8]])
    assert tally.states >= states_max * 0.5


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("name", "mode", "states_max"), QUICK, ids=lambda one: getattr(one, "name", one)
)
def test_a_few_crashes(examiner, name, mode, states_max, tmp_path):
    check(examiner, name, mode, tmp_path, states_max)


@pytest.mark.trust
@pytest.mark.timeout(600)
@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.name)
@pytest.mark.parametrize("name", list(WORKLOADS))
def test_crashes(examiner, name, mode, tmp_path):
    check(examiner, name, mode, tmp_path, STATES)


@pytest.mark.trust
@pytest.mark.timeout(600)
def test_crashes_while_a_broker_stops_and_starts_again(examiner, tmp_path):
    recording = record("start", tmp_path, SEED, modes.ALWAYS)
    # The second life opens it anew; what is before belongs to the stop.
    opened = [n for n, call in enumerate(recording.calls) if call.name == "nsqfast.running"]
    again = next(n for n in opened if n > opened[0])
    recording.only = range(again - 60, again + 120)
    tally = examiner.examine(recording, STATES, SEED)
    print(f"\n{tally}")
    assert not tally.failures, "\n".join([str(tally), *tally.failures[:8]])


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_log_that_syncs_nothing_as_a_control(examiner, tmp_path):
    """Without what its writes promise to have on disk the instrument must find messages that are lost."""
    recording = record("publish", tmp_path, SEED, modes.ALWAYS)
    for call in recording.calls:
        if call.kind == log.SYNC_WRITE_BEGAN:
            call.kind = log.WRITTEN
    recording.calls = [call for call in recording.calls if call.kind != log.SYNC_WRITE_ENDED]
    # Early ones owe nothing yet, or all of it is in files that are synced.
    end = len(recording.calls)
    recording.only = range(end * 3 // 4, end)
    tally = examiner.examine(recording, 64, SEED)
    print(f"\n{tally}")
    assert tally.lost_states.total() > 0


@pytest.mark.trust
@pytest.mark.timeout(300)
def test_a_checkpoint_before_its_files_are_synced_as_a_control(examiner, tmp_path):
    """The log is written over then, and what the files lack is lost: the instrument must find that."""
    recording = record("finish-small-files", tmp_path, SEED, modes.ALWAYS)
    syncs = (log.SYNC_BEGAN, log.SYNC_ENDED)
    files = {call.inode for call in recording.calls if IS_DATA_FILE.search(call.name)}
    recording.calls = [
        call for call in recording.calls if call.kind not in syncs or call.inode not in files
    ]
    assert any(map(is_checkpoint, recording.calls))
    tally = examiner.examine(recording, 40, SEED)
    print(f"\n{tally}")
    assert tally.lost_states.total() > 0


@pytest.mark.trust
@pytest.mark.go
@pytest.mark.timeout(300)
@pytest.mark.parametrize("ext4_names", [False, True])
def test_crashes_of_go_as_a_control(ext4_names, tmp_path):
    """It answers before it syncs and never syncs the folder: where this finds nothing, it looks in the wrong place."""
    reason = traced.why_not()
    if reason:
        pytest.skip(reason)
    recording = traced.record_go("publish", tmp_path, SEED)
    with GoExaminer(ext4_names=ext4_names) as examiner:
        tally = examiner.examine(recording, GO_STATES, SEED)
    print(f"\n{tally} ({'an fsync keeps the name' if ext4_names else 'names are lost'})")
    assert ext4_names or tally.lost_states.total() > GO_STATES // 4
