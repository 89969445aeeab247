"""Dead letters go back: each is in one place at any time."""

import time

import pytest
from nsqfast._ext.broker.redrive import Redrive

from support.log_scene import MODES, make_checkpoint, play_killed

DEAD = b"t.c.dead"


def letters(scene, *bodies):
    scene.channel()
    scene.publish(*bodies, topic=DEAD)
    return scene.topic(DEAD.decode())


def redrive(scene, source, needle=b"", **more):
    return Redrive(source, scene.topic(), scene.channel(), needle, **more)


def bodies(count):
    return [b"%d" % number for number in range(count)]


def move(scene, redrive, most=10**6, choices=None):
    """Until nothing is left."""
    for _ in range(10_000):
        if not redrive.left_count or not most:
            return
        before = redrive.moved_count
        redrive.go_on(most, choices)
        most -= redrive.moved_count - before
        scene.registry.turn.end()
    raise AssertionError(f"{redrive.left_count} are left")


@pytest.fixture(params=[0, 10_000])
def scene(request, open_scene):
    return open_scene("off", mem_queue_size=request.param)


@pytest.mark.parametrize("count", [1, 63, 64, 65, 1000])
def test_all_go_back_in_order(scene, count):
    topic = letters(scene, *bodies(count))
    scene.publish(b"other")
    moving = redrive(scene, topic)
    move(scene, moving)
    assert (moving.moved_count, topic.depth) == (count, 0)
    taker = scene.consumer()
    assert taker.take_all(count + 1) == [b"other", *bodies(count)]


def test_those_of_a_channel(scene):
    topic = letters(scene)
    channel = topic.channel("archive")
    scene.publish(*bodies(10), topic=DEAD)
    move(scene, redrive(scene, channel), 4)
    assert (channel.depth, scene.counts()) == (6, (4, 0, 0))


def test_those_with_a_text(scene):
    topic = letters(scene, b"user 17", b"user 18", b"user 171")
    moving = redrive(scene, topic, b"17")
    move(scene, moving)
    assert (moving.moved_count, topic.depth) == (2, 1)
    assert scene.consumer().bodies(2) == [b"user 17", b"user 171"]


def test_those_chosen(scene):
    """What was not looked at stays, and is examined later."""
    topic = letters(scene, *bodies(6))
    topic.channel("c")
    taker = scene.consumer(b"c", DEAD)
    taker.take(6)
    ids = {body: int(taker.ids[body], 16) for body in bodies(6)}
    taker.close()
    scene.registry.timers.run(10**18)
    channel = topic.find_channel("c")
    assert channel.depth == 6
    moving = redrive(scene, channel)
    moving.go_on(10, {ids[b"0"]: True, ids[b"1"]: False, ids[b"5"]: True})
    assert (moving.moved_count, moving.left_count) == (1, 4)
    moving.go_on(10, dict.fromkeys(ids.values(), True))
    assert (moving.moved_count, moving.left_count, channel.depth) == (5, 0, 1)


def test_those_that_are_deleted(scene):
    """Those with the text go for ever, the others stay, and the channel gets none; it may be full."""
    topic = letters(scene, *bodies(200))
    scene.publish(b"other")
    scene.topic().set_limits(scene.channel(), 1, 0, False)
    deleting = redrive(scene, topic, b"1", deletes=True)
    move(scene, deleting)
    left = [body for body in bodies(200) if b"1" not in body]
    assert (deleting.moved_count, topic.depth, scene.counts()) == (
        200 - len(left),
        len(left),
        (1, 0, 0),
    )
    topic.channel("c")
    assert scene.consumer(b"c", DEAD).take_all(len(left)) == left


def test_what_came_later_stays(scene):
    topic = letters(scene, *bodies(10))
    until_ns = time.time_ns()
    while time.time_ns() == until_ns:
        pass
    scene.publish(*bodies(5), topic=DEAD)
    for deletes in (False, True):
        moving = redrive(scene, topic, deletes=deletes, until_ns=until_ns)
        move(scene, moving)
        assert (moving.moved_count, topic.depth) == (0 if deletes else 10, 5)


def test_a_full_channel_is_waited_for(scene):
    topic = letters(scene, *bodies(10))
    scene.topic().set_limits(scene.channel(), 3, 0, False)
    moving = redrive(scene, topic)
    while moving.go_on(10):
        pass
    assert (moving.moved_count, topic.depth) == (3, 7)
    taker = scene.consumer()
    taker.take_all(3)
    taker.close()
    while moving.go_on(10):
        pass
    assert (moving.moved_count, topic.depth) == (6, 4)


def test_a_deleted_channel(scene):
    topic = letters(scene, *bodies(3))
    moving = redrive(scene, topic)
    scene.topic().delete_channel("c")
    assert moving.is_gone
    assert moving.go_on(10)
    assert (moving.moved_count, topic.depth) == (0, 3)


@pytest.mark.parametrize("is_channel", [False, True])
def test_deleted_dead_letters(scene, is_channel):
    topic = letters(scene, *bodies(3))
    source = topic.channel("a") if is_channel else topic
    moving = redrive(scene, source)
    assert moving.left_count == 3
    if is_channel:
        topic.delete_channel("a")
    else:
        scene.registry.topics.delete(DEAD.decode())
    assert moving.is_gone
    moving.go_on(10)
    assert moving.moved_count == 0


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("memory", [0, 10_000])
@pytest.mark.parametrize("has_checkpoint", [False, True])
@pytest.mark.parametrize("deletes", [False, True])
def test_a_kill(folder, open_scene, mode, memory, has_checkpoint, deletes):
    """What went back is in the channel alone, what was deleted nowhere, and the rest where it was."""

    def work(scene):
        topic = letters(scene, *bodies(1000))
        moving = redrive(scene, topic, deletes=deletes)
        move(scene, moving, 300)
        if has_checkpoint:
            make_checkpoint(scene)
        move(scene, moving, 300)
        scene.commit()

    play_killed(folder, mode, work, mem_queue_size=memory)
    scene = open_scene(mode, mem_queue_size=memory)
    topic = scene.topic(DEAD.decode())
    count = 0 if deletes else 600
    assert (topic.depth, scene.counts()) == (400, (count, 0, 0))
    assert sorted(scene.consumer().take_all(count), key=int) == bodies(count)
    topic.channel("c")
    assert sorted(scene.consumer(b"c", DEAD).take_all(400), key=int) == bodies(1000)[600:]
