"""A broker with a commit log whose clock is set a day ahead or back: while it runs, and while it is down."""

import pytest
from nsqfast._ext.core.clock import now
from nsqfast._ext.dev.probes import shift_wall

from support.broker_life import TIMEOUT_NS
from support.core import SECOND_NS
from support.log_scene import HOUR_MS, HOUR_S, MODES, numbered, play_killed

DAY_S = 24 * HOUR_S
# Longer than the step, so that a message is early by no more than that.
DELAY_H = 30
OPTIONS = {"max_req_timeout_ns": DELAY_H * HOUR_S * SECOND_NS}

steps = pytest.mark.parametrize("step_s", [DAY_S, -DAY_S], ids=["ahead", "back"])
modes = pytest.mark.parametrize("mode", MODES)
memories = pytest.mark.parametrize("memory", [0, 1000])


def set_clock(step_s):
    shift_wall(step_s * SECOND_NS)


def defer(scene):
    """One by its publisher, one by its consumer, one of a topic without a channel; return the consumer."""
    scene.channel("c")
    scene.publish(b"requeued")
    scene.publish(b"deferred", delay_ms=DELAY_H * HOUR_MS)
    scene.publish(b"deferred", topic=b"u", delay_ms=DELAY_H * HOUR_MS)
    taker = scene.consumer()
    assert taker.bodies(1) == [b"requeued"]
    taker.requeue(b"requeued", DELAY_H * HOUR_MS)
    scene.commit()
    return taker


def see_due(scene, step_s, hours):
    """All are due in so many hours, which are nearly over at one moment, and over at the next."""
    takers = scene.consumer(), scene.consumer(topic=b"u")
    assert [taker.take() for taker in takers] == [[], []]
    early_s = hours * HOUR_S - 60
    scene.pass_s(early_s, step_s + early_s)
    assert [taker.take() for taker in takers] == [[], []]
    scene.pass_s(120, step_s + early_s + 120)
    assert sorted(takers[0].take(2)) == [(b"deferred", 1), (b"requeued", 2)]
    assert takers[1].take(1) == [(b"deferred", 1)]


@steps
@modes
@memories
def test_a_broker_that_runs_does_not_mind(open_scene, mode, memory, step_s):
    scene = open_scene(mode, mem_queue_size=memory, **OPTIONS)
    first = defer(scene)
    scene.publish(b"in flight", topic=b"v")
    holder = scene.consumer(topic=b"v")
    assert holder.bodies(1) == [b"in flight"]
    set_clock(step_s)
    assert holder.take() == []
    timeout_s = TIMEOUT_NS // SECOND_NS
    scene.pass_s(timeout_s - 1, step_s)
    assert holder.take() == []
    scene.pass_s(2, step_s)
    assert holder.take(1) == [(b"in flight", 2)]
    holder.finish(b"in flight")
    takers = first, scene.consumer(topic=b"u")
    passed_s = timeout_s + 1
    scene.pass_s(DELAY_H * HOUR_S - passed_s - 60, step_s)
    assert [taker.take() for taker in takers] == [[], []]
    scene.pass_s(120, step_s)
    assert sorted(takers[0].take(2)) == [(b"deferred", 1), (b"requeued", 2)]
    # Its delay begins with the channel.
    assert takers[1].take() == []
    scene.pass_s(passed_s, step_s)
    assert takers[1].take(1) == [(b"deferred", 1)]


@steps
@modes
@memories
@pytest.mark.parametrize("is_running", [False, True])
def test_a_step_and_a_kill(folder, open_scene, mode, memory, step_s, is_running):
    """A deadline in the log is of the clock as it was: the step makes it that much earlier, or later."""

    def work(scene):
        defer(scene)
        if is_running:
            set_clock(step_s)
            scene.commit()

    play_killed(folder, mode, work, mem_queue_size=memory, **OPTIONS)
    set_clock(step_s)
    scene = open_scene(mode, mem_queue_size=memory, **OPTIONS)
    see_due(scene, step_s, DELAY_H - step_s // HOUR_S)


@pytest.mark.slow
@steps
@modes
@memories
def test_a_checkpoint_between_a_step_and_a_kill(folder, open_scene, mode, memory, step_s):
    """It says deadlines anew, so nothing of the step is left."""
    options = OPTIONS | {"mem_queue_size": memory}

    def work(scene):
        defer(scene)
        set_clock(step_s)
        filler = scene.channel("c", "filler")
        while scene.registry.durability.store.log_figures()["checkpoint_count"] == 0:
            scene.publish(b"x" * 100_000, topic=b"filler")
            filler.empty()
        scene.commit()

    play_killed(folder, mode, work, **options)
    set_clock(step_s)
    see_due(open_scene(mode, **options), step_s, DELAY_H)


@steps
@modes
@memories
def test_a_step_and_a_clean_stop(open_scene, mode, memory, step_s):
    """A stop writes deadlines anew, by the clock as it is; a step after it counts."""
    scene = open_scene(mode, mem_queue_size=memory, **OPTIONS)
    defer(scene)
    set_clock(step_s)
    scene.stop()
    for other in ("off", mode):
        scene = open_scene(other, mem_queue_size=memory, **OPTIONS)
        assert scene.counts() == (0, 0, 2)
        scene.stop()
    scene = open_scene(mode, mem_queue_size=memory, **OPTIONS)
    see_due(scene, step_s, DELAY_H)


@steps
@modes
@memories
def test_a_step_while_it_is_stopped(open_scene, mode, memory, step_s):
    scene = open_scene(mode, mem_queue_size=memory, **OPTIONS)
    defer(scene)
    scene.stop()
    set_clock(step_s)
    scene = open_scene(mode, mem_queue_size=memory, **OPTIONS)
    see_due(scene, step_s, DELAY_H - step_s // HOUR_S)


# -- ids, which are of the clock, too ----------------------------------------------------------------------------------


def publish_at_once(scene, bodies, start_ns=None):
    """From that time of the wall clock on; return when it began."""
    if start_ns is not None:
        shift_wall(0)
        shift_wall(start_ns - now()[0])
    began_ns = now()[0]
    scene.publish(*bodies)
    return began_ns


OLD, NEW = numbered(*range(2000)), numbered(*range(2000, 4000))


@modes
@memories
@pytest.mark.parametrize("is_killed", [False, True])
def test_ids_of_a_clock_that_was_set_back(folder, open_scene, mode, memory, is_killed):
    """What is published in the same moment once more has other ids: after a kill no FIN is that of another message."""
    options = {"mem_queue_size": memory}

    def write(scene):
        scene.channel("c")
        return publish_at_once(scene, OLD)

    if is_killed:
        start_ns = play_killed(folder, mode, write, **options)
    else:
        scene = open_scene(mode, **options)
        start_ns = write(scene)
        scene.stop()

    play_killed(folder, mode, lambda scene: take_new(scene, start_ns), **options)
    scene = open_scene(mode, **options)
    assert scene.counts() == (len(OLD), 0, 0)
    assert sorted(scene.consumer().bodies(len(OLD))) == sorted(OLD)


def take_new(scene, start_ns):
    """Publish the new ones, take all, and finish them alone."""
    publish_at_once(scene, NEW, start_ns)
    takers = [scene.consumer() for _ in range(2)]
    got = [taker.bodies() for taker in takers]
    while sum(map(len, got)) < len(OLD) + len(NEW):
        for taker, bodies in zip(takers, got, strict=True):
            bodies.extend(taker.bodies())
    for taker, bodies in zip(takers, got, strict=True):
        taker.finish(*(body for body in bodies if int(body) >= len(OLD)))
    scene.commit()
