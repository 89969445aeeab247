"""A crash between any two calls of the broker: what was answered by OK is there afterwards.

Every workload is run under a recorder of the calls that change files. For each boundary between two calls the folder
is rebuilt as kill -9 or a power cut may leave it (crash/states.py), opened by the broker, and emptied.

Here and in the other files of this folder `make trust` runs all (marker trust), and all other runs a few;
docs/GUARANTEES.md says what they are. These need a C compiler and mount namespaces, the control also strace and Go's
nsqd; where something is missing they are skipped with one line. NSQFAST_SEED repeats a run, NSQFAST_CRASH_STATES says
how many states per workload.
"""

import os

import pytest

from durability.crash import boots, log, traced
from durability.crash.replay import Examiner, GoExaminer, record
from durability.crash.workloads import WORKLOADS
from support.seeds import seeds

SEED = seeds("calls", 1)[0]
STATES = int(os.environ.get("NSQFAST_CRASH_STATES", "160"))
GO_STATES = 64
QUICK = {"requeue": 64, "pause-small-files": 64}

# A record that was never acknowledged may come torn where the power failure took what tells so: the metadata and the
# ack file of its queue, both.
TORN_SHARE_MAX = 0.05


@pytest.fixture(scope="module")
def examiner():
    reason = log.why_not() or boots.why_not()
    if reason:
        pytest.skip(reason)
    print(f"NSQFAST_SEED={os.environ['NSQFAST_SEED']}")
    with Examiner() as made:
        yield made


def check(examiner, name, place, states_max):
    recording = record(name, place, SEED)
    tally = examiner.examine(recording, states_max, SEED)
    print(f"\n{tally}")
    wrong = [tally.lost_states.total(), tally.returned_states, tally.other_states]
    assert not any(wrong), "\n".join([str(tally), *tally.failures[:8]])
    assert tally.foreign_states <= max(2, TORN_SHARE_MAX * tally.states), "\n".join(tally.failures)
    assert tally.states >= states_max * 0.8


@pytest.mark.slow
@pytest.mark.parametrize("name", list(QUICK))
def test_a_few_crashes(examiner, name, tmp_path):
    check(examiner, name, tmp_path, QUICK[name])


@pytest.mark.trust
@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", list(WORKLOADS))
def test_crashes(examiner, name, tmp_path):
    check(examiner, name, tmp_path, STATES)


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
