"""A crash between any two calls of the broker: what was answered by OK is there afterwards.

Every workload is run under a recorder of the calls that change files. For each boundary between two calls the folder
is rebuilt as kill -9 or a power cut may leave it (crash/states.py), opened by the broker, and emptied.
"""

import os

import pytest

from durability.crash import boots, log
from durability.crash.replay import Examiner, record
from durability.crash.workloads import WORKLOADS
from support.seeds import seeds

SEED = seeds("calls", 1)[0]
STATES = int(os.environ.get("NSQFAST_CRASH_STATES", "160"))
QUICK = {"finish-small-files": 64, "requeue": 64}

# What loses messages today, and why. To be emptied.
KNOWN: dict[str, str] = {}


def marked(name):
    marks = []
    if name in KNOWN:
        marks.append(pytest.mark.xfail(strict=False, reason=KNOWN[name]))
    return pytest.param(name, marks=marks)


@pytest.fixture(scope="module")
def examiner(tmp_path_factory):
    reason = log.why_not() or boots.why_not()
    if reason:
        pytest.skip(reason)
    print(f"NSQFAST_SEED={os.environ['NSQFAST_SEED']}")
    place = tmp_path_factory.mktemp("calls")
    with Examiner(place) as made:
        yield made


def check(examiner, name, states_max):
    recording = record(name, examiner.place, SEED)
    tally = examiner.examine(recording, states_max, SEED)
    print(f"\n{tally}")
    assert not tally.failures, "\n".join([str(tally), *tally.failures[:8]])
    assert tally.states >= states_max * 0.8


@pytest.mark.slow
@pytest.mark.parametrize("name", list(map(marked, QUICK)))
def test_a_few_crashes(examiner, name):
    check(examiner, name, QUICK[name])


@pytest.mark.trust
@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", list(map(marked, WORKLOADS)))
def test_crashes(examiner, name):
    check(examiner, name, STATES)
