"""What a broker with a commit log keeps over kill -9, one thing at a time. test_log_lives.py has them all together."""

import contextlib
import itertools
import json
import mmap
import random
import select
import shutil

import pytest
from nsqfast._ext.broker.picker import Picker
from nsqfast._ext.core.clock import now
from nsqfast._ext.dev.probes import fix_parts, let_pass, shift_wall

from nsqfast.errors import OpenLogError, PublishError
from nsqfast.nsqd import metadata
from support.broker_life import (
    RING_SIZE,
    TIMEOUT_NS,
    WAIT_S,
    Producer,
    list_names,
    run_turn,
    sized,
)
from support.core import NEVER, SECOND_NS, Peer, make_registry, sync
from support.log_scene import (
    HOUR_MS,
    HOUR_S,
    LONG,
    LONG_NS,
    MODES,
    OK,
    Scene,
    make_checkpoint,
    numbered,
    play_killed,
)
from support.seeds import seeds


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("memory", [0, 3, 1000])
@pytest.mark.parametrize("file_size", [500, 1 << 20])
def test_an_ok_and_a_fin(folder, open_scene, mode, memory, file_size):
    flags = {"mem_queue_size": memory, "max_bytes_per_file": file_size}

    def work(scene):
        scene.channel()
        scene.publish(*numbered(*range(200)))
        taker = scene.consumer(rdy=150)
        taker.finish(*taker.bodies(150)[::2])
        scene.commit()

    play_killed(folder, mode, work, **flags)
    scene = open_scene(mode, **flags)
    assert scene.counts() == (125, 0, 0)
    left = {b"%d" % number for number in range(200) if number >= 150 or number % 2}
    taker = scene.consumer()
    assert sorted(taker.bodies(125)) == sorted(left)


@pytest.mark.parametrize("memory", [0, 1000])
@pytest.mark.parametrize("mode", MODES)
def test_names_that_only_the_log_has(folder, open_scene, mode, memory):
    def work(scene):
        scene.channel("c")
        scene.channel("d", "u")
        scene.channel("e#ephemeral", "u")
        scene.topic("w")
        scene.publish(b"1", topic=b"u")
        scene.publish(b"2", topic=b"v#ephemeral")
        scene.commit()

    play_killed(folder, mode, work, mem_queue_size=memory)
    for _ in range(2):
        scene = open_scene(mode, mem_queue_size=memory)
        names = [(topic, channel) for topic, channel, _ in list_names(scene.registry)]
        assert names == [
            ("barrier", ""),
            ("t", ""),
            ("t", "c"),
            ("u", ""),
            ("u", "d"),
            ("w", ""),
        ]
        assert scene.counts("d", "u") == (1, 0, 0)
        scene.stop()


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("command", [b"CANCEL_DEFERRED", b"RUN_DEFERRED"])
def test_an_answer_to_the_end_of_a_deferral(folder, open_scene, mode, command):
    """Nothing is said after it."""

    def work(scene):
        scene.channel("c")
        scene.channel("d")
        scene.producer = Peer(scene.registry)
        identity = b'{"nsqfast_deferred_ids":true,"feature_negotiation":true}'
        scene.producer.send(b"IDENTIFY\n" + sized(identity))
        scene.answers(1)
        scene.producer.send(b"DPUB t %d id\n" % HOUR_MS + sized(b"deferred"))
        ((_, answer),) = scene.answers(1)
        assert answer.startswith(b"OK ")
        scene.producer.send(command + b" t " + answer[3:] + b"\n")
        assert scene.producer.decode_all() == []
        assert scene.answers(1) == [(0, b"OK 2")]

    play_killed(folder, mode, work)
    scene = open_scene(mode)
    left = (0, 0, 0) if command == b"CANCEL_DEFERRED" else (1, 0, 0)
    assert (scene.counts("c"), scene.counts("d")) == (left, left)


@pytest.mark.parametrize("memory", [0, 1000])
@pytest.mark.parametrize("mode", MODES)
def test_attempts_of_what_came_back(folder, open_scene, mode, memory):
    def work(scene):
        scene.publish(b"requeued", b"timed out", b"held")
        taker = scene.consumer()
        assert {attempts for _, attempts in taker.take(3)} == {1}
        taker.requeue(b"requeued")
        assert taker.take(1) == [(b"requeued", 2)]
        taker.requeue(b"requeued", 10)
        taker.finish(b"held")
        scene.publish(b"held")
        scene.registry.timers.run(let_pass(SECOND_NS))
        assert sorted(taker.take(2)) == [(b"held", 1), (b"requeued", 3)]
        scene.registry.timers.run(let_pass(TIMEOUT_NS))
        assert sorted(taker.take(3)) == [(b"held", 2), (b"requeued", 4), (b"timed out", 2)]
        scene.commit()

    play_killed(folder, mode, work, mem_queue_size=memory)
    expected = [(b"held", 2), (b"requeued", 4), (b"timed out", 2)]
    scene = open_scene(mode, mem_queue_size=memory)
    assert sorted(scene.consumer().take(3)) == expected
    scene.stop()
    # A clean stop counts the delivery that it cuts short, too.
    scene = open_scene(mode, mem_queue_size=memory)
    assert sorted(scene.consumer().take(3)) == [(body, count + 1) for body, count in expected]


