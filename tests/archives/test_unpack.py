"""gzip and zstd: chains of members, torn, damaged, and read on."""

import random
import re

import pytest
from backports import zstd

from nsqfast.archives import unpack
from support.archives import Reading, lines, members
from support.seeds import seeds

PACKERS = ["gzip", "zstd"]
SUFFIX = {"gzip": ".gz", "zstd": ".zst"}
BLOCKS = [[b"%d-%d" % (block, i) + b"x" * (i % 90) for i in range(300)] for block in range(4)]


@pytest.fixture(params=PACKERS)
def packer(request):
    return request.param


@pytest.fixture
def path(packer, tmp_path):
    return tmp_path / f"events.h-000000.2026-11-22_08.log{SUFFIX[packer]}"


def packed(packer, blocks=BLOCKS):
    return members([lines(block) for block in blocks], packer)


def flat(*blocks):
    return [body for block in blocks for body in block]


@pytest.mark.parametrize("block_size", [1, 100, 1 << 20])
def test_a_chain_is_read_as_one(packer, path, block_size):
    path.write_bytes(b"".join(packed(packer)))
    reading = Reading(path, block_size=block_size)
    assert reading.bodies == flat(*BLOCKS)
    assert reading.damages == []
    assert reading.read_size == path.stat().st_size


def test_empty_members_and_records_over_the_edge_of_members(packer, path):
    whole = lines(BLOCKS[0])
    cuts = [whole[:101], b"", whole[101:102], whole[102:], b""]
    path.write_bytes(b"".join(members(cuts, packer)))
    assert Reading(path).bodies == BLOCKS[0]
    path.write_bytes(b"")
    reading = Reading(path)
    assert (reading.bodies, reading.damages) == ([], [])


def test_reading_goes_on_at_any_position(packer, path):
    path.write_bytes(b"".join(packed(packer)))
    whole = Reading(path)
    for index in (1, 299, 300, 301, 1000):
        rest = Reading(path, whole.positions[index])
        assert rest.bodies == whole.bodies[index:]
        assert rest.positions == whole.positions[index:]
    assert Reading(path, whole.parts[-1].end).bodies == []


