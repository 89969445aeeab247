"""A crash between any two calls of a broker with a commit log: what an OK proves is there afterwards.

As test_calls.py, with --durable, and with more that is asked for (crash/owed.py): FINs, attempts, deadlines, emptied
and deleted queues, names, MPUBs as a whole. Beside each workload large bodies fill the log, so that checkpoints come
while it runs. With always this holds for kill -9 and power cuts, with interval for kill -9; a power cut then leaves
less, and a start must still go well.
"""

import os

import pytest

from durability.crash import boots, log, modes
from durability.crash.replay import Examiner, is_checkpoint, record
from durability.crash.workloads import WORKLOADS
from support.seeds import seeds

SEED = seeds("log calls", 1)[0]
STATES = int(os.environ.get("NSQFAST_CRASH_STATES", "160"))
QUICK = [
    ("requeue-small-files", modes.ALWAYS, 32),
    ("start", modes.ALWAYS, 24),
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
    tally = examiner.examine(recording, 16, SEED)
    print(f"\n{tally}")
    assert tally.lost_states.total() > 0