@pytest.mark.parametrize("delay_ms", [0, 10])
@pytest.mark.parametrize("mode", MODES)
def test_more_comes_back_at_once_than_the_log_takes(folder, open_scene, mode, delay_ms):
    """A checkpoint has seen the records in files: those that the log did not take over stay there."""
    bodies = [b"%02d" % number + bytes(200_000) for number in range(30)]
    flags = {"mem_queue_size": 0}

    def work(scene):
        scene.channel()
        scene.publish(*bodies)
        make_checkpoint(scene)
        scene.registry.durability.store.on_checkpoint = None
        taker = scene.consumer()
        for body in taker.bodies(30):
            taker.requeue(body, delay_ms)
        assert scene.registry.durability.store.log_figures()["missed_count"]
        scene.commit()
        scene.registry.timers.run(let_pass(SECOND_NS))
        taken = taker.bodies(30)
        taker.finish(*taken[3:])
        scene.commit()
        for body in taken[:3]:
            taker.requeue(body)
            scene.commit()
        return [body[:2].decode() for body in taken[:3]]

    left = play_killed(folder, mode, work, **flags)
    scene = open_scene(mode, **flags)
    assert scene.counts() == (3, 0, 0)
    assert sorted(body[:2].decode() for body in scene.consumer().bodies(3)) == sorted(left)


@pytest.mark.parametrize("mode", MODES)
def test_more_is_requeued_on_disk_than_the_log_takes(folder, open_scene, mode):
    def work(scene):
        channel = scene.channel()
        scene.publish(*[b"%02d" % number + bytes(200_000) for number in range(30)])
        make_checkpoint(scene)
        scene.registry.durability.store.on_checkpoint = None
        picker, waits = Picker(channel, "ready", "requeue"), 0
        while not picker.is_over:
            if picker.must_wait:
                waits += 1
                run_turn(scene.registry, 0.05)
                continue
            if picker.needs_thread:
                picker.search()
            picker.go_on()
        assert waits
        scene.commit()
        assert picker.changed == 30
        assert scene.registry.durability.store.log_figures()["missed_count"] == 0
        taker = scene.consumer()
        taker.finish(*taker.bodies(30)[1:])
        scene.commit()

    play_killed(folder, mode, work, mem_queue_size=0)
    assert open_scene(mode, mem_queue_size=0).counts() == (1, 0, 0)


