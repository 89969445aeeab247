"""What is deferred for long is on disk alone: all that can be done to deferred messages can be done to it."""

import pytest
from nsqfast._ext.broker.picker import Picker
from nsqfast._ext.broker.snapshot import Snapshot
from nsqfast._ext.dev.probes import keep_deferred, let_pass

from ext.test_deferral_end import Told
from ext.test_durable import no_room, pub, size_on_disk
from ext.test_renewal import DURABLE, HOUR_MS, KEPT_MAX, ON_DISK, Scene, dpub
from support.core import counted_deliveries as count_all

IN_MEMORY = {"mem_queue_size": 10000}
modes = pytest.mark.parametrize(
    "mode", [IN_MEMORY, ON_DISK, DURABLE], ids=["memory", "on disk", "durable"]
)
KEPT = 3
COUNT = 50


BEFORE = [0]  # of other tests, whose brokers were never closed


def counted_deliveries():
    return count_all() - BEFORE[0]


@pytest.fixture(autouse=True)
def few_in_memory():
    BEFORE[0] = count_all()
    keep_deferred(KEPT)
    yield
    keep_deferred(1000)


def bodies(count=COUNT):
    return [b"late %d" % number for number in range(count)]


def leave(folder, mode, delay_ms=HOUR_MS, count=COUNT):
    """So many are deferred, later ones for longer, and all but a few are on disk alone."""
    scene = Scene(folder, **mode)
    for number, body in enumerate(bodies(count)):
        scene.producer.send(dpub(body, delay_ms + number * 1000))
    scene.turn()
    scene.turn()
    scene.producer.decode_all()
    assert scene.channel.deferred_count == count
    assert counted_deliveries() <= KEPT
    return scene


def peek(scene, **wanted):
    snapshot = Snapshot(scene.channel, "deferred", **wanted)
    if snapshot.needs_thread:
        snapshot.complete()
    return [snapshot.row(i) for i in range(len(snapshot))], snapshot


@modes
def test_they_come_when_they_are_due_in_order_and_once(tmp_path, mode):
    scene = leave(tmp_path, mode)
    scene.wait(HOUR_MS - 900_000)
    assert scene.seen == []
    scene.wait(1_200_000)
    assert scene.seen == [(body, 1) for body in bodies()]
    assert (scene.channel.deferred_count, scene.channel.depth) == (0, 0)
    scene.close()
    assert counted_deliveries() == 0


@modes
def test_a_clean_stop_and_a_start_keep_them_on_disk_alone(tmp_path, mode):
    scene = leave(tmp_path, mode)
    for _ in range(2):
        scene.close()
        scene = Scene(tmp_path, **mode)
        assert scene.channel.deferred_count == COUNT
        assert counted_deliveries() <= KEPT
    rows, _ = peek(scene, limit=COUNT)
    assert [row["piece"] for row in rows] == bodies()
    scene.wait(HOUR_MS - 900_000)
    assert scene.seen == []
    scene.wait(1_200_000)
    assert scene.seen == [(body, 1) for body in bodies()]
    scene.close()


@modes
def test_a_requeue_with_a_delay_keeps_the_attempts(tmp_path, mode):
    scene = Scene(tmp_path, **mode)
    for body in bodies(5):
        scene.producer.send(pub(b"t", body))
    scene.turn()
    for _, data in [frame for frame in scene.consumer.receive() if frame[0] == 2]:
        scene.consumer.send(b"REQ %s %d\n" % (data[10:26], HOUR_MS))
    scene.turn()
    assert scene.channel.deferred_count == 5
    assert counted_deliveries() <= KEPT
    scene.wait(2 * HOUR_MS)
    assert sorted(scene.seen) == [(body, 2) for body in bodies(5)]
    scene.close()


@modes
def test_a_look_at_them(tmp_path, mode):
    scene = leave(tmp_path, mode)
    rows, snapshot = peek(scene, limit=20, offset=10)
    assert [row["piece"] for row in rows] == bodies()[10:30]
    assert {row["where"] for row in rows} == {"deferred"}
    assert [row["size"] for row in rows] == [len(body) for body in bodies()[10:30]]
    dues = [row["due_ns"] for row in rows]
    assert dues == sorted(dues)
    assert len({row["id"] for row in rows}) == 20
    assert (snapshot.depth, snapshot.next_offset) == (COUNT, 30)
    rows, _ = peek(scene, limit=20, needle=b"late 4")
    assert [row["piece"] for row in rows] == [b"late 4", *bodies()[40:]]
    scene.close()


def pick(scene, action, **chosen):
    picker = Picker(scene.channel, "deferred", action, **chosen)
    while not picker.is_over:
        picker.go_on()
    return picker.changed


@modes
def test_an_operator_drops_requeues_and_copies_them(tmp_path, mode):
    scene = leave(tmp_path, mode)
    rows, _ = peek(scene, limit=COUNT)
    ids = tuple(row["id"].encode() for row in rows[20:22])
    assert pick(scene, "drop", ids=ids) == 2
    assert pick(scene, "drop", needle=b"late 4") == 11
    assert scene.channel.deferred_count == COUNT - 13
    target = scene.registry.topics.ensure("copies")
    assert pick(scene, "copy", target=target, needle=b"late 3") == 11
    assert pick(scene, "move", target=target, needle=b"late 12") == 1
    assert (target.depth, scene.channel.deferred_count) == (12, COUNT - 14)
    assert pick(scene, "requeue", needle=b"late 1") == 10
    assert scene.channel.deferred_count == COUNT - 24
    scene.turn()
    scene.answer()
    assert sorted(scene.seen) == sorted(
        (b, 1) for b in bodies() if b[:6] == b"late 1" and b != b"late 12"
    )
    scene.close()
    scene = Scene(tmp_path, **mode)
    assert scene.channel.deferred_count == COUNT - 24
    scene.wait(2 * HOUR_MS)
    gone = (b"late 1", b"late 4", b"late 20", b"late 21")
    assert scene.seen == [(body, 1) for body in bodies() if not body.startswith(gone)]
    scene.close()


