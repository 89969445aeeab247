"""What a broker with a commit log defers for long, over kills at any moment: it comes at its time, and once."""

import pytest
from nsqfast._ext.dev.probes import keep_deferred

from ext.test_log_kept import (  # noqa: F401
    HOUR_MS,
    HOUR_S,
    MODES,
    folder,
    numbered,
    open_scene,
    play_killed,
    true_wall,
)
from support.broker_life import WAIT_S, run_turn


@pytest.fixture(autouse=True)
def few_in_memory():
    keep_deferred(3)
    yield
    keep_deferred(1000)


def make_checkpoint(scene):
    store = scene.registry.durability.store
    count = store.log_figures()["checkpoint_count"]
    store.on_checkpoint(0)
    for _ in range(WAIT_S * 100):
        run_turn(scene.registry, 0.01)
        if store.log_figures()["checkpoint_count"] > count:
            return
    raise AssertionError("no checkpoint")


def defer(scene, *numbers):
    """Each is due a second after the one before, the last within the hour."""
    for number in numbers:
        scene.publish(b"%d" % number, delay_ms=HOUR_MS - 100_000 + 1000 * number)
    for _ in range(3):
        run_turn(scene.registry)


@pytest.mark.parametrize("memory", [0, 1000])
@pytest.mark.parametrize("mode", MODES)
def test_some_have_records_and_some_the_log_has(folder, open_scene, mode, memory):  # noqa: F811
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
