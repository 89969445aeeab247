"""The commit ring on a simulated disk: whatever it answered is there after crashes, faults and damage.

A seed is one life of a folder (`commitlog/life.py`): starts, work over several laps, crashes at any call, errors, torn
and misplaced sectors, flipped bits; a naive model (`models/commit_log.py`) judges each start. `make test` plays a few
hundred, `make soak` a minute of them, `make trust` ten thousand, and mutants of the ring that have to be found.
NSQFAST_SEED repeats a run, NSQFAST_LIFE=SEED plays one life.
"""

import os
from collections import Counter

import pytest

from durability.commitlog import disk, life
from durability.commitlog.boundaries import RecordedLife, Replay
from durability.commitlog.life import Life
from durability.commitlog.mutants import FOUND, MUTANTS, build
from durability.commitlog.mutants import play as play_mutant
from models.commit_log import Record
from support.seeds import seeds

ONE = os.environ.get("NSQFAST_LIFE")
LIVES_OF_MUTANT_MAX = 3_000
# In which the model was wrong once: about a failed attempt that was whole, about what a failed write proves, and about
# a block of the head that is damaged.
ONCE_WRONG = (3906070755, 1742744256, 2725174790, 1710210492)
# In which the ring was: what was cut off stood before the end of the only quarter that was good.
RING_WRONG = (1078602513,)
FEW, MINUTE, MANY = 300, 4_000, 10_000
# At least one in so many lives.
SHARES = {
    disk.EIO: 10,
    disk.ENOSPC: 10,
    disk.SHORT: 10,
    disk.SYNC_EIO: 20,
    disk.NAME_EIO: 20,
    disk.MISDIRECTED: 10,
    disk.LOST: 10,
    disk.FLIPPED: 5,
    disk.UNREADABLE: 5,
    disk.TORN: 2,
    disk.POWER_CUT: 1,
    disk.KILLED: 2,
    life.FAILED: 5,
    life.FULL: 1,
    life.DELAYED: 1,
    life.CRASHED_START: 20,
    life.CRASHED_MAKING: 20,
    life.DAMAGED_HEAD: 100,
    life.WRITTEN: 1,
}


def play(count):
    print(f"NSQFAST_SEED={os.environ['NSQFAST_SEED']}")
    counts = Counter()
    chosen = [int(ONE)] if ONE else seeds("commit ring", count)
    for seed in chosen:
        counts += Life(seed).play()
    print(f"\n{len(chosen)} lives: {dict(sorted(counts.items()))}")
    return counts


@pytest.mark.slow
@pytest.mark.parametrize(
    "count",
    [
        FEW,
        pytest.param(MINUTE, marks=[pytest.mark.soak, pytest.mark.timeout(600)]),
        pytest.param(MANY, marks=[pytest.mark.trust, pytest.mark.timeout(1200)]),
    ],
)
def test_lives(count):
    counts = play(count)
    if not ONE:
        rare = {kind for kind, share in SHARES.items() if counts[kind] * share * 3 < count}
        assert not rare, counts


@pytest.mark.parametrize("seed", ONCE_WRONG + RING_WRONG)
def test_a_life_that_went_wrong(seed):
    Life(seed).play()


def test_a_failed_attempt_is_no_copy_of_its_batch():
    """In interval mode the second one has more records. The first may be whole on the disk, by these dice."""
    for seed in range(8):
        one = Life(seed)
        one.interval_share = 1
        ring = one.start({})
        one._put(ring, Record(life.KEPT, 0, 0, 1, b"first"))
        one.faults.rates = {disk.SHORT: 1}
        ring.write(1)
        one.faults.rates = {}
        one._put(ring, Record(life.KEPT, 0, 0, 2, b"second"))
        one._write(ring)
        ring.write(1)
        ring.sync()
        one.faults.rates = {disk.SHORT: 1}  # of the head
        one._write(ring)
        assert (ring.written, ring.committed, ring.bad()) == (1, 0, [0])
        one._leave(ring)
        one.disk.kill()
        place = one.model.batches[1].places[-1]
        one.disk.flip(place.file, place.image.index(b"second"))
        for _ in range(2):
            ring = one.start({})
            assert list(one.live) == [1]
            one._leave(ring)
            one.disk.kill()


def test_what_was_cut_off_behind_a_quarter_that_left_no_header():
    """Nobody knows where the first batch was, so that it may have been in any quarter; 3 in 1.ring is lost, 4 in 2.ring
    is whole, and is no copy of the next batch 4."""
    one = Life(1)
    one.size, one.align, one.interval_share = 64 * 1024, 512, 1
    one.disk.make_parents(one.folder)
    ring = one.start({})
    for size, is_synced in ((100, True), (100, True), (16_000, False), (16_000, False)):
        one._put(ring, Record(life.KEPT, 0, 0, ring.filling, bytes([ring.filling]) * size))
        ring.write(1)
        if is_synced:
            ring.sync()
            assert one._write(ring)
    assert [one.model.batches[number].places[-1].file.name for number in (3, 4)] == [
        "1.ring",
        "2.ring",
    ]
    one._leave(ring)
    place = one.model.batches[4].places[-1]
    place.file.sync()
    one.disk.cut_power(keeps=0)
    one.model.lose_power()
    one.disk.flip(one.model.batches[1].places[-1].file, 0)
    ring = one.start({})
    assert ring.last == 2
    for _ in range(2):
        one._put(ring, Record(life.KEPT, 0, 0, ring.filling, b"another"))
        ring.write(1)
    ring.sync()
    assert one._write(ring)
    one._leave(ring)
    one.disk.cut_power()
    one.model.lose_power()
    for number in (3, 4):
        place = one.model.batches[number].places[-1]
        one.disk.flip(place.file, place.at)
    one.start({})  # each record of 4 is whole where it was written, and judged


@pytest.mark.slow
@pytest.mark.timeout(120)
@pytest.mark.parametrize("is_interval", [False, True])
def test_every_call_of_a_real_run(tmp_path, is_interval):
    """Recorded on a real folder; the states are made of what was synced, and any sectors of what was not."""
    folder, seed = str(tmp_path / "ring"), seeds("boundaries", 1)[0]
    print(f"NSQFAST_SEED={os.environ['NSQFAST_SEED']}")
    recorded = RecordedLife(seed, folder, is_interval=is_interval)
    calls = recorded.record(40)
    replay = Replay(folder, seed, is_interval=is_interval)
    replay.play(calls, recorded.align)
    print(f"{len(calls)} calls, {replay.states} states")
    assert replay.states > 3 * len(calls)


@pytest.mark.trust
@pytest.mark.timeout(300)
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda one: one.name.replace(" ", "-"))
def test_lives_show_a_mutant(mutant, tmp_path):
    build(mutant, tmp_path)
    played = play_mutant(tmp_path, LIVES_OF_MUTANT_MAX)
    print(f"\n{mutant.name}: {played.stdout.strip()}")
    assert played.returncode == FOUND, played.stderr
    Life(int(played.stdout.split()[0])).play()  # as it is, the ring has a way through it
