"""Power cuts beneath real file systems: what was answered by OK is there after each.

Every block write and flush of a workload is logged; then the disk is rebuilt as a power cut might have left it, mounted
as after a reboot, and opened by the broker. `make trust` has all workloads on all file systems.

They need root, loop devices, /dev/fuse, a C compiler and `apt install fuse3 libfuse3-dev pkg-config xfsprogs
btrfs-progs`; where something is missing they are skipped with one line. NSQFAST_BLOCK_STATES=100 has more states per
workload, NSQFAST_SEED repeats a run.
"""

import os

import pytest

from durability.blocks import machine, trial
from durability.blocks.filesystems import FILE_SYSTEMS
from durability.crash import boots
from durability.crash.modes import GO
from durability.crash.opening import Opener, open_with_program
from durability.crash.workloads import WORKLOADS, flags_of
from support.seeds import seeds
from support.server import NO_GO, go_folder

if REASON := machine.why_not():
    pytest.skip(REASON, allow_module_level=True)

SEED = seeds("blocks", 1)[0]
CI_STATES = 10
CI_WORKLOADS = ("publish-small-files", "disconnect-small-files")
TRUST_STATES = int(os.environ.get("NSQFAST_BLOCK_STATES", "8"))
GO_STATES = 20
WRITES_BACK = pytest.mark.parametrize(
    "writes_back", [False, True], ids=["not-written-back", "written-back"]
)

# What loses messages today, and why. To be emptied.
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def scratch():
    if reason := boots.why_not():
        pytest.skip(reason)
    print(f"NSQFAST_SEED={os.environ['NSQFAST_SEED']}")
    with machine.scratch() as folder:
        yield folder


@pytest.fixture(scope="module")
def program(scratch):
    return machine.build_program(scratch)


@pytest.fixture(scope="module")
def opener(scratch):
    """In another boot; it sees what is mounted in the scratch folder after its start."""
    with boots.make_boot(16) as boot, Opener(boot) as opened:
        yield opened


@pytest.fixture
def place(scratch):
    with machine.emptied(scratch / "place") as folder:
        yield folder


@pytest.fixture
def file_system(request):
    made = FILE_SYSTEMS[request.param]
    if not made.is_there():
        pytest.skip(f"{made.make[0]} is missing: apt install {made.package}")
    return made


def cut_power(program, place, opener, file_system, workload, states, writes_back):
    recorded = trial.record(program, place, file_system, workload, SEED, writes_back=writes_back)
    flags = flags_of(workload)
    return trial.judge(recorded, place, lambda folder: opener.open(folder, flags), states, SEED)


def check(result):
    print(f"\n{result}")
    if result.is_wrong():
        pytest.fail(result.examples(), pytrace=False)


@WRITES_BACK
@pytest.mark.parametrize("file_system", ["ext4"], indirect=True)
@pytest.mark.parametrize("workload", CI_WORKLOADS)
def test_a_few_power_cuts(program, place, opener, file_system, workload, writes_back):
    result = cut_power(program, place, opener, file_system, workload, CI_STATES, writes_back)
    check(result)
    assert result.states == CI_STATES
    assert result.without_writes


@pytest.mark.trust
@pytest.mark.timeout(300)
@WRITES_BACK
@pytest.mark.parametrize("file_system", FILE_SYSTEMS, indirect=True)
@pytest.mark.parametrize("workload", [*WORKLOADS])
def test_power_cuts(program, place, opener, file_system, workload, writes_back):
    result = cut_power(program, place, opener, file_system, workload, TRUST_STATES, writes_back)
    check(result)


@pytest.mark.trust
@pytest.mark.timeout(300)
@pytest.mark.go
@pytest.mark.skipif(go_folder() is None, reason=NO_GO)
@pytest.mark.parametrize("file_system", ["ext4"], indirect=True)
def test_go_is_caught(program, place, file_system):
    """It answers a PUB before the fsync that --sync-every=1 asks for."""
    recorded = trial.record(program, place, file_system, "publish", SEED, "go")
    flags = flags_of("publish", GO)

    def open_folder(folder):
        return open_with_program("go", folder, flags, trial.die_with_parent)

    result = trial.judge(recorded, place, open_folder, GO_STATES, SEED)
    print(f"\nGo's nsqd, {result}")
    assert result.missing(), "the instrument saw nothing"
