"""A policy pauses a channel whose deliveries fail, and tries one message after a while."""

import pytest
from nsqfast._ext.broker.breaker import Breaker
from nsqfast._ext.dev.probes import let_pass

from support.broker_life import TIMEOUT_NS
from support.core import SECOND_NS
from support.log_scene import Scene, numbered

WINDOW_S, PAUSE_S = 100, 50
LEAST = 10


@pytest.fixture
def scene(tmp_path):
    scene = Scene(tmp_path, "off")
    scene.channel().breaker = Breaker(0.5, WINDOW_S * SECOND_NS, PAUSE_S * SECOND_NS)
    yield scene
    scene.stop()


def pass_s(scene, seconds):
    scene.registry.timers.run(let_pass(round(seconds * SECOND_NS)))


def give_back(taker, bodies):
    for body in bodies:
        taker.requeue(body, 3_600_000)


def open_it(scene):
    """Ten failed; more have come since. The consumer."""
    scene.publish(*numbered(*range(LEAST)))
    taker = scene.consumer(rdy=LEAST)
    give_back(taker, taker.bodies(LEAST))
    assert scene.channel().breaker.is_open
    scene.publish(*numbered(*range(LEAST, 3 * LEAST)))
    assert taker.take() == []
    return taker


def test_after_a_pause_it_tries_one(scene):
    taker = open_it(scene)
    pass_s(scene, PAUSE_S - 1)
    assert taker.take() == []
    pass_s(scene, 1)
    (tried,) = taker.bodies(1)
    pass_s(scene, 1)
    assert taker.take() == []
    give_back(taker, [tried])
    assert taker.take() == []
    pass_s(scene, PAUSE_S)
    (tried,) = taker.bodies(1)
    taker.finish(tried)
    assert len(taker.bodies(LEAST)) == LEAST
    breaker = scene.channel().breaker
    assert (breaker.is_open, breaker.open_count) == (False, 1)


def test_few_failures_say_nothing(scene):
    scene.publish(*numbered(*range(30)))
    taker = scene.consumer(rdy=30)
    bodies = taker.bodies(30)
    give_back(taker, bodies[: LEAST - 1])
    assert not scene.channel().breaker.is_open
    taker.finish(*bodies[LEAST - 1 : 2 * LEAST])  # now 9 of 20
    give_back(taker, bodies[2 * LEAST : 2 * LEAST + 1])
    assert not scene.channel().breaker.is_open  # 10 of 21
    give_back(taker, bodies[2 * LEAST + 1 : 2 * LEAST + 2])
    assert scene.channel().breaker.is_open  # 11 of 22


def test_a_window_ends(scene):
    scene.publish(*numbered(*range(30)))
    taker = scene.consumer(rdy=30)
    bodies = taker.bodies(30)
    give_back(taker, bodies[: LEAST - 1])
    pass_s(scene, WINDOW_S)
    give_back(taker, bodies[LEAST - 1 : 2 * LEAST - 2])
    assert not scene.channel().breaker.is_open
    give_back(taker, bodies[2 * LEAST - 2 : 2 * LEAST - 1])
    assert scene.channel().breaker.is_open


def test_time_outs_are_failures(scene):
    scene.publish(*numbered(*range(LEAST)))
    taker = scene.consumer(rdy=LEAST)
    taker.bodies(LEAST)
    pass_s(scene, TIMEOUT_NS // SECOND_NS)
    assert scene.channel().breaker.is_open
    assert scene.counts() == (LEAST, 0, 0)
    pass_s(scene, PAUSE_S)
    assert len(taker.take()) == 1


def test_what_was_in_flight_does_not_decide(scene):
    scene.publish(*numbered(*range(20)))
    taker = scene.consumer(rdy=20)
    bodies = taker.bodies(20)
    give_back(taker, bodies[:LEAST])
    assert scene.channel().breaker.is_open
    taker.finish(bodies[LEAST])
    give_back(taker, bodies[LEAST + 1 : LEAST + 2])
    assert scene.channel().breaker.is_open
    scene.publish(*numbered(*range(20, 40)))
    pass_s(scene, PAUSE_S)
    assert taker.take() == []  # one is tried when these have ended
    taker.close()
    assert len(scene.consumer(rdy=20).take()) == 1


def test_the_one_that_is_tried_and_its_consumer_goes(scene):
    taker = open_it(scene)
    other = scene.consumer(rdy=LEAST)
    pass_s(scene, PAUSE_S)
    tried, holder = next((one, each) for each in (taker, other) for one in each.bodies())
    holder.close()
    ((again, attempts),) = (other if holder is taker else taker).take()
    assert attempts == 1 or again == tried
    assert scene.channel().breaker.is_open


def test_without_the_policy_it_goes_on_at_once(scene):
    taker = open_it(scene)
    scene.channel().breaker = None
    scene.channel().set_flow(0, 0)
    assert len(taker.bodies(LEAST)) == LEAST
