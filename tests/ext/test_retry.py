"""A policy's retry: what fails waits longer and longer."""

import pytest
from nsqfast._ext.broker.retry import Retry
from nsqfast._ext.dev.probes import let_pass

from support.broker_life import TIMEOUT_NS
from support.core import SECOND_NS, Peer, make_registry
from support.log_scene import MODES, Scene, play_killed

TIMEOUT_S = TIMEOUT_NS // SECOND_NS
WAITS_S = (1000, 3000, 9000, 9000)


def begin(scene):
    """A channel with a message that waits 1,000 s, 3,000 s, and 9,000 s from then on; its consumer has it."""
    scene.channel().retry = Retry(1000 * SECOND_NS, 9000 * SECOND_NS, 3, 0)
    scene.publish(b"x")
    taker = scene.consumer()
    assert taker.take(1) == [(b"x", 1)]
    return taker


@pytest.fixture
def begun(tmp_path):
    scene = Scene(tmp_path, "off")
    yield scene, begin(scene)
    scene.stop()


def pass_s(scene, seconds):
    scene.registry.timers.run(let_pass(round(seconds * SECOND_NS)))


def expect_after(scene, taker, seconds, attempts):
    pass_s(scene, seconds - 0.5)
    assert taker.take() == []
    assert scene.counts() == (0, 0, 1)
    pass_s(scene, 0.5)
    assert taker.take(1) == [(b"x", attempts)]


def test_given_back(begun):
    scene, taker = begun
    for attempts, wait_s in enumerate(WAITS_S, 2):
        taker.requeue(b"x")
        expect_after(scene, taker, wait_s, attempts)
    # Its consumer knows better.
    taker.requeue(b"x", 50_000)
    expect_after(scene, taker, 50, 6)


def test_timed_out(begun):
    scene, taker = begun
    for attempts, wait_s in enumerate(WAITS_S, 2):
        pass_s(scene, TIMEOUT_S)
        expect_after(scene, taker, wait_s, attempts)


def test_a_consumer_that_leaves_has_not_failed(begun):
    scene, taker = begun
    other = scene.consumer()
    taker.close()
    assert other.take(1) == [(b"x", 2)]


def test_without_it_all_comes_back_at_once(begun):
    scene, taker = begun
    scene.channel().retry = None
    taker.requeue(b"x")
    assert taker.take(1) == [(b"x", 2)]


@pytest.mark.parametrize("mode", MODES)
def test_a_kill_while_it_waits(folder, open_scene, mode):
    """Its deadline and attempts are kept, and do not need the policy."""

    def work(scene):
        begin(scene)
        pass_s(scene, TIMEOUT_S)
        assert scene.counts() == (0, 0, 1)
        scene.commit()

    play_killed(folder, mode, work)
    scene = open_scene(mode)
    taker = scene.consumer()
    scene.pass_s(900)
    assert taker.take() == []
    scene.pass_s(100, 1000)
    assert taker.take(1) == [(b"x", 2)]


@pytest.mark.parametrize("jitter", [0.2, 1])
def test_jitter(tmp_path, jitter):
    registry = make_registry(tmp_path)
    channel = registry.topics.ensure("t").channel("c")
    channel.retry = Retry(100 * SECOND_NS, 100 * SECOND_NS, 1, jitter)
    peer = Peer(registry)
    peer.subscribe(b"t", b"c", 1000)
    bodies = b"".join((1).to_bytes(4, "big") + b"x" for _ in range(1000))
    body = (1000).to_bytes(4, "big") + bodies
    peer.send(b"MPUB t\n" + len(body).to_bytes(4, "big") + body)
    registry.turn.end()
    ids = [data[10:26] for kind, data in peer.receive() if kind == 2]
    assert len(ids) == 1000
    peer.send(b"".join(b"REQ %s 0\n" % id for id in ids))
    tenths = []
    for _ in range(10):
        registry.timers.run(let_pass(round(10 * SECOND_NS)))
        tenths.append(1000 - channel.deferred_count)
        registry.turn.end()
        peer.receive()
    # By chance: within six standard deviations.
    for number, count in enumerate(tenths, 1):
        expected = 1000 * max(number / 10 - (1 - jitter), 0) / jitter
        assert abs(count - expected) <= 100
    registry.topics.close()
