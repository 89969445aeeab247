"""What the fuzzer begins with, and what it found once, on this build."""

from importlib import import_module
from pathlib import Path

import pytest

from fuzz.targets import diskqueue

NAMES = sorted(path.stem for path in (Path(__file__).parent / "targets").glob("*.py"))
TARGETS = {name: import_module(f"fuzz.targets.{name}") for name in NAMES}
BEHIND = diskqueue.believed((1, 1 << 40, 77), (2, 0, 31), [])
FAR = b"5\n0,0\n4000000000000000000,0\n"
# What showed a defect once; each also has a test of its own where it was mended.
FOUND = [
    ("diskqueue", diskqueue.SEPARATOR.join([b"\x3d", FAR, b"", diskqueue.record(b"a")])),
    (
        "diskqueue",
        diskqueue.SEPARATOR.join([b"\x02", b"2\n0,0\n0,31\n", BEHIND, diskqueue.record(b"a")]),
    ),
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
