"""A policy's max_failures: what fails so often goes to another topic, as an ordinary message."""

import pytest
from nsqfast._ext.broker.dead_letter_topic import DeadLetterTopic

from support.broker_life import TIMEOUT_NS, WAIT_S, run_turn
from support.core import SECOND_NS
from support.log_scene import MODES, Scene, make_checkpoint, play_killed

TIMEOUT_S = TIMEOUT_NS // SECOND_NS
DEAD = "t.c.dead"


@pytest.fixture
def scene(tmp_path):
    scene = Scene(tmp_path, "off")
    yield scene
    scene.stop()


def limit(scene, failures_max=3, name=DEAD, **options):
    channel = scene.channel()
    channel.dead_letters = DeadLetterTopic(scene.registry.topics, "t", "c", name, **options)
    channel.failures_max = failures_max
    return channel


def fail(taker, body=b"x", count=1, attempts=0):
    """Let it fail so often."""
    for number in range(count):
        assert taker.take(1) == [(body, attempts + number + 1)]
        taker.requeue(body)


def dead(scene, name=DEAD):
    """The bodies of dead letters, which are finished then."""
    topic = scene.registry.topics.find(name)
    if topic is None:
        return []
    count = topic.depth
    topic.channel("archive")
    taker = scene.consumer(b"archive", name.encode())
    got = taker.take_all(count) if count else []
    taker.close()
    return got


def test_given_back_so_often(scene):
    channel = limit(scene)
    scene.publish(b"x")
    taker = scene.consumer()
    fail(taker, count=3)
    assert taker.take() == []
    assert scene.counts() == (0, 0, 0)
    assert channel.dead_counts == {"failed": 1, "expired": 0, "over_limit": 0, "rejected": 0}
    assert scene.registry.topics.dead_counts == channel.dead_counts
    assert dead(scene) == [b"x"]


def test_timed_out_so_often(scene):
    limit(scene, 2)
    scene.publish(b"x")
    taker = scene.consumer()
    for attempts in (1, 2):
        assert taker.take(1) == [(b"x", attempts)]
        scene.pass_s(TIMEOUT_S, attempts * TIMEOUT_S)
    assert taker.take() == []
    assert dead(scene) == [b"x"]


def test_who_leaves_has_not_failed(scene):
    limit(scene, 2)
    scene.publish(b"x")
    for attempts in range(1, 6):
        taker = scene.consumer()
        assert taker.take(1) == [(b"x", attempts)]
        taker.close()
    taker = scene.consumer()
    fail(taker, count=2, attempts=5)
    assert dead(scene) == [b"x"]


@pytest.mark.parametrize("memory", [0, 100])
def test_failures_are_kept_over_a_stop(tmp_path, memory):
    """In records on disk as in memory, where Go finds its own format; a stop is none."""
    scene = Scene(tmp_path, "off", mem_queue_size=memory)
    limit(scene, 3)
    scene.publish(b"x")
    taker = scene.consumer()
    fail(taker, count=2)
    assert taker.take(1) == [(b"x", 3)]
    scene.stop()
    scene = Scene(tmp_path, "off", mem_queue_size=memory)
    limit(scene, 3)
    taker = scene.consumer()
    fail(taker, count=1, attempts=3)
    assert dead(scene) == [b"x"]
    scene.stop()


def test_they_are_not_counted_without_a_limit(scene):
    scene.publish(b"x")
    taker = scene.consumer()
    fail(taker, count=5)
    limit(scene, 1)
    fail(taker, attempts=5)
    assert dead(scene) == [b"x"]


def test_a_lower_limit_holds_at_once(scene):
    limit(scene, 5)
    scene.publish(b"x")
    taker = scene.consumer()
    fail(taker, count=2)
    taker.close()
    scene.channel().failures_max = 2
    taker = scene.consumer()
    assert taker.take() == []
    assert dead(scene) == [b"x"]


def test_a_dead_letter_does_not_die(scene):
    limit(scene, 1)
    scene.publish(b"x")
    fail(scene.consumer())
    topic = scene.registry.topics.find(DEAD)
    channel = topic.channel("again")
    channel.dead_letters = DeadLetterTopic(scene.registry.topics, DEAD, "again", "other")
    channel.failures_max = 1
    taker = scene.consumer(b"again", DEAD.encode())
    fail(taker, count=5)
    assert taker.take(1) == [(b"x", 6)]
    assert scene.registry.topics.find("other") is None


