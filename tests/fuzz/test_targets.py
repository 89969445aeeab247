"""What the fuzzer begins with, and what it found once, on this build.

A target is a module of targets/: `check(data)` raises for any input that shows a fault, `seeds()` are where a fuzzer
begins, `WORDS` its dictionary. A check holds a property (any cut gives the same, a naive reading in tests/models gives
the same, nothing vanishes, no traceback in the log), not just that nothing crashes.
"""

from importlib import import_module
from pathlib import Path

import pytest

from fuzz import harness
from fuzz.targets import diskqueue

NAMES = sorted(path.stem for path in (Path(__file__).parent / "targets").glob("*.py"))
TARGETS = {name: import_module(f"fuzz.targets.{name}") for name in NAMES}
BEHIND = diskqueue.believed((1, 1 << 40, 77), (2, 0, 31), [])
FAR = b"5\n0,0\n4000000000000000000,0\n"
# The last record's size reaches into what is written behind it.
JOINED = b"\xff" + diskqueue.record(b"a")[1:] + diskqueue.record(b"b") + diskqueue.record(b"cc")
JOINED = JOINED[:65] + bytes([JOINED[65] + 1]) + JOINED[66:]
KNOWN = diskqueue.believed((1, 0, 0), (4, 0, len(JOINED)), [])
# The first record's size reaches into the next one; an ack file that knows the first alone.
REACHING = b"\0\0\0\x1b" + diskqueue.record(b"")[4:] + diskqueue.record(b"") * 2
BEGUN = diskqueue.believed((1, 0, 0), (2, 0, 31), [])
# What showed a defect once; each also has a test of its own where it was mended.
FOUND = [
    ("diskqueue", diskqueue.SEPARATOR.join([b"\x3d", FAR, b"", diskqueue.record(b"a")])),
    (
        "diskqueue",
        diskqueue.SEPARATOR.join([b"\x02", b"2\n0,0\n0,31\n", BEHIND, diskqueue.record(b"a")]),
    ),
    ("diskqueue", diskqueue.SEPARATOR.join([b"\x06", b"3\n0,0\n0,94\n", KNOWN, JOINED])),
    ("diskqueue", diskqueue.SEPARATOR.join([b"0", b"\x00-", BEGUN, REACHING])),
    ("identify", b'{"feature_negotiation":true,"snappy":true,"snappy":null}'),
    ("identify", b'{"feature_negotiation":true,"snappy":true,"SNAPPY":false,"snappy":true}'),
    ("metadata", b"[" * 100_000),
    ("options", b"\x00a = " + b"[" * 5000),
    ("options", b"\x00id = 0x" + b"f" * 5000),
]
SEEDS = [(name, seed) for name, target in TARGETS.items() for seed in target.seeds()]


def shown(value):
    return value if isinstance(value, str) else f"{value[:20]!r}"


@pytest.mark.parametrize(("name", "data"), SEEDS + FOUND, ids=shown)
def test_known_input(name, data):
    TARGETS[name].check(data)


@pytest.mark.parametrize("name", TARGETS)
def test_any_bytes(name):
    """No target falls over bytes that are nothing."""
    for data in (b"", b"\x00", b"\xff" * 3, bytes(range(256)) * 2):
        TARGETS[name].check(data)


@pytest.mark.parametrize("name", TARGETS)
def test_smoke_inputs_are_the_same_each_time(name, tmp_path, monkeypatch):
    """They go on behind the seeds, and the one that fails is kept."""
    path, seen = tmp_path / "input", [[], []]

    def check(data):
        now.append(data)
        assert len(now) < 40

    monkeypatch.setattr(TARGETS[name], "check", check)
    for now in seen:
        with pytest.raises(AssertionError):
            harness.smoke(name, 1000, path)
        assert path.read_bytes() == now[-1]
    assert seen[0] == seen[1]
    assert len(set(seen[0])) > len(TARGETS[name].seeds()) + 10
