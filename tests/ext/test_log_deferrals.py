"""What a broker with a commit log defers for long, over kills at any moment: it comes at its time, and once."""

import random

import pytest
from nsqfast._ext.dev.probes import keep_deferred, let_pass, limit_recent, used_bytes

from ext.test_durable import size_on_disk
from support.broker_life import run_turn, sized
from support.core import SECOND_NS
from support.log_scene import (
    HOUR_MS,
    HOUR_S,
    MODES,
    Scene,
    make_checkpoint,
    numbered,
    play_killed,
)
from support.seeds import seeds


@pytest.fixture(autouse=True)
def few_in_memory():
    keep_deferred(3)
    yield
    keep_deferred(1000)
    limit_recent(32 << 20)


def defer(scene, *numbers):
    """Each is due a second after the one before, the last within the hour."""
    for number in numbers:
        scene.publish(b"%d" % number, delay_ms=HOUR_MS - 100_000 + 1000 * number)
    for _ in range(3):
        run_turn(scene.registry)


@pytest.mark.parametrize("memory", [0, 1000])
@pytest.mark.parametrize("mode", MODES)
def test_some_have_records_and_some_the_log_has(folder, open_scene, mode, memory):
    def work(scene, first):
        scene.channel("c")
        assert scene.counts() == (0, 0, first)
        defer(scene, *range(first, first + 20))
        make_checkpoint(scene)
        defer(scene, *range(first + 20, first + 40))
        scene.commit()

    for first in (0, 40):
        play_killed(folder, mode, lambda scene, one=first: work(scene, one), mem_queue_size=memory)
    for _ in range(2):
        scene = open_scene(mode, mem_queue_size=memory)
        assert scene.counts() == (0, 0, 80)
        scene.stop()
    scene = open_scene(mode, mem_queue_size=memory)
    taker = scene.consumer()
    scene.pass_s(HOUR_S - 300)
    assert taker.take() == []
    scene.pass_s(300, HOUR_S)
    assert taker.take_all(80) == numbered(*range(80))
    assert scene.counts() == (0, 0, 0)


SMALL = 50_000
# All that is put goes to files at once, and the sizes are a six-hundredth of what they are.
FILES = {"mem_queue_size": 0, "max_bytes_per_file": SMALL, "sync_timeout_ns": SECOND_NS // 100}
KEPT_MAX = 2 * SMALL + 3 * SMALL


def run_through(scene, taker, count=400):
    """So many kilobytes are published, and all but what is held is finished."""
    for _ in range(count // 20):
        scene.publish(*[b"x" * 1000] * 20)
        finish_all(taker)
    for _ in range(4):
        scene.registry.timers.run(let_pass(SECOND_NS // 50))
        run_turn(scene.registry)
    finish_all(taker)


def finish_all(taker):
    for kind, data in taker.decode_all():
        if kind == 2 and data[26:27] == b"x":
            taker.send(b"FIN %s\n" % data[10:26])


def kept(scene):
    """What is left of its files, which later turns remove."""
    for _ in range(20):
        scene.registry.timers.run(let_pass(SECOND_NS // 50))
        run_turn(scene.registry)
    return size_on_disk(scene.folder, "t:c")


@pytest.mark.parametrize("mode", MODES)
def test_what_is_held_for_long_keeps_no_files(folder, open_scene, mode):
    """Deferred ones on disk alone and in memory, one that a consumer gave back, and one that is in flight."""

    def work(scene):
        limit_recent(SMALL)
        scene.channel("c")
        defer(scene, *range(10))
        other = scene.consumer(rdy=2)
        scene.publish(b"again", b"held")
        assert sorted(other.bodies(2)) == [b"again", b"held"]
        other.requeue(b"again", HOUR_MS)
        taker = scene.consumer()
        other.send(b"RDY 0\n")
        run_through(scene, taker)
        assert kept(scene) > KEPT_MAX
        make_checkpoint(scene)
        assert kept(scene) < KEPT_MAX
        for _ in range(3):
            run_through(scene, taker)
            make_checkpoint(scene)
        assert scene.counts() == (0, 1, 11)
        assert kept(scene) < KEPT_MAX
        run_through(scene, taker)  # written again since the last checkpoint
        scene.commit()

    play_killed(folder, mode, work, **FILES)
    scene = open_scene(mode, **FILES)
    assert scene.counts() == (1, 0, 11)
    taker = scene.consumer()
    assert taker.take() == [(b"held", 1)]
    taker.finish(b"held")
    scene.pass_s(HOUR_S - 300)
    assert taker.take() == []
    scene.pass_s(301, HOUR_S + 1)
    assert sorted(taker.take(11)) == sorted(
        [(b"again", 2)] + [(one, 1) for one in numbered(*range(10))]
    )


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds("renewals", 4))
def test_a_kill_at_any_moment(folder, open_scene, seed):
    dice = random.Random(seed)
    mode = dice.choice(MODES)

    def begin(scene):
        scene.channel("c")
        defer(scene, *range(30))

    def work(scene):
        limit_recent(SMALL)
        taker = scene.consumer(rdy=20)
        assert scene.counts()[2] == 30
        finish_all(taker)
        while True:
            run_through(scene, taker, dice.choice([20, 200]))
            if dice.random() < 0.3:
                make_checkpoint(scene)

    play_killed(folder, mode, begin, **FILES)
    for _ in range(12):
        play_killed(folder, mode, work, alarm_s=dice.uniform(0.02, 0.6), **FILES)
    scene = open_scene(mode, **FILES)
    taker = scene.consumer()
    while scene.counts()[:2] != (0, 0):  # a last batch that was not finished
        finish_all(taker)
        run_turn(scene.registry)
    assert scene.counts()[2] == 30
    scene.pass_s(HOUR_S - 300)
    assert taker.take() == []
    scene.pass_s(300, HOUR_S)
    assert sorted(taker.take(30)) == sorted((body, 1) for body in numbered(*range(30)))
    assert taker.take() == []


TELLS = sized(b'{"nsqfast_deferred_ids":true,"feature_negotiation":true}')


@pytest.mark.parametrize("mode", ["off", *MODES])
def test_a_start_knows_whose_publisher_was_told(tmp_path, mode):
    """Only those are listed by id, which takes memory, and only they can be cancelled."""

    def work(scene, more):
        scene.channel("c")
        scene.producer.send(b"IDENTIFY\n" + TELLS)
        scene.answers(1)
        ids = []
        for _ in range(2):
            for number in range(500):
                scene.producer.send(b"DPUB t %d%s\n" % (HOUR_MS - number, more) + sized(b"late"))
            ids += [answer[3:].decode() for _, answer in scene.answers(500)]
            run_turn(scene.registry)
            if mode != "off":
                make_checkpoint(scene)
        if mode == "off":
            scene.stop()
        return ids

    used = {}
    for more in (b"", b" id"):
        data = tmp_path / f"data{more.decode().strip()}"
        data.mkdir()
        ids = play_killed(data, mode, lambda scene, one=more: work(scene, one))
        for _ in range(2):
            before = used_bytes()
            scene = Scene(data, mode)
            used[more] = used_bytes() - before
            assert scene.counts() == (0, 0, len(ids))
            scene.producer.send(b"IDENTIFY\n" + TELLS)
            scene.answers(1)
            for _ in range(2 if more else 0):
                scene.producer.send(b"CANCEL_DEFERRED t %s\n" % ids.pop().encode())
                assert scene.answers(1) == [(0, b"OK 1")]
            scene.stop()
    assert used[b" id"] - used[b""] >= 1000 * 16
