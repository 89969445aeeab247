"""A number has one home: compiled code's is _ext/core/limits.pxd, and nsqfast/wire/protocol.py says the same."""

import re
from pathlib import Path

from nsqfast.wire import identify, protocol

ROOT = Path(__file__).resolve().parents[2]
LIMITS = (ROOT / "_ext" / "core" / "limits.pxd").read_text(encoding="utf-8")
NUMBER = re.compile(r"^    ([A-Z][A-Z0-9_]+) = (\w+(?: - \d+)?)$", re.MULTILINE)
CONSTANT = re.compile(r"^(?:cdef \w+ | {4})?([A-Z][A-Z0-9_]{3,})(?:: Final)? = ", re.MULTILINE)


def read_limits() -> dict[str, int]:
    """Return the name and number of every constant in limits.pxd but the durations."""
    numbers = {}
    for name, text in NUMBER.findall(LIMITS):
        first, _, less = text.partition(" - ")
        numbers[name] = int(first, 0) - int(less or "0")
    return numbers


def test_python_has_the_same_numbers():
    limits = read_limits()
    assert limits["FRAME_MESSAGE"] == 2
    ours = {name: value for name, value in vars(protocol).items() if type(value) is int}
    assert ours
    assert ours == {name: limits[name] for name in ours}
    assert {len(protocol.MAGIC_V1), len(protocol.MAGIC_V2)} == {limits["MAGIC_SIZE"]}


def test_python_has_the_same_heartbeat():
    found = re.search(r"NSQ_HEARTBEAT_DEFAULT_NS \((\d+) \* NSQ_SECOND_NS\)", LIMITS)
    assert int(found[1]) * 10**9 == identify.HEARTBEAT_NS


def test_relations():
    limits = read_limits()
    assert limits["MESSAGE_HEADER_SIZE"] == 8 + 2 + limits["MESSAGE_ID_SIZE"]
    assert limits["FIN_SIZE"] == len("FIN ") + limits["MESSAGE_ID_SIZE"] + len("\n")
    assert limits["BODY_SIZE_MAX"] == limits["MPUB_SIZE_MAX"] - 2 * limits["LENGTH_SIZE"]


def test_no_second_home():
    """A compiled module that makes a constant of a name in limits.pxd hides the one that is meant."""
    names = set(read_limits()) | set(re.findall(r'const int64_t ([A-Z0-9_]+) "', LIMITS))
    again = [
        f"{path.relative_to(ROOT)}: {name}"
        for path in sorted(ROOT.glob("_ext/**/*.p[yx][xd]"))
        if path.name != "limits.pxd" and path.parent.name != "dev"
        for name in CONSTANT.findall(path.read_text(encoding="utf-8"))
        if name in names
    ]
    assert again == []


def test_every_limit_has_a_user():
    sources = "\n".join(
        path.read_text(encoding="utf-8")
        for path in ROOT.glob("_ext/**/*.p[yx][xd]")
        if path.name != "limits.pxd"
    )
    used = set(re.findall(r"\b[A-Z][A-Z0-9_]+\b", sources))
    assert set(read_limits()) - used == set()