@pytest.mark.parametrize("mode", [IN_MEMORY, ON_DISK], ids=["memory", "on disk"])
def test_their_publisher_ends_deferrals_of_them(tmp_path, mode):
    scene = Scene(tmp_path, **mode)
    told = Told(scene.registry)
    ids = {}
    for number, body in enumerate(bodies()):
        ids[body] = told.defer(body=body, delay_ms=HOUR_MS + number * 1000)
    scene.registry.timers.run(let_pass(1))
    assert scene.channel.deferred_count == COUNT
    assert counted_deliveries() <= KEPT
    for body in bodies()[5:45:2]:
        assert told.cancel(ids[body]) == 1
        assert told.cancel(ids[body]) == 0
    for body in bodies()[6:20:2]:
        assert told.run(ids[body]) == 1
        assert told.run(ids[body]) == 0
    scene.answer()
    assert scene.seen == [(body, 1) for body in bodies()[6:20:2]]
    left = sorted({*bodies()} - {*bodies()[5:45:2]} - {*bodies()[6:20:2]})
    assert scene.channel.deferred_count == len(left)
    rows, _ = peek(scene, limit=COUNT)
    assert sorted(row["piece"] for row in rows) == left
    scene.close()
    scene = Scene(tmp_path, **mode)
    told = Told(scene.registry)
    assert scene.channel.deferred_count == len(left)
    assert told.cancel(ids[left[0]]) == told.cancel(ids[left[-1]]) == 1
    scene.wait(2 * HOUR_MS)
    assert sorted(body for body, _ in scene.seen) == left[1:-1]
    assert scene.channel.deferred_count == 0
    scene.close()


@modes
def test_emptying_and_deleting(tmp_path, mode):
    scene = leave(tmp_path, mode)
    scene.channel.empty()
    assert (scene.channel.deferred_count, peek(scene)[0]) == (0, [])
    scene.wait(2 * HOUR_MS)
    assert scene.seen == []
    scene.close()
    scene = leave(tmp_path, mode)
    scene.registry.topics.ensure("t").delete_channel("c")
    scene.settle()
    assert size_on_disk(tmp_path, "t:c") == 0
    scene.close()


def test_an_ephemeral_channel_has_them_in_memory(tmp_path):
    scene = Scene(tmp_path, **ON_DISK)
    channel = scene.registry.topics.ensure("t").channel("c#ephemeral")
    for body in bodies():
        scene.producer.send(dpub(body))
    scene.turn()
    assert channel.deferred_count == scene.channel.deferred_count == COUNT
    assert COUNT <= counted_deliveries() <= COUNT + KEPT
    scene.registry.topics.ensure("t").delete_channel("c#ephemeral")
    scene.settle()
    scene.close()


def test_a_full_disk_leaves_them_in_memory(tmp_path):
    scene = Scene(tmp_path, **IN_MEMORY)
    with no_room():
        for body in bodies():
            scene.producer.send(dpub(body))
        scene.turn()
        assert counted_deliveries() == scene.channel.deferred_count == COUNT
    scene.producer.send(dpub(b"one more"))
    scene.turn()
    assert counted_deliveries() <= KEPT
    assert scene.channel.deferred_count == COUNT + 1
    scene.close()


def test_short_deferrals_stay_in_memory(tmp_path):
    scene = Scene(tmp_path, **IN_MEMORY)
    for body in bodies():
        scene.producer.send(dpub(body, 30_000))
    scene.turn()
    assert counted_deliveries() == COUNT
    assert not list(tmp_path.glob("*.000000.dat"))
    scene.close()


@modes
def test_they_keep_no_files(tmp_path, mode):
    scene = leave(tmp_path, mode)
    scene.run(120 if mode != IN_MEMORY else 1)
    assert scene.kept() < KEPT_MAX
    assert counted_deliveries() <= KEPT
    scene.close()
    scene = Scene(tmp_path, **mode)
    scene.wait(2 * HOUR_MS)
    assert scene.seen == [(body, 1) for body in bodies()]
    scene.close()


def test_they_wait_behind_a_backlog(tmp_path):
    """Their records are behind those that are still to be read."""
    scene = Scene(tmp_path, **ON_DISK)
    scene.consumer.send(b"RDY 0\n")
    for _ in range(100):
        scene.producer.send(pub(b"t", b"x"))
    for number, body in enumerate(bodies()):
        scene.producer.send(dpub(body, HOUR_MS + number * 1000))
    scene.turn()
    assert (scene.channel.depth, scene.channel.deferred_count) == (100, COUNT)
    assert counted_deliveries() <= KEPT
    rows, _ = peek(scene, limit=COUNT)
    assert [row["piece"] for row in rows] == bodies()
    scene.wait(2 * HOUR_MS)
    assert scene.seen == [(body, 1) for body in bodies()]
    assert scene.channel.depth == 0
    scene.close()