@pytest.mark.parametrize("memory", [0, 1000])
@pytest.mark.parametrize("mode", MODES)
def test_deadlines_are_of_the_wall_clock(folder, open_scene, mode, memory):
    def work(scene):
        scene.channel("c")
        scene.publish(b"returned")
        scene.publish(b"deferred", delay_ms=HOUR_MS)
        scene.publish(b"early", delay_ms=HOUR_MS // 4)
        scene.publish(b"kept", topic=b"u", delay_ms=HOUR_MS)
        taker = scene.consumer()
        assert taker.bodies(1) == [b"returned"]
        taker.requeue(b"returned", HOUR_MS)
        scene.commit()

    play_killed(folder, mode, work, mem_queue_size=memory)
    shift_wall(HOUR_S // 2 * SECOND_NS)
    scene = open_scene(mode, mem_queue_size=memory)
    taker, other = scene.consumer(), scene.consumer(topic=b"u")
    assert taker.bodies(1) == [b"early"]
    taker.finish(b"early")
    scene.pass_s(HOUR_S // 2 - 120, HOUR_S - 120)
    assert (taker.take(), other.take()) == ([], [])
    assert scene.counts() == (0, 0, 2)
    scene.stop()
    scene = open_scene(mode, mem_queue_size=memory)
    taker, other = scene.consumer(), scene.consumer(topic=b"u")
    assert (taker.take(), other.take()) == ([], [])
    scene.pass_s(121, HOUR_S + 1)
    assert sorted(taker.take(2)) == [(b"deferred", 1), (b"returned", 2)]
    assert other.bodies(1) == [b"kept"]


def test_a_stop_right_after_a_checkpoint_keeps_the_deadlines(folder, open_scene):
    """The checkpoint lets the deadlines of the stop before it be removed, which may be done at the stop only."""
    flags = {"mem_queue_size": 0, "max_bytes_per_file": 500}
    scene = open_scene(**flags)
    scene.channel("c")
    scene.publish(b"deferred", delay_ms=HOUR_MS)
    scene.stop()
    scene = open_scene(**flags)
    scene.channel("d", "u")
    scene.publish(*[b"%d" % number for number in range(50)], topic=b"u")
    scene.consumer(b"d", b"u").take_all(50)
    scene.commit()  # files whose messages are finished wait for a checkpoint now
    scene.pass_s(60, total_s=0)
    for _ in range(WAIT_S * 100):
        if scene.registry.durability.store.log_figures()["checkpoint_count"]:
            break
        run_turn(scene.registry, 0.01)
    assert scene.registry.durability.store.log_figures()["checkpoint_count"] == 1
    scene.stop()
    scene = open_scene(**flags)
    assert scene.counts() == (0, 0, 1)


@pytest.mark.parametrize("memory", [0, 1000])
def test_nothing_is_left_of_deadlines_that_are_over(folder, open_scene, memory):
    scene = open_scene(mem_queue_size=memory)
    scene.channel("c")
    scene.publish(b"deferred", delay_ms=HOUR_MS)
    scene.stop()
    assert list(folder.glob("*.deferred.dat"))
    scene = open_scene(mem_queue_size=memory)
    scene.pass_s(HOUR_S + 1)
    taker = scene.consumer()
    assert taker.bodies(1) == [b"deferred"]
    taker.finish(b"deferred")
    scene.commit()
    scene.stop()
    assert not list(folder.glob("*.deferred.dat"))


@pytest.mark.parametrize("is_topic", [False, True])
@pytest.mark.parametrize("memory", [0, 3, 1000])
def test_what_was_emptied_stays_away(folder, open_scene, memory, is_topic):
    def work(scene):
        if not is_topic:
            scene.channel("c")
        scene.publish(*numbered(*range(100)))
        scene.publish(b"deferred", delay_ms=HOUR_MS)
        (scene.topic() if is_topic else scene.channel("c")).empty()
        scene.publish(b"later")
        scene.commit()

    play_killed(folder, "always", work, mem_queue_size=memory)
    scene = open_scene(mem_queue_size=memory)
    scene.channel("c")
    scene.pass_s(HOUR_S + 1)
    assert scene.consumer().bodies(1) == [b"later"]
    assert scene.counts() == (0, 1, 0)


@pytest.mark.parametrize("is_topic", [False, True])
@pytest.mark.parametrize("memory", [0, 3, 1000])
def test_what_was_deleted_stays_away_from_what_has_its_name(folder, open_scene, memory, is_topic):
    def work(scene):
        scene.channel("c")
        scene.channel("d")
        scene.channel("gone", "u")
        scene.publish(*numbered(*range(100)))
        scene.publish(b"1", topic=b"u")
        metadata.write(str(folder), metadata.encode(scene.registry.topics))
        if is_topic:
            scene.registry.topics.delete("t")
            scene.registry.topics.delete("u")
        else:
            scene.topic().delete_channel("c")
            scene.topic("u").delete_channel("gone")
        scene.publish(b"between")
        scene.channel("c")
        scene.publish(b"later")
        scene.commit()

    play_killed(folder, "always", work, mem_queue_size=memory)
    scene = open_scene(mem_queue_size=memory)
    bodies = [b"between", b"later"] if is_topic else [b"later"]
    assert sorted(scene.consumer().bodies(len(bodies))) == bodies
    assert scene.counts() == (0, len(bodies), 0)
    assert scene.channel("gone", "u").depth == 0
    if not is_topic:
        assert scene.counts("d") == (102, 0, 0)


@pytest.mark.parametrize("mode", MODES)
def test_a_pause(folder, open_scene, mode):
    def work(scene):
        scene.channel("c").pause()
        scene.channel("c", "u")
        scene.topic("u").pause()
        metadata.write(str(folder), metadata.encode(scene.registry.topics))
        scene.publish(b"1")
        scene.publish(b"2", topic=b"u")

    play_killed(folder, mode, work)
    scene = open_scene(mode)
    one, two = scene.consumer(), scene.consumer(topic=b"u")
    assert (one.take(), two.take()) == ([], [])
    scene.channel("c").unpause()
    scene.topic("u").unpause()
    assert (one.bodies(1), two.bodies(1)) == ([b"1"], [b"2"])


@pytest.mark.parametrize("memory", [0, 3, 1000])
@pytest.mark.parametrize("mode", MODES)
def test_the_first_channel_has_taken_a_topics_messages(folder, open_scene, mode, memory):
    def work(scene):
        scene.publish(*numbered(*range(500)))
        taker = scene.consumer()
        taker.finish(*taker.bodies(500)[:300])
        scene.publish(b"500")
        scene.commit()

    play_killed(folder, mode, work, mem_queue_size=memory)
    scene = open_scene(mode, mem_queue_size=memory)
    assert scene.topic().depth == 0
    assert scene.counts() == (201, 0, 0)
    assert scene.channel("d").depth == 0
    assert set(scene.consumer().bodies(201)) == set(numbered(*range(300, 501)))
    scene.publish(b"501")
    assert scene.consumer(b"d").bodies(1) == [b"501"]


@pytest.mark.parametrize("mode", MODES)
def test_a_topics_messages_wait_for_the_first_channel(folder, open_scene, mode):
    def work(scene):
        scene.publish(*numbered(*range(50)))

    play_killed(folder, mode, work, mem_queue_size=10)
    scene = open_scene(mode, mem_queue_size=10)
    assert scene.topic().depth == 50
    assert scene.consumer().bodies(50) == numbered(*range(50))


@pytest.mark.parametrize("seed", seeds("log mpub", 4))
def test_an_mpub_is_there_as_a_whole_or_not(folder, open_scene, seed):
    """In all channels, or in none; with its OK in all."""
    dice = random.Random(seed)
    answered = mmap.mmap(-1, 8)
    flags = {"mem_queue_size": dice.choice([0, 20, 1000]), "max_bytes_per_file": 5000}
    mode = dice.choice(MODES)

    def work(scene):
        for name in "abc":
            scene.channel(name)
        for number in range(2000):
            bodies = [b"%d.%d" % (number, part) for part in range(20)]
            inner = len(bodies).to_bytes(4, "big") + b"".join(map(sized, bodies))
            scene.producer.send(b"MPUB t\n" + sized(inner))
            assert scene.answers(1) == [OK]
            answered[:8] = (number + 1).to_bytes(8, "big")

    for _ in range(4):
        answered[:8] = bytes(8)
        play_killed(folder, mode, work, alarm_s=dice.uniform(0.01, 0.3), **flags)
        least = int.from_bytes(answered[:8], "big") * 20
        scene = open_scene(mode, **flags)
        found = {channel.depth for channel in scene.topic().channels()}
        assert len(found) <= 1
        count = found.pop() if found else scene.topic().depth
        assert count in (least, least + 20)
        for channel in scene.topic().channels():
            taker = scene.consumer(channel.name.encode(), rdy=500)
            assert len(set(taker.take_all(count))) == count
        scene.registry.topics.delete("t")
        scene.stop()


def send_mpub(scene, bodies, topic=b"t"):
    inner = len(bodies).to_bytes(4, "big") + b"".join(map(sized, bodies))
    scene.producer.send(b"MPUB %s\n" % topic + sized(inner))


LARGE = 40_000  # messages of an MPUB that takes many turns


@pytest.mark.parametrize("seed", seeds("log large mpub", 6))
def test_a_large_mpub_is_there_as_a_whole_or_not(folder, open_scene, seed):
    """However many turns it takes, whatever is finished of it meanwhile, and whenever checkpoints come."""
    dice = random.Random(seed)
    counts = mmap.mmap(-1, 16)  # of the messages sent, and of those with an OK
    flags = {"mem_queue_size": dice.choice([0, 1000]), "max_bytes_per_file": 500_000}
    mode = dice.choice(MODES)
    padding = b"." * dice.choice([0, 40])

    def work(scene):
        for name in "ab":
            scene.channel(name)
        taker = scene.consumer(b"b", rdy=500)
        while True:
            sent = int.from_bytes(counts[:8], "big")
            bodies = [
                b"%d%s" % (sent + part, padding) for part in range(dice.randrange(10_001, LARGE))
            ]
            counts[:8] = (sent + len(bodies)).to_bytes(8, "big")
            send_mpub(scene, bodies)
            answers = []
            while not answers:
                taker.finish(*taker.bodies())
                answers = scene.answers(0) + scene.producer.decode_all()
            assert answers == [OK]
            counts[8:] = counts[:8]

    for _ in range(4):
        counts[:] = bytes(16)
        play_killed(folder, mode, work, alarm_s=dice.uniform(0.05, 1), **flags)
        sent, answered = (int.from_bytes(one, "big") for one in (counts[:8], counts[8:]))
        scene = open_scene(mode, **flags)
        while scene.topic().channels() and scene.topic().depth:
            run_turn(scene.registry)
        depths = {channel.name: channel.depth for channel in scene.topic().channels()}
        count = depths.get("a", scene.topic().depth)
        print(mode, sent, answered, depths)
        assert count in (answered, sent)
        assert depths.get("b", 0) <= count
        if "a" in depths:
            taker = scene.consumer(b"a", rdy=2500)
            numbers = {int(body.removesuffix(padding)) for body in taker.take_all(count)}
            assert numbers == set(range(count))
        scene.registry.topics.delete("t")
        scene.stop()


def publish_at_last(scene, body):
    """A publisher that is faster than the disk is refused now and then, and tries again."""
    for _ in range(WAIT_S * 100):
        scene.producer.send(b"PUB t\n" + sized(body))
        (answer,) = scene.answers(1)
        if answer == OK:
            return
        assert answer[1].startswith(b"E_PUB_FAILED PUB failed the commit log is "), answer
        scene.producer = Producer(scene.registry)
        run_turn(scene.registry, 0.01)
    raise AssertionError(f"no room: {answer}")


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("is_lagging", [False, True])
def test_checkpoints_make_room(folder, open_scene, mode, is_lagging):
    """Three times as much as the ring has room for."""
    size, count = 100_000, 3 * RING_SIZE // 100_000 + 1
    flags = {"mem_queue_size": 20, "max_bytes_per_file": 1 << 20}

    def body_of(number):
        return (b"%d." % number).ljust(size, b"x")

    def work(scene):
        scene.channel("slow")
        taker = scene.consumer(rdy=50)
        for number in range(count):
            publish_at_last(scene, body_of(number))
            if not is_lagging:
                scene.topic().find_channel("slow").empty()
            if number % 10 == 9:
                taker.finish(*taker.bodies(10))
        scene.commit()
        ring = folder / "nsqd.commitlog"
        return sum(file.stat().st_size for file in ring.iterdir())

    used = play_killed(folder, mode, work, **flags)
    assert used < 2 * RING_SIZE
    scene = open_scene(mode, **flags)
    assert scene.counts() == (count % 10, 0, 0)
    assert scene.counts("slow") == (count if is_lagging else 0, 0, 0)
    if is_lagging:
        bodies = scene.consumer(b"slow", rdy=10).take_all(count)
        assert set(bodies) == {body_of(number) for number in range(count)}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("memory", [0, 3, 1000])
def test_a_clean_stop_leaves_plain_files(folder, open_scene, mode, memory):
    flags = {"mem_queue_size": memory, "max_bytes_per_file": 2000}

    def work(scene):
        scene.channel("c")
        scene.publish(*numbered(*range(100)))

    play_killed(folder, mode, work, **flags)
    scene = open_scene(mode, **flags)
    scene.publish(*numbered(*range(100, 200)))
    scene.publish(b"deferred", delay_ms=HOUR_MS)
    taker = scene.consumer(rdy=50)
    taker.finish(*taker.bodies(50))
    run_turn(scene.registry)
    scene.stop()
    scene = open_scene("off", **flags)
    depth, held, deferred = scene.counts()
    assert (depth + held, deferred) == (150, 1)
    taker = scene.consumer()
    bodies = taker.bodies(150)
    assert set(bodies) == set(numbered(*range(50, 200)))
    taker.finish(*bodies[:100])
    scene.stop()
    scene = open_scene(mode, **flags)
    assert scene.counts() == (50, 0, 1)


@pytest.mark.parametrize("mode", MODES)
def test_a_stop_closes_a_full_log(tmp_path, mode):
    """No checkpoint came in time, and a whole batch waits for room."""
    log = {"commit_log_size": RING_SIZE, "max_body_size": 2 << 20}
    registry = make_registry(tmp_path, durable=mode, **log)
    topic = registry.topics.ensure("t")
    sync(registry)

    def fill_batch():
        """But for 8 bytes, which are less than any record has."""
        for size in [1_048_000] * 4 + [2016]:
            ticket = topic.put(bytes(size))
        registry.topics.ensure("barrier").empty()
        return ticket

    for _ in range(3):
        done = []
        registry.durability.when_durable(fill_batch(), done.append)
        registry.turn.end()
        while not done:
            assert select.select([registry.durability], [], [], WAIT_S)[0]
            registry.turn.on_synced()
            registry.turn.end()
    fill_batch()
    registry.topics.close()
    registry = make_registry(tmp_path, **log)  # which takes no log that is open
    metadata.load(registry.topics, str(tmp_path))
    assert registry.topics.ensure("t").depth == 20
    registry.topics.close()


@pytest.mark.parametrize("mode", MODES)
def test_off_is_refused_until_the_log_is_closed(folder, open_scene, mode):
    def work(scene):
        scene.channel("c")
        scene.publish(b"1")

    play_killed(folder, mode, work)
    before = {path: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    with pytest.raises(OpenLogError) as refused:
        open_scene("off")
    assert "\n" not in str(refused.value)
    assert {path: path.read_bytes() for path in folder.iterdir() if path.is_file()} == before
    open_scene(mode).stop()
    assert open_scene("off").counts() == (1, 0, 0)


@pytest.mark.parametrize("mode", MODES)
def test_the_other_mode_goes_on(folder, open_scene, mode):
    other = MODES[1 - MODES.index(mode)]
    for number, each in enumerate([mode, other, mode, other]):

        def work(scene, number=number):
            scene.channel("c")
            assert scene.counts() == (number, 0, 0)
            scene.publish(b"%d" % number)

        play_killed(folder, each, work)
    assert open_scene(mode).counts() == (4, 0, 0)


@pytest.mark.parametrize("memory", [0, 100])
def test_a_folder_without_a_log_that_was_killed(folder, open_scene, memory):
    """What stands in its files is taken over as it is."""

    def fill(scene):
        scene.channel("c")
        metadata.write(str(folder), metadata.encode(scene.registry.topics))
        scene.publish(*numbered(*range(100)))
        taker = scene.consumer(rdy=60)
        taker.finish(*taker.bodies(60)[::2])

    def work(scene):
        assert scene.counts() == (70, 0, 0)
        scene.publish(b"100")
        taker = scene.consumer(rdy=10)
        taker.finish(*taker.bodies(10))
        scene.commit()

    flags = {"max_bytes_per_file": 1000}
    play_killed(folder, "off", fill, mem_queue_size=0, **flags)
    play_killed(folder, "always", work, mem_queue_size=memory, **flags)
    scene = open_scene(mem_queue_size=memory, **flags)
    assert scene.counts() == (61, 0, 0)
    assert b"100" in scene.consumer().bodies(61)


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
def test_starts_that_are_killed(folder, open_scene, mode):
    flags = {"mem_queue_size": 100, "max_bytes_per_file": 5000}

    def work(scene):
        scene.channel("c")
        scene.publish(*[body.ljust(100) for body in numbered(*range(5000))])
        scene.publish(b"deferred", delay_ms=HOUR_MS)
        taker = scene.consumer(rdy=2000)
        taker.finish(*taker.bodies(2000)[::2])
        scene.commit()

    play_killed(folder, mode, work, **flags)
    dice = random.Random(mode)
    started_ns = now()[1]
    play_killed(folder, mode, lambda _: None, **flags)
    whole_s = (now()[1] - started_ns) / SECOND_NS
    for _ in range(15):
        play_killed(folder, mode, lambda _: None, alarm_s=dice.uniform(0, whole_s), **flags)
    scene = open_scene(mode, **flags)
    assert scene.counts() == (4000, 0, 1)
    assert len(set(scene.consumer(rdy=500).take_all(4000))) == 4000


@pytest.mark.parametrize("mode", MODES)
def test_a_queue_is_named_whatever_is_in_the_batch(folder, open_scene, mode):
    """The turn's batch has no room for one more record when it is made."""

    def work(scene):
        size = RING_SIZE // 4
        while size:
            with contextlib.suppress(PublishError):
                scene.topic("full").put(b"x" * size)
                continue
            size //= 2
        for _ in range(4):
            scene.topic("full").empty()  # the smallest record
        scene.topic("new")
        scene.publish(b"1", topic=b"new")

    play_killed(folder, mode, work)
    assert open_scene(mode).topic("new").depth == 1


NEW = {"mem_queue_size": 0}  # all that is put goes to files at once


def count_in(scene, channel, topic="t"):
    """How many messages a channel has, which is made if it is not there."""
    scene.channel(channel, topic)
    run_turn(scene.registry)
    return sum(scene.counts(channel, topic))


@pytest.mark.parametrize("is_listed", [False, True])
@pytest.mark.parametrize("mode", MODES)
def test_a_channel_that_was_not_committed_doubles_nothing(folder, open_scene, mode, is_listed):
    """Its files have what a topic was handing over to it; the log has that in the topic."""

    def work(scene):
        scene.publish(*numbered(*range(50)))
        scene.channel("new")
        scene.registry.timers.run(let_pass(0))
        assert scene.counts("new") == (50, 0, 0)
        if is_listed:
            metadata.write(str(folder), metadata.encode(scene.registry.topics))

    play_killed(folder, mode, work, **NEW)
    assert list(folder.glob("t:new.diskqueue.*"))
    for _ in range(2):
        scene = open_scene(mode, **NEW)
        assert ("t", "new") in [(t, c) for t, c, _ in list_names(scene.registry)] or not is_listed
        assert count_in(scene, "new") == 50
        assert sorted(scene.consumer(b"new").bodies(50)) == sorted(numbered(*range(50)))
        scene.stop()


@pytest.mark.parametrize("mode", MODES)
def test_a_message_for_all_channels_that_was_not_committed(folder, open_scene, mode):
    """It is in all of them after a start, or in none."""

    def work(scene):
        scene.channel("old")
        scene.publish(b"1")
        scene.channel("new")
        scene.producer.send(b"PUB t\n" + sized(b"2"))
        scene.producer.send(b"PUB u\n" + sized(b"3"))
        scene.channel("new", "u")
        scene.registry.timers.run(let_pass(0))
        assert [scene.counts(*one)[0] for one in (("old",), ("new",), ("new", "u"))] == [2, 1, 1]

    play_killed(folder, mode, work, **NEW)
    scene = open_scene(mode, **NEW)
    assert [(t, c) for t, c, _ in list_names(scene.registry)] == [("t", ""), ("t", "old")]
    assert [count_in(scene, *one) for one in (("old",), ("new",), ("new", "u"))] == [1, 0, 0]


@pytest.mark.parametrize(
    ("before", "is_killed"),
    # Without a log a kill loses what is in memory.
    [("off", False), *itertools.product(MODES, [False, True])],
)
def test_what_was_there_before_the_log_is_kept(folder, open_scene, before, is_killed):
    """A start is killed before the log has the names of what it found, or after that, with a new channel beside it."""

    def fill(scene):
        scene.channel("old")
        scene.publish(*numbered(*range(50)))
        scene.publish(*numbered(*range(20)), topic=b"u")
        if not is_killed:
            scene.stop()

    def work(scene, is_committed):
        if is_committed:
            scene.commit()
        scene.channel("new")
        scene.producer.send(b"PUB t\n" + sized(b"x"))
        scene.channel("new", "u")
        scene.registry.timers.run(let_pass(0))

    play_killed(folder, before, fill, **NEW)
    for is_committed in (False, True, True):
        play_killed(folder, "always", lambda scene, one=is_committed: work(scene, one), **NEW)
    scene = open_scene("always", **NEW)
    count = count_in(scene, "old")
    assert set(scene.consumer(b"old").bodies(count)) - {b"x"} == set(numbered(*range(50)))
    assert count_in(scene, "new", "u") == 20
    new = scene.consumer(b"new", b"u")
    assert sorted(new.bodies(20)) == sorted(numbered(*range(20)))
    assert new.take() == []


@pytest.mark.parametrize("mode", MODES)
def test_a_channel_of_another_log_is_kept(folder, open_scene, mode):
    """The log is removed by somebody: then the files are all that there is."""

    def work(scene):
        scene.publish(*numbered(*range(50)))
        scene.channel("new")
        scene.registry.timers.run(let_pass(0))

    play_killed(folder, mode, work, **NEW)
    shutil.rmtree(folder / "nsqd.commitlog")
    play_killed(folder, mode, lambda scene: scene.commit(), **NEW)
    assert count_in(open_scene(mode, **NEW), "new") == 50


def test_a_channel_whose_name_is_damaged_is_kept(folder, open_scene):
    """The log does not say any more whether it had the name."""

    def work(scene):
        scene.channel("old")
        scene.publish(*numbered(*range(50)))
        scene.channel("damaged-name")
        scene.publish(b"50")
        scene.commit()

    play_killed(folder, "always", work, **NEW)
    (ring,) = (
        one
        for one in (folder / "nsqd.commitlog").glob("*.ring")
        if b"t:damaged" in one.read_bytes()
    )
    ring.write_bytes(ring.read_bytes().replace(b"t:damaged-name", b"t:Damaged-name", 1))
    scene = open_scene(**NEW)
    assert scene.counts("damaged-name") == (1, 0, 0)


@pytest.mark.parametrize("is_named", [False, True], ids=["unknown", "in nsqd.dat"])
@pytest.mark.parametrize("metadata", [None, b"", bytes(66)], ids=["gone", "empty", "zeros"])
def test_a_queue_whose_metadata_a_power_cut_took(folder, open_scene, metadata, is_named):
    """Nothing of it was answered, unless nsqd.dat has its name."""

    def work(scene):
        scene.channel("old")
        scene.publish(*numbered(*range(50)))
        scene.registry.timers.run(let_pass(0))

    play_killed(folder, "always", work, **NEW)
    for name in ("u", "t:cut"):
        data = (folder / "t:old.diskqueue.000000.dat").read_bytes()
        (folder / f"{name}.diskqueue.000000.dat").write_bytes(data)
        if metadata is not None:
            (folder / f"{name}.diskqueue.meta.dat").write_bytes(metadata)
    known = [
        {"name": "t", "paused": False, "channels": [{"name": "cut", "paused": False}]},
        {"name": "u", "paused": False, "channels": []},
    ]
    listed = {"topics": known if is_named else [], "version": "1.3.0"}
    (folder / "nsqd.dat").write_text(json.dumps(listed))
    scene = open_scene("always", **NEW)
    assert count_in(scene, "old") == 50
    assert [topic.name for topic in scene.registry.topics.sorted()] == ["t"] + ["u"] * is_named
    assert bool(list(folder.glob("u.diskqueue.*"))) == is_named
    assert bool(list(folder.glob("t:cut.diskqueue.*"))) == is_named
    if is_named:
        assert count_in(scene, "cut") == scene.topic("u").depth == 50


@pytest.mark.parametrize("mode", MODES)
def test_a_subscription_is_answered_when_the_log_has_its_channel(folder, open_scene, mode):
    """And no message comes before that answer."""

    def work(scene):
        scene.publish(b"1")
        consumer = Producer(scene.registry)
        consumer.send(b"SUB t c\nRDY 1\n")
        got = consumer.receive()
        assert mode == "interval" or got == [], "its batch is written when the turn is over"
        while not got:
            run_turn(scene.registry, 0.001)
            got = consumer.decode_all()
        assert got[0] == OK

    play_killed(folder, mode, work, **NEW)
    assert ["t", "c", False] in list_names(open_scene(mode, **NEW).registry)


def test_a_clean_stop_makes_a_new_channel_one_of_all(folder, open_scene):
    scene = open_scene(**NEW)
    scene.channel("new")
    scene.publish(b"1")
    assert b"born" in (folder / "t:new.diskqueue.meta.dat").read_bytes()
    scene.stop()
    assert b"born" not in (folder / "t:new.diskqueue.meta.dat").read_bytes()
    play_killed(folder, "always", lambda scene: scene.commit(), **NEW)
    assert count_in(open_scene(**NEW), "new") == 1


@pytest.mark.parametrize("mode", ["off", *MODES])
def test_files_are_synced_by_their_size(folder, open_scene, mode):
    """With a log a sync by the number of messages would only hold up the log's own."""
    scene = open_scene(mode, mem_queue_size=0, sync_every=10, sync_timeout_ns=LONG_NS)
    scene.channel()
    store = scene.registry.durability.store

    def count_syncs(count, size):
        before = store.figures()[0]
        for _ in range(count):
            scene.publish(bytes(size))
        with open(folder / "barrier", "wb") as file:
            store.syncer.wait(store.syncer.request_fd(file.fileno()))
        return store.figures()[0] - before - 1

    count_syncs(1, 100)
    assert (count_syncs(100, 100) > 0) == (mode == "off")
    assert count_syncs(9, 1 << 20) > (mode != "off")


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("meta", [None, b"", bytes(66)])
def test_torn_records_of_a_queue_that_the_log_does_not_have(tmp_path, mode, meta):
    """A power cut before the first sync: of the log, the metadata and some sectors there is nothing but zeros."""
    Scene(tmp_path, mode).stop()

    def record(number, body):
        head = (26 + len(body)).to_bytes(4, "big") + (10**18 + number).to_bytes(8, "big") + bytes(2)
        return head + b"%016x" % number + body

    cut = record(1, b"first".ljust(479, b"x"))
    assert len(cut) == 509
    cut += bytes(3) + record(2, b"size in two sectors".ljust(300, b"x"))[3:]
    cut += record(3, b"third")
    hollow = record(4, b"fourth".ljust(600, b"x") + bytes(500)) + record(5, b"fifth")
    for number, data in [(0, cut), (1, hollow), (4, record(6, b"sixth"))]:
        (tmp_path / f"t:c.diskqueue.{number:06d}.dat").write_bytes(data)
    if meta is not None:
        (tmp_path / "t:c.diskqueue.meta.dat").write_bytes(meta)
    scene = Scene(tmp_path, mode)
    scene.channel()
    got = [body[:5] for body, _ in scene.consumer().take(4)]
    assert sorted(got) == [b"fifth", b"first", b"sixth", b"third"]
    assert scene.counts() == (0, 4, 0)
    scene.stop()


@pytest.mark.parametrize("mode", MODES)
def test_torn_records_behind_old_metadata(tmp_path, mode):
    """A power cut soon after a start: of what came since, the disk has some sectors of a data file alone."""
    data_file, old = "t:c.diskqueue.000000.dat", b"old".ljust(600, b"x")
    folder = tmp_path / "data"
    folder.mkdir()
    scene = Scene(folder, mode, **NEW)
    scene.channel()
    scene.publish(old)
    scene.stop()
    # What a start has on disk before it opens a queue.
    flags = {"commit_log_size": RING_SIZE, "max_body_size": 2 << 20}
    registry = make_registry(folder, durable=mode, **flags, **NEW, **LONG)
    cut = shutil.copytree(folder, tmp_path / "cut")
    registry.topics.close()
    scene = Scene(folder, mode, **NEW)
    scene.publish(b"torn".ljust(2000, b"x"), b"whole")
    scene.commit()
    written = bytearray((folder / data_file).read_bytes())
    scene.stop()
    assert written.index(b"torn") < 1024
    written[1024:1536] = bytes(512)
    (cut / data_file).write_bytes(written)
    scene = Scene(cut, mode, **NEW)
    scene.channel()
    assert scene.consumer().bodies(2) == [old, b"whole"]
    assert scene.counts() == (0, 2, 0)
    scene.stop()


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("is_ours", [False, True], ids=["Go's", "ours"])
def test_hollow_records_of_another_broker(folder, mode, is_ours):
    """They are kept, since the first start with a log has them in its metadata before it writes its own."""
    other = Scene(folder, mode if is_ours else "off", **NEW)
    other.channel()
    other.publish(b"old")
    other.stop()
    body = b"hollow".ljust(600, b"x") + bytes(1500)
    with (folder / "t:c.diskqueue.000000.dat").open("ab") as file:
        head = (10**18).to_bytes(8, "big") + bytes(2) + b"%016x" % 1
        file.write((26 + len(body)).to_bytes(4, "big") + head + body)

    def work(scene):
        before = scene.registry.durability.store.figures()[0]
        with scene.registry.topics.starting():
            scene.channel()
        assert scene.registry.durability.store.figures()[0] == before + 1
        scene.commit()

    play_killed(folder, mode, work, **NEW)
    scene = Scene(folder, mode, **NEW)
    scene.channel()
    assert scene.consumer().bodies(2) == [b"old", body]
    scene.stop()


@pytest.mark.parametrize("mode", MODES)
def test_a_start_after_an_empty_that_a_kill_cut_short(tmp_path, mode):
    """Some of the files are gone, and the log does not say so: the others are read."""
    folder = tmp_path / "data"
    folder.mkdir()
    flags = {"mem_queue_size": 0, "max_bytes_per_file": 500}
    scene = Scene(folder, mode, **flags)
    scene.channel()
    scene.publish(*[b"old %d" % number for number in range(40)])
    scene.stop()
    scene = Scene(folder, mode, **flags)  # the log knows these files
    before = set(folder.glob("t:c.*.0*.dat"))
    scene.publish(*[b"new %d" % number for number in range(40)])
    scene.commit()
    assert len(set(folder.glob("t:c.*.0*.dat")) - before) > 2
    killed = shutil.copytree(folder, tmp_path / "killed")
    scene.stop()
    removed = killed / "t:c.diskqueue.000001.dat"
    gone = removed.read_bytes().count(b"old")
    removed.unlink()
    scene = Scene(killed, mode, **flags)
    bodies = scene.consumer().bodies(80 - gone)
    assert set(bodies) >= {b"new %d" % number for number in range(40)}
    scene.stop()


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("how", ["empty", "delete", "delete and make"])
def test_files_stay_until_the_log_says_why_they_go(folder, open_scene, mode, how):
    """A kill before that: the queue has what it had, and nothing that was finished."""
    flags = {"mem_queue_size": 0, "max_bytes_per_file": 500}

    def begin(scene):
        scene.channel()
        scene.publish(*numbered(*range(40)))
        consumer = scene.consumer()
        consumer.bodies(40)
        consumer.finish(*numbered(*range(0, 40, 2)))
        scene.commit()
        consumer.close()
        scene.commit()
        make_checkpoint(scene)  # from now on the files alone have their bodies

    def end(scene):
        if how == "empty":
            scene.channel().empty()
        else:
            scene.topic().delete_channel("c")
            if how == "delete and make":
                scene.channel()
        scene.registry.timers.run(let_pass(0))

    play_killed(folder, mode, begin, **flags)
    play_killed(folder, mode, end, **flags)
    scene = open_scene(mode, **flags)
    if how != "delete and make":
        left = numbered(*range(1, 40, 2))
        assert sorted(scene.consumer().bodies(20)) == sorted(left)
        end(scene)
    scene.commit()
    for _ in range(WAIT_S * 100):
        run_turn(scene.registry, 0.01)
        if how != "delete and make" and not list(folder.glob("t:c.*.0*.dat")):
            break
        if how == "delete and make" and scene.counts() == (0, 0, 0):
            break
    else:
        raise AssertionError("the files stay")


@pytest.mark.parametrize("mode", MODES)
def test_files_that_a_checkpoint_removes_after_a_clean_stop(folder, open_scene, mode):
    """The log begins with that stop still, until the next batch is written; what the checkpoint carried counts."""
    flags = {"mem_queue_size": 0, "max_bytes_per_file": 500}
    scene = open_scene(mode, **flags)
    scene.channel()
    scene.publish(*numbered(*range(40)))
    scene.stop()

    def work(scene):
        consumer = scene.consumer()
        consumer.bodies(40)
        consumer.finish(*numbered(*range(38)))
        scene.commit()
        count = len(list(folder.glob("t:c.*.0*.dat")))
        make_checkpoint(scene)
        for _ in range(WAIT_S * 100):
            if len(list(folder.glob("t:c.*.0*.dat"))) < count:
                return
            run_turn(scene.registry, 0.01)
        raise AssertionError("the files stay")

    play_killed(folder, mode, work, **flags)
    scene = open_scene(mode, **flags)
    assert scene.counts() == (2, 0, 0)
    assert sorted(scene.consumer().bodies(2)) == numbered(38, 39)


@pytest.mark.parametrize("mode", [*MODES, "off"])
def test_files_that_a_start_left_when_it_was_killed(folder, tmp_path, open_scene, mode):
    """Some of those behind them are gone already: a queue that is made anew finds nothing."""
    flags = {"mem_queue_size": 0, "max_bytes_per_file": 500}
    before = tmp_path / "before"

    def work(scene):
        scene.channel()
        scene.publish(*numbered(*range(200)))
        shutil.copytree(folder, before)
        consumer = scene.consumer(rdy=199)
        consumer.finish(*consumer.bodies(199))
        scene.commit()
        if mode != "off":
            make_checkpoint(scene)
        for _ in range(WAIT_S * 100):
            if not (folder / "t:c.diskqueue.000010.dat").exists():
                return
            run_turn(scene.registry, 0.01)
        raise AssertionError("the files stay")

    play_killed(folder, mode, work, **flags)
    for number in (0, 1, 2, 5):
        shutil.copy(before / f"t:c.diskqueue.{number:06d}.dat", folder)
    scene = open_scene(mode, **flags)
    assert scene.counts() == (1, 0, 0)
    scene.topic().delete_channel("c")
    scene.channel()
    assert scene.counts() == (0, 0, 0)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("how", ["empty", "delete"])
def test_a_checkpoint_waits_until_files_are_removed(folder, open_scene, mode, how):
    """What says why they go is not in the log any more when it is over."""
    scene = open_scene(mode, mem_queue_size=0, max_bytes_per_file=500)
    scene.channel()
    scene.publish(*numbered(*range(2000)))
    files = list(folder.glob("t:c.diskqueue.0*.dat"))
    assert len(files) > 100
    if how == "empty":
        scene.channel().empty()
    else:
        scene.topic().delete_channel("c")
    fix_parts(1)
    try:
        make_checkpoint(scene)
    finally:
        fix_parts(NEVER)
    assert [file for file in files if file.exists()] == []