def test_where_the_topic_is_full_it_stays(scene):
    channel = limit(scene, 1)
    topic = scene.topic(DEAD)
    topic.set_limits(None, 1, 0, False)
    scene.publish(b"a", b"b", b"c")
    taker = scene.consumer()
    for body in taker.bodies(3):
        taker.requeue(body)
    assert taker.take() == []
    assert channel.dead_letters.refusal == "over limit"
    assert (topic.depth, scene.counts()) == (1, (0, 0, 2))
    topic.set_limits(None, 0, 0, False)
    scene.pass_s(2, 2)
    assert taker.take() == []
    assert (channel.dead_letters.refusal, scene.counts()) == (None, (0, 0, 0))
    assert sorted(dead(scene)) == [b"a", b"b", b"c"]


def test_a_name_that_is_too_long(scene):
    channel = limit(scene, 1, name="d" * 65)
    scene.publish(b"x")
    fail(scene.consumer())
    assert channel.dead_letters.refusal.startswith("d" * 65)
    assert scene.counts() == (0, 0, 1)


@pytest.mark.parametrize("takes_dropped", [False, True])
def test_what_a_limit_drops(scene, takes_dropped):
    limit(scene, takes_dropped=takes_dropped)
    scene.topic().set_limits(scene.channel(), 2, 0, True)
    scene.publish(b"a", b"b", b"c", b"d")
    assert dead(scene) == ([b"a", b"b"] if takes_dropped else [])
    assert scene.consumer().bodies(2) == [b"c", b"d"]


def test_what_a_limit_drops_stays_where_it_has_no_place(scene):
    channel = limit(scene, takes_dropped=True)
    scene.topic(DEAD).set_limits(None, 1, 0, False)
    scene.topic().set_limits(channel, 1, 0, True)
    scene.publish(*(b"%d" % number for number in range(8)))
    assert scene.topic(DEAD).depth == 1
    assert scene.counts() == (6, 0, 1)
    scene.topic(DEAD).set_limits(None, 0, 0, False)
    scene.pass_s(2, 2)
    assert sum(scene.counts()) == 1


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("has_checkpoint", [False, True])
@pytest.mark.parametrize("memory", [0, 100])
def test_a_kill(folder, open_scene, mode, has_checkpoint, memory):
    """What died is in one place, and the failures of what did not die are known."""

    def work(scene):
        limit(scene, 3)
        scene.publish(b"dies", b"lives")
        taker = scene.consumer()
        for number in range(3):
            assert sorted(taker.bodies(2)) == [b"dies", b"lives"]
            taker.requeue(b"dies")
            if number < 2:
                taker.requeue(b"lives")
                scene.commit()
            if has_checkpoint and number == 1:
                make_checkpoint(scene)
        scene.commit()

    play_killed(folder, mode, work, mem_queue_size=memory)
    scene = open_scene(mode, mem_queue_size=memory)
    limit(scene, 3)
    taker = scene.consumer()
    ((body, attempts),) = taker.take(1)
    # A checkpoint counts the delivery that it sees.
    assert (body, attempts) in ((b"lives", 3), (b"lives", 4))
    taker.requeue(b"lives")
    assert taker.take() == []
    assert sorted(dead(scene)) == [b"dies", b"lives"]


def test_more_dies_in_a_turn_than_the_log_takes(open_scene):
    """The rest follows as soon as the disk has taken some, without a checkpoint, and nobody hears of a refusal."""
    scene = open_scene("always")
    channel = limit(scene, 1)
    bodies = [b"%d " % number + b"x" * 20_000 for number in range(260)]
    for first in range(0, len(bodies), 50):
        scene.publish(*bodies[first : first + 50])
    taker = scene.consumer()
    assert len(taker.bodies(len(bodies))) == len(bodies)
    scene.pass_s(TIMEOUT_S, TIMEOUT_S)
    assert (scene.counts()[2] > 0, channel.dead_letters.refusal) == (True, None)
    for _ in range(WAIT_S * 1000):
        run_turn(scene.registry, 0.01)
        if scene.topic(DEAD).depth == len(bodies):
            break
    assert (scene.topic(DEAD).depth, scene.counts()) == (len(bodies), (0, 0, 0))
    assert channel.dead_letters.refusal is None
