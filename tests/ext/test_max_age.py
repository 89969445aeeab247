"""A policy's max_age: what waits for too long goes, whether anybody looks at it or not."""

import pytest
from nsqfast._ext.broker.dead_letter_topic import DeadLetterTopic

from support.core import SECOND_NS
from support.log_scene import MODES, make_checkpoint, play_killed

AGE_S = 100


def limit(scene, age_s=AGE_S):
    scene.channel().set_age(age_s * SECOND_NS)
    return scene.channel()


@pytest.fixture(params=[0, 10_000])
def scene(request, open_scene):
    return open_scene("off", mem_queue_size=request.param)


class Clock:
    """Of a scene: both clocks go on together."""

    def __init__(self, scene):
        self.scene, self.passed_s = scene, 0

    def go(self, seconds):
        self.passed_s += seconds
        self.scene.pass_s(seconds, self.passed_s)
        self.scene.registry.turn.end()


def test_nobody_looks(scene):
    channel, clock = limit(scene), Clock(scene)
    scene.publish(b"a", b"b")
    clock.go(60)
    scene.publish(b"c")
    clock.go(39)
    assert channel.depth == 3
    clock.go(2)
    assert (channel.depth, channel.expired_count) == (1, 2)
    assert scene.registry.durability.store.expired_count == 2
    clock.go(60)
    assert (channel.depth, channel.expired_count, channel.dropped_count) == (0, 3, 0)


def test_what_is_there_already(scene):
    clock = Clock(scene)
    scene.channel()
    scene.publish(b"a")
    clock.go(200)
    scene.publish(b"b")
    assert limit(scene).depth == 1
    assert scene.consumer().bodies(1) == [b"b"]


def test_a_topic_without_channels(scene):
    clock = Clock(scene)
    scene.topic().set_age(AGE_S * SECOND_NS)
    scene.publish(b"a")
    clock.go(101)
    assert (scene.topic().depth, scene.topic().expired_count) == (0, 1)


def test_what_is_in_flight_has_time(scene):
    clock = Clock(scene)
    limit(scene, 5)
    scene.publish(b"a", b"b")
    taker = scene.consumer()
    taker.take(2)
    clock.go(6)
    taker.finish(b"a")
    taker.requeue(b"b")
    scene.registry.turn.end()
    clock.go(0)
    assert taker.take() == []
    assert scene.counts() == (0, 0, 0)
    assert scene.channel().expired_count == 1


def test_a_paused_channel(scene):
    channel, clock = limit(scene), Clock(scene)
    channel.pause()
    scene.publish(b"a")
    clock.go(101)
    assert channel.depth == 0


@pytest.mark.parametrize("is_shared", [False, True])
def test_a_deferred_one_is_as_old_as_it_is_due(scene, is_shared):
    """Other channels see when it was published."""
    channel, clock = limit(scene), Clock(scene)
    if is_shared:
        scene.channel("d")
    scene.publish(b"late", delay_ms=200_000)
    clock.go(201)
    assert scene.counts() == (1, 0, 0)
    clock.go(98)
    assert channel.depth == 1
    clock.go(3)
    assert channel.depth == 0
    if is_shared:
        assert scene.consumer(b"d").bodies(1) == [b"late"]


def test_one_deferred_for_long(scene):
    """It is on disk alone meanwhile."""
    channel, clock = limit(scene), Clock(scene)
    scene.publish(*(b"%d" % number for number in range(1200)), delay_ms=3_600_000)
    clock.go(3601)
    assert channel.depth == 1200
    clock.go(98)
    assert channel.depth == 1200
    clock.go(10)
    for _ in range(100):
        scene.registry.timers.run(10**18)
    assert (channel.depth, channel.expired_count) == (0, 1200)


def test_they_may_die(scene):
    channel, clock = limit(scene), Clock(scene)
    channel.dead_letters = DeadLetterTopic(
        scene.registry.topics, "t", "c", "dead", takes_dropped=True
    )
    scene.publish(b"a")
    clock.go(101)
    assert (channel.depth, channel.expired_count, channel.dead_counts["expired"]) == (0, 0, 1)
    assert scene.topic("dead").depth == 1


def test_they_stay_where_they_have_no_place(scene):
    channel, clock = limit(scene), Clock(scene)
    channel.dead_letters = DeadLetterTopic(
        scene.registry.topics, "t", "c", "dead", takes_dropped=True
    )
    scene.topic("dead").set_limits(None, 1, 0, False)
    scene.publish(b"a", b"b", b"c")
    clock.go(101)
    assert (scene.topic("dead").depth, sum(scene.counts())) == (1, 2)
    taker = scene.consumer()
    assert taker.take() == []
    scene.topic("dead").set_limits(None, 0, 0, False)
    clock.go(61)
    clock.go(61)
    assert (scene.topic("dead").depth, sum(scene.counts())) == (3, 0)
    assert taker.take() == []


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("memory", [0, 10_000])
@pytest.mark.parametrize("has_checkpoint", [False, True])
def test_a_kill(folder, open_scene, mode, memory, has_checkpoint):
    """What is due is as old after it as before."""

    def work(scene):
        clock = Clock(scene)
        limit(scene)
        scene.publish(b"old")
        scene.publish(b"late", delay_ms=200_000)
        clock.go(150)
        scene.publish(b"new")
        if has_checkpoint:
            make_checkpoint(scene)
        clock.go(60)
        assert scene.counts() == (2, 0, 0)
        scene.commit()

    play_killed(folder, mode, work, mem_queue_size=memory)
    scene = open_scene(mode, mem_queue_size=memory)
    clock = Clock(scene)
    clock.go(210)
    assert limit(scene).depth == 2
    clock.go(70)
    # A restart may have put it in front, where it hides the other one from who does not consume.
    taker = scene.consumer()
    assert taker.take_all(1) == [b"late"]
    assert scene.counts() == (0, 0, 0)