def test_torn_at_the_end(packer, path):
    """As a kill -9 in the middle of a write leaves it."""
    parts = packed(packer)
    whole = b"".join(parts[:3])
    path.write_bytes(whole + parts[3][: len(parts[3]) * 2 // 3])
    reading = Reading(path)
    assert reading.bodies[:900] == flat(*BLOCKS[:3])
    rest = reading.bodies[900:]
    assert rest == BLOCKS[3][: len(rest)]
    (damage,) = reading.damages
    assert damage.path == str(path)
    assert damage.place == f"byte {len(whole)} (packed)"
    assert "ends in the middle" in damage.reason


def test_cut_anywhere_nothing_torn_comes_back_as_whole(packer, path):
    parts = packed(packer, BLOCKS[:2])
    data, expected = b"".join(parts), flat(*BLOCKS[:2])
    for size in range(0, len(data), 7):
        path.write_bytes(data[:size])
        reading = Reading(path, block_size=1 << 16)
        assert reading.bodies == expected[: len(reading.bodies)]
        assert bool(reading.damages) != (size in (0, len(parts[0])))


def test_a_member_that_is_damaged_does_not_hide_those_behind_it(packer, path):
    parts = packed(packer)
    spoilt = bytearray(parts[1])
    spoilt[len(spoilt) // 2 :] = bytes(len(spoilt) - len(spoilt) // 2)
    path.write_bytes(b"".join([parts[0], bytes(spoilt), *parts[2:]]))
    reading = Reading(path)
    assert reading.bodies[:300] == BLOCKS[0]
    assert reading.bodies[-600:] == flat(*BLOCKS[2:])
    (damage,) = reading.damages
    assert damage.place == f"byte {len(parts[0])} (packed)"
    assert f"read on at byte {len(parts[0]) + len(parts[1])}" in damage.reason


def test_torn_in_the_middle(packer, path):
    """Files that were joined after one of them was torn."""
    parts = packed(packer)
    torn = parts[1][: len(parts[1]) // 2]
    path.write_bytes(b"".join([parts[0], torn, *parts[2:]]))
    reading = Reading(path)
    assert reading.bodies[:300] == BLOCKS[0]
    assert reading.bodies[-600:] == flat(*BLOCKS[2:])
    # The record that was torn is not joined to what follows.
    assert all(body in set(flat(*BLOCKS)) for body in reading.bodies)
    assert len(reading.damages) == 1


def test_signs_of_a_member_within_a_torn_one_are_not_believed(packer, path):
    magic = {"gzip": b"\x1f\x8b\x08\0\0\0\0\0\0\x03", "zstd": b"\x28\xb5\x2f\xfd\x04\x58"}[packer]
    parts = packed(packer)
    path.write_bytes(parts[0] + parts[1][:30] + magic * 50 + b"garbage\n" * 9 + parts[2])
    reading = Reading(path)
    assert reading.bodies[:300] == BLOCKS[0]
    assert reading.bodies[-300:] == BLOCKS[2]
    assert not any(b"garbage" in body for body in reading.bodies)
    assert len(reading.damages) == 1


def test_what_is_no_member_at_all(packer, path):
    for tail in (bytes(1000), b"plain text\n"):
        path.write_bytes(packed(packer)[0] + tail)
        reading = Reading(path)
        assert reading.bodies == BLOCKS[0]
        assert "no more to read" in reading.told


def test_a_wrong_checksum_is_told(packer, path):
    parts = packed(packer)
    spoilt = bytearray(parts[0])
    spoilt[-6 if packer == "gzip" else -2] ^= 1
    path.write_bytes(bytes(spoilt) + parts[1])
    reading = Reading(path)
    assert reading.bodies == BLOCKS[1]
    (damage,) = reading.damages
    assert damage.place == "byte 0 (packed)"


def test_a_member_that_is_too_large_to_be_held_back(packer, path, monkeypatch):
    """What was given of it before the damage showed is said to be in doubt."""
    monkeypatch.setattr(unpack, "HELD_SIZE", 3000)
    parts = packed(packer)
    size = len(lines(BLOCKS[0]))
    path.write_bytes(b"".join(parts))
    reading = Reading(path)
    assert (reading.bodies, reading.damages) == (flat(*BLOCKS), [])
    spoilt = bytearray(parts[0])
    spoilt[-6 if packer == "gzip" else -2] ^= 1
    path.write_bytes(bytes(spoilt) + parts[1])
    reading = Reading(path)
    count = len(reading.bodies) - 300
    assert 0 < count < 300
    assert reading.bodies == BLOCKS[0][:count] + BLOCKS[1]
    (used,) = re.findall(r"its first (\d+) plain bytes were used", reading.told)
    assert size - 4000 < int(used) <= size - 3000 + 1000


def test_a_small_file_that_unpacks_to_much_is_read_in_pieces(tmp_path):
    """A zstd frame of a few bytes may hold gigabytes; what is in memory is a block."""
    path = tmp_path / "a.log.zst"
    path.write_bytes(zstd.compress((b"0" * 999 + b"\n") * 50_000))
    reading = Reading(path, block_size=10_000)
    assert sum(map(len, reading.parts)) == 50_000
    assert max(len(part.bodies.data) for part in reading.parts) <= 20_000


@pytest.mark.parametrize("seed", seeds("unpack", 8))
def test_random_damage_never_raises_and_is_always_told(packer, path, seed):
    dice = random.Random(seed)
    data = bytearray(b"".join(packed(packer)))
    expected = set(flat(*BLOCKS))
    at = dice.randrange(len(data) - 40)
    size = dice.randrange(4, 40)
    data[at : at + size] = dice.randbytes(size) if dice.random() < 0.7 else b""
    path.write_bytes(data)
    reading = Reading(path)
    # The damage lies in one member, or over the edge of two.
    assert len(reading.bodies) >= sum(map(len, BLOCKS)) - 600
    wrong = [i for i, body in enumerate(reading.bodies) if body not in expected]
    if "the file ends in the middle" in reading.told:
        # In the last member, damage and a torn end may look alike.
        wrong = [i for i in wrong if i < 600]
    assert not wrong
    if reading.bodies != flat(*BLOCKS):
        assert reading.damages
