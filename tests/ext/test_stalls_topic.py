"""What a topic does at once ends after a part: counted in messages and files per turn, never in time."""

import random
import shutil

import pytest
from nsqfast._ext.core.clock import now
from nsqfast._ext.dev.probes import fix_parts, let_pass
from nsqfast._ext.dev.structures import put_all

from ext.test_durable import mpub, pub
from support.core import Peer, sync
from support.core import make_registry as make_whole

OK = (0, b"OK")
SECOND_NS = 1_000_000_000
PART = 10  # units


def make_registry(data_path, part=PART, **flags):
    """Parts that end after so many units, however long they take."""
    registry = make_whole(data_path, **flags)
    fix_parts(part)
    return registry


@pytest.fixture
def registry(tmp_path):
    registry = make_registry(tmp_path)
    yield registry
    for topic in registry.topics.sorted():
        for channel in topic.channels():
            channel.empty()  # a stop has nothing to write
    registry.topics.close()


def run(registry):
    """The timers of one turn, and its end."""
    registry.timers.run(now()[1] + 2)
    registry.turn.end()


def run_all(registry, topic):
    """Until nothing waits at the topic; how many turns that took."""
    turns = 0
    while topic.depth:
        run(registry)
        turns += 1
        assert turns < 100_000
        if turns % 100 == 0:
            sync(registry)
            let_pass(2_000_000)
    return turns


def drain(registry, name, topic=b"t"):
    """The bodies in a channel, deferred ones included; finished, and in no parts."""
    fix_parts(1 << 60)
    peer = Peer(registry)
    peer.subscribe(topic, name.encode(), 2500)
    registry.timers.run(let_pass(10 * SECOND_NS))
    bodies, got = [], peer.receive()
    while got:
        messages = [data for kind, data in got if kind == 2]
        bodies += [data[26:] for data in messages]
        peer.send(b"".join(b"FIN " + data[10:26] + b"\n" for data in messages))
        registry.timers.run(let_pass(10 * SECOND_NS))
        got = peer.receive()
    peer.close()
    return bodies


def numbers(first, end):
    return [b"%d" % number for number in range(first, end)]


def depths(topic):
    return [channel.depth for channel in topic.channels()]


def test_a_backlog_is_passed_on_in_parts(registry):
    topic = registry.topics.ensure("t")
    for body in numbers(0, 1000):
        topic.put(body)
    channel = topic.channel("c")
    before = channel.depth
    assert before <= PART
    while topic.depth:
        run(registry)
        assert channel.depth - before <= PART
        before = channel.depth
    assert (channel.depth, channel.message_count) == (1000, 1000)
    assert drain(registry, "c") == numbers(0, 1000)


def test_to_many_channels_it_goes_one_after_the_other(registry):
    topic = registry.topics.ensure("t")
    topic.pause()
    for number in range(100):
        topic.channel(f"c{number}")
    for body in numbers(0, 5):
        topic.put(body)
    topic.unpause()
    before = sum(depths(topic))
    assert before <= PART
    while topic.depth:
        run(registry)
        assert sum(depths(topic)) - before <= 2 * PART
        before = sum(depths(topic))
    assert depths(topic) == [5] * 100


def test_a_large_publish_to_many_channels_waits_at_the_topic(registry):
    """All of it was taken when its OK is given, and what comes behind it stays behind it."""
    topic, peer = registry.topics.ensure("t"), Peer(registry)
    for number in range(1000):
        topic.channel(f"c{number}")
    peer.send(mpub(b"t", *numbers(0, 50)))
    registry.turn.end()
    assert peer.decode_all() == [OK]
    assert topic.message_count == 50
    assert sum(depths(topic)) <= 2 * 50
    peer.send(pub(b"t", b"50") + mpub(b"t", b"51", b"52"))
    topic.put(b"53")
    registry.turn.end()
    assert peer.decode_all() == [OK, OK]
    run_all(registry, topic)
    assert depths(topic) == [54] * 1000
    assert {channel.message_count for channel in topic.channels()} == {54}
    for name in ("c0", "c500", "c999"):
        assert drain(registry, name) == numbers(0, 54)
    # Nothing waits any more: a small one goes to all of them at once.
    topic.put(b"54")
    assert topic.depth == 0


@pytest.mark.parametrize("deferred", [False, True])
def test_a_publish_behind_a_backlog_passes_on_more_than_it_brings(registry, deferred):
    fix_parts(1000)
    topic, peer = registry.topics.ensure("t"), Peer(registry)
    topic.pause()
    topic.channel("c")
    for body in numbers(0, 5000):
        topic.put(body, 1 if deferred else 0)
    topic.unpause()
    before = topic.depth
    peer.send(b"".join(pub(b"t", body) for body in numbers(5000, 5500)))
    peer.send(mpub(b"t", *numbers(5500, 6000)))
    assert topic.depth <= before - 900  # and no timer has run
    run_all(registry, topic)
    bodies = drain(registry, "c")
    assert sorted(bodies, key=int) == numbers(0, 6000)
    if not deferred:
        assert bodies == numbers(0, 6000)


def test_a_durable_publish_behind_a_backlog_passes_on_more(tmp_path):
    registry = make_registry(tmp_path, 1000, mem_queue_size=0, durable="always")
    topic, peer = registry.topics.ensure("t"), Peer(registry)
    topic.pause()
    topic.channel("c")
    put_all(topic, b"\n".join(numbers(0, 3000)), False)
    sync(registry, peer)
    topic.unpause()
    before = topic.depth
    peer.send(b"".join(pub(b"t", body) for body in numbers(3000, 3300)))
    registry.turn.end()
    assert topic.depth < before
    assert sync(registry, peer) == [[OK] * 300]
    run_all(registry, topic)
    sync(registry, peer)
    assert drain(registry, "c") == numbers(0, 3300)
    registry.topics.close()


def test_a_backlog_on_disk_moves_on_while_no_fsync_ends(tmp_path):
    """Where publishers are fast an fsync takes long; the backlog would grow meanwhile."""
    registry = make_registry(tmp_path, 1000, mem_queue_size=0)
    topic, peer = registry.topics.ensure("t"), Peer(registry)
    topic.pause()
    topic.channel("c")
    put_all(topic, b"\n".join(numbers(0, 100_000)), False)
    topic.unpause()
    for first in range(100_000, 150_000, 500):
        before = topic.depth
        peer.send(mpub(b"t", *numbers(first, first + 500)))
        assert topic.depth < before
        registry.turn.end()
        peer.decode_all()
    assert topic.depth <= 50_000
    run_all(registry, topic)
    assert drain(registry, "c") == numbers(0, 150_000)
    registry.topics.close()


def test_deferred_messages_that_wait_for_a_first_channel(registry):
    topic = registry.topics.ensure("t")
    for body in numbers(0, 300):
        topic.put(body, 1)
    channel = topic.channel("c")
    before = channel.deferred_count
    assert before <= PART
    topic.put(b"300")
    while topic.depth:
        registry.timers.run(now()[1] + 2)
        assert channel.deferred_count - before <= 2 * PART
        before = channel.deferred_count
    assert sorted(drain(registry, "c"), key=int) == numbers(0, 301)


@pytest.mark.parametrize("mode", ["memory", "disk", "durable"])
def test_a_first_overflow_of_many_channels_makes_a_few_files_in_a_turn(tmp_path, mode):
    flags = {"memory": {"mem_queue_size": 1}, "disk": {"mem_queue_size": 0}}.get(
        mode, {"mem_queue_size": 0, "durable": "always"}
    )
    registry = make_registry(tmp_path, **flags)
    topic, peer = registry.topics.ensure("t"), Peer(registry)
    for number in range(50):
        topic.channel(f"c{number}")
    if mode == "memory":
        peer.send(pub(b"t", b"0"))
    peer.send(pub(b"t", b"1"))
    frames = sync(registry, peer)[0]
    assert frames == [OK] * (2 if mode == "memory" else 1)

    def files():
        return len(list(tmp_path.glob("t:c*.diskqueue.000000.dat")))

    before = files()
    assert before <= 4
    while topic.depth:
        run(registry)
        assert files() - before <= 1
        before = files()
    assert before == 50
    bodies = [b"0", b"1"] if mode == "memory" else [b"1"]
    for number in range(50):
        assert drain(registry, f"c{number}") == bodies
    sync(registry, peer)
    registry.topics.close()


def make_again(registry):
    """As a start makes a topic with its channels: nothing is passed on before all of them are there."""
    topic = registry.topics.ensure("t")
    topic.pause()
    for number in range(5):
        topic.channel(f"c{number}")
    topic.unpause()
    return topic


@pytest.mark.parametrize("memory", [0, 10_000])
def test_a_stop_in_the_middle_of_it(tmp_path, memory):
    registry = make_registry(tmp_path, mem_queue_size=memory)
    topic = make_again(registry)
    topic.pause()
    for body in numbers(0, 100):
        topic.put(body)
    topic.unpause()
    run(registry)
    assert len(set(depths(topic))) > 1  # some have more than others
    registry.topics.close()
    registry = make_registry(tmp_path)
    topic = make_again(registry)
    run_all(registry, topic)
    for number in range(5):
        assert drain(registry, f"c{number}") == numbers(0, 100)
    registry.topics.close()


def test_a_kill_in_the_middle_of_it_loses_nothing(tmp_path):
    folder = tmp_path / "data"
    folder.mkdir()
    registry = make_registry(folder, mem_queue_size=0)
    topic = registry.topics.ensure("t")
    topic.pause()
    for number in range(5):
        topic.channel(f"c{number}")
    for body in numbers(0, 100):
        topic.put(body)
    topic.unpause()
    for turn in range(12):
        fix_parts(PART)
        run(registry)
        left = tmp_path / f"left-{turn}"
        shutil.copytree(folder, left)
        again = make_registry(left)
        other = make_again(again)
        run_all(again, other)
        for number in range(5):
            assert set(drain(again, f"c{number}")) == set(numbers(0, 100))
        again.topics.close()
    run_all(registry, topic)
    registry.topics.close()


def test_a_channel_that_cannot_take_it_gets_it_later_and_nobody_twice(tmp_path):
    registry = make_registry(tmp_path, mem_queue_size=0)
    topic = registry.topics.ensure("t")
    topic.pause()
    for name in "abc":
        topic.channel(name)
    for body in numbers(0, 30):
        topic.put(body)
    obstacle = tmp_path / "t:b.diskqueue.000000.dat"
    obstacle.mkdir()
    topic.unpause()
    for _ in range(50):
        registry.timers.run(let_pass(SECOND_NS))
    assert topic.depth > 0
    assert depths(topic)[1] == 0
    obstacle.rmdir()
    for _ in range(50):
        registry.timers.run(let_pass(SECOND_NS))
    assert topic.depth == 0
    for name in "abc":
        assert drain(registry, name) == numbers(0, 30)
    registry.topics.close()


@pytest.mark.parametrize("flags", [{}, {"mem_queue_size": 0}, {"mem_queue_size": 7}])
def test_channels_that_come_and_go_meanwhile(tmp_path, flags):
    """Each has all that was published while it was there, once and in order."""
    seed = random.randrange(1 << 32)
    print("seed", seed)
    dice = random.Random(seed)
    registry = make_registry(tmp_path, **flags)
    topic = registry.topics.ensure("t")
    count, channels, made = 0, {}, 0
    for _ in range(300):
        action = dice.random()
        fix_parts(dice.choice([1, 3, 10, 100]))
        if action < 0.1:
            topic.channel(f"c{made}")
            channels[f"c{made}"] = count
            made += 1
        elif action < 0.16 and channels:
            name = dice.choice(list(channels))
            del channels[name]
            topic.delete_channel(name)
        elif action < 0.22:
            topic.pause()
        elif action < 0.35:
            topic.unpause()
        elif action < 0.7:
            for _ in range(dice.choice([1, 1, 5, 40])):
                topic.put(b"%d" % count)
                count += 1
        else:
            run(registry)
    topic.channel("last")
    channels["last"] = count
    topic.unpause()
    fix_parts(10)
    run_all(registry, topic)
    for name, since in channels.items():
        found = [int(body) for body in drain(registry, name)]
        assert found == sorted(set(found)), name
        assert found[len(found) - (count - since) :] == list(range(since, count)), name
    registry.topics.close()


def begin_to_pass_on(registry, *names):
    """30 messages, some of which the first of these channels has and the others lack."""
    topic = registry.topics.ensure("t")
    topic.pause()
    for name in names:
        topic.channel(name)
    for body in numbers(0, 30):
        topic.put(body)
    topic.unpause()
    assert len(set(depths(topic))) > 1
    return topic


@pytest.mark.parametrize("is_paused", [False, True])
def test_a_channel_that_is_made_again_meanwhile_gets_nothing_again(registry, is_paused):
    topic, peer = begin_to_pass_on(registry, "a", "b", "c"), Peer(registry)
    if is_paused:
        topic.pause()
    peer.subscribe(b"t", b"a", 2500)
    had = [data[26:] for kind, data in peer.receive() if kind == 2]
    assert had
    topic.delete_channel("a")
    topic.channel("a")
    if is_paused:
        run(registry)
        run(registry)
        assert depths(topic) == [0, len(had), len(had)]
        assert topic.depth == 30 - len(had)
    topic.unpause()
    run_all(registry, topic)
    assert drain(registry, "a") == numbers(len(had), 30)
    assert drain(registry, "b") == drain(registry, "c") == numbers(0, 30)


def test_what_no_channel_had_when_all_were_deleted_goes_to_the_next(registry):
    topic = begin_to_pass_on(registry, "a", "b")
    had = topic.find_channel("a").depth
    topic.delete_channel("a")
    topic.delete_channel("b")
    assert topic.depth == 30 - had
    topic.channel("a")
    run_all(registry, topic)
    assert drain(registry, "a") == numbers(had, 30)


def test_a_stop_keeps_what_the_disk_of_a_deleted_channel_refused(tmp_path):
    registry = make_registry(tmp_path, mem_queue_size=0)
    topic = registry.topics.ensure("t")
    for body in numbers(0, 30):
        topic.put(body)
    obstacle = tmp_path / "t:a.diskqueue.000000.dat"
    obstacle.mkdir()
    topic.channel("a")
    registry.timers.run(let_pass(SECOND_NS))
    assert (topic.depth, depths(topic)) == (30, [0])
    obstacle.rmdir()
    topic.delete_channel("a")
    registry.topics.close()
    registry = make_registry(tmp_path)
    topic = registry.topics.ensure("t")
    topic.channel("b")
    run_all(registry, topic)
    assert sorted(drain(registry, "b"), key=int) == numbers(0, 30)
    registry.topics.close()


def test_what_is_emptied_or_deleted_in_the_middle_of_it(registry):
    for verb in ("empty", "delete"):
        topic = registry.topics.ensure(verb)
        topic.pause()
        for number in range(5):
            topic.channel(f"c{number}")
        for body in numbers(0, 100):
            topic.put(body)
        topic.unpause()
        run(registry)
        if verb == "delete":
            registry.topics.delete("delete")
        else:
            topic.empty()
            assert topic.depth == 0
            before = depths(topic)
            run(registry)
            assert depths(topic) == before
            topic.put(b"new")
            assert depths(topic) == [depth + 1 for depth in before]
        run(registry)


def run_until(registry, is_done):
    for _ in range(1000):
        if is_done():
            return
        run(registry)
    raise AssertionError("it does not end")


LARGE = 12_000  # messages of an MPUB that is put in slices


@pytest.mark.parametrize("flags", [{}, {"mem_queue_size": 0}])
def test_a_large_mpub_is_put_in_slices(tmp_path, flags):
    registry = make_registry(tmp_path, 2000, **flags)
    topic, peer, other = registry.topics.ensure("t"), Peer(registry), Peer(registry)
    channel = topic.channel("c")
    peer.send(mpub(b"t", *numbers(0, LARGE)) + pub(b"t", b"%d" % LARGE))
    assert topic.message_count <= 3000
    other.send(pub(b"u", b"x"))
    registry.turn.end()
    assert other.decode_all() == [OK]
    before = topic.message_count
    assert before <= 6000
    answers = peer.decode_all()
    while topic.message_count < LARGE:
        assert answers == []
        run(registry)
        assert topic.message_count - before <= 3000
        before = topic.message_count
        answers = peer.decode_all()
    run_until(registry, lambda: topic.message_count > LARGE)
    assert answers + peer.receive() == [OK, OK]
    assert peer.session.pub_counts() == {"t": LARGE + 1}
    assert channel.message_count == LARGE + 1
    assert drain(registry, "c") == numbers(0, LARGE + 1)
    registry.topics.close()


def test_a_large_mpub_on_a_durable_broker(tmp_path):
    registry = make_registry(tmp_path, 2000, mem_queue_size=0, durable="always")
    topic, peer = registry.topics.ensure("t"), Peer(registry)
    topic.channel("c")
    peer.send(pub(b"t", b"0") + mpub(b"t", *numbers(1, LARGE)) + pub(b"t", b"%d" % LARGE))
    assert topic.find_channel("c").depth < LARGE
    answers = []
    while topic.find_channel("c").depth < LARGE:
        answers += sync(registry, peer)[0]
        run(registry)
    assert len(answers) <= 1
    for _ in range(3):
        run(registry)
        answers += sync(registry, peer)[0]
    assert answers == [OK] * 3
    assert topic.message_count == LARGE + 1
    sync(registry)
    assert drain(registry, "c") == numbers(0, LARGE + 1)
    registry.topics.close()


def test_a_large_mpub_that_fails_keeps_what_was_put_before(tmp_path):
    """Without a commit log."""
    registry = make_registry(tmp_path, 2000, mem_queue_size=0, max_bytes_per_file=100_000)
    topic, peer = registry.topics.ensure("t"), Peer(registry)
    channel = topic.channel("c")
    obstacle = tmp_path / "t:c.diskqueue.000001.dat"
    obstacle.mkdir()
    peer.send(mpub(b"t", *numbers(0, LARGE)) + pub(b"t", b"never"))
    frames = []
    for _ in range(20):
        run(registry)
        frames += sync(registry, peer)[0]
    assert [kind for kind, _ in frames] == [1]
    assert frames[0][1].startswith(b"E_MPUB_FAILED MPUB failed open ")
    assert 0 < channel.depth < LARGE
    assert channel.depth % 1024 == 0
    obstacle.rmdir()
    assert drain(registry, "c") == numbers(0, channel.depth or LARGE)[: channel.message_count]
    registry.topics.close()


def let_retry(registry, peer, seconds=1):
    registry.timers.run(let_pass(seconds * SECOND_NS))
    run(registry)
    return sync(registry, peer)[0]


@pytest.mark.parametrize("end", ["room", "leaves", "deleted"])
def test_a_large_mpub_waits_for_a_disk_with_a_commit_log(tmp_path, end):
    """The log has all of it, and a part is in the queue: it is tried again, whether its publisher is there or not."""
    flags = {"mem_queue_size": 0, "max_bytes_per_file": 100_000, "durable": "always"}
    registry = make_registry(tmp_path, 2000, **flags)
    topic, peer = registry.topics.ensure("t"), Peer(registry)
    channel = topic.channel("c")
    obstacle = tmp_path / "t:c.diskqueue.000001.dat"
    obstacle.mkdir()
    peer.send(mpub(b"t", *numbers(0, LARGE)) + pub(b"t", b"behind"))
    frames = []
    for _ in range(8):
        frames += let_retry(registry, peer)
    assert frames == []
    assert 0 < channel.depth < LARGE
    if end == "leaves":
        peer.close()
    elif end == "deleted":
        registry.topics.delete("t")
        run(registry)
        assert [kind for kind, _ in sync(registry, peer)[0]] == [1]
    obstacle.rmdir()
    if end != "deleted":
        for _ in range(8):
            frames += let_retry(registry, peer)
        assert frames == ([OK, OK] if end == "room" else [])
        assert drain(registry, "c") == numbers(0, LARGE) + ([b"behind"] if end == "room" else [])
    registry.topics.close()


@pytest.mark.parametrize("end", ["leaves", "deleted", "stops"])
def test_a_large_mpub_that_is_not_in_the_log_as_a_whole(tmp_path, end):
    """Nothing of it is kept."""
    registry = make_registry(tmp_path, 2000, durable="always")
    topic, peer = registry.topics.ensure("t"), Peer(registry)
    peer.send(mpub(b"t", *numbers(0, LARGE)))
    run(registry)
    assert topic.message_count == 0
    if end == "leaves":
        peer.close()
    elif end == "deleted":
        registry.topics.delete("t")
    if end != "stops":
        for _ in range(8):
            frames = let_retry(registry, peer)
        assert [kind for kind, _ in frames] == []
        assert registry.topics.ensure("t").depth == 0
    registry.topics.close()
    registry = make_registry(tmp_path, 2000, durable="always")
    assert registry.topics.ensure("t").depth == 0
    registry.topics.close()


def test_whoever_leaves_in_the_middle_of_a_large_mpub(registry):
    fix_parts(2000)
    topic, peer = registry.topics.ensure("t"), Peer(registry)
    topic.channel("c")
    peer.send(mpub(b"t", *numbers(0, LARGE)))
    peer.close()
    for _ in range(20):
        run(registry)
    assert topic.message_count < LARGE
    again = Peer(registry)
    again.send(pub(b"t", b"x"))
    assert again.receive() == [OK]


CHANNELS = 100


def make_channels(registry):
    """With a message in each."""
    topic = registry.topics.ensure("t")
    for number in range(CHANNELS):
        topic.channel(f"c{number}")
    topic.put(b"x")


def changes_of(registry):
    """What the registry tells of channels that go, as it does."""
    found = []
    registry.topics.on_change = lambda kind, topic, channel: (
        found.append(channel) if kind == "channel-" else None
    )
    return found


def test_a_topic_is_deleted_a_few_channels_in_a_turn(tmp_path):
    """It is gone for everybody at once, and its files are when that is told."""
    registry = make_registry(tmp_path, part=1 << 60, mem_queue_size=0)
    make_channels(registry)
    peer = Peer(registry)
    peer.subscribe(b"t", b"c99", 1)
    assert len(peer.receive()) == 2
    run_until(registry, lambda: registry.topics.ensure("t").depth == 0)
    gone, removed = changes_of(registry), []
    fix_parts(PART * 16)
    registry.topics.delete("t")
    assert registry.topics.find("t") is None
    registry.topics.when_removed(lambda: removed.append(True))
    found = [len(gone)]
    while not removed:
        run(registry)
        found.append(len(gone) - sum(found))
    assert max(found) == PART
    assert gone == [f"c{number}" for number in range(CHANNELS)]
    assert list(tmp_path.glob("t*.diskqueue.*")) == []
    assert peer.transport.is_closing
    registry.topics.close()


def test_a_topic_made_again_before_all_its_channels_are_deleted(tmp_path):
    """The new one has nothing of the old one, and what it gets stays."""
    registry = make_registry(tmp_path, part=1 << 60, mem_queue_size=0)
    make_channels(registry)
    gone = changes_of(registry)
    fix_parts(PART * 16)
    registry.topics.delete("t")
    assert len(gone) < CHANNELS
    topic = registry.topics.ensure("t")
    assert len(gone) == CHANNELS
    channel = topic.channel("c99")
    assert (channel.depth, topic.depth) == (0, 0)
    topic.put(b"new")
    removed = []
    registry.topics.when_removed(lambda: removed.append(True))
    while not removed:
        run(registry)
    registry.topics.close()
    assert make_registry(tmp_path).topics.ensure("t").channel("c99").depth == 1


def test_a_stop_before_all_channels_of_a_topic_are_deleted(tmp_path):
    registry = make_registry(tmp_path, part=1 << 60, mem_queue_size=0)
    make_channels(registry)
    fix_parts(PART * 16)
    registry.topics.delete("t")
    removed = []
    registry.topics.when_removed(lambda: removed.append(True))
    registry.topics.close()
    assert removed == [True]
    assert list(tmp_path.glob("t*.diskqueue.*")) == []


def test_a_publish_to_a_topic_that_is_being_deleted_makes_it_again(tmp_path):
    registry = make_registry(tmp_path, part=1 << 60)
    make_channels(registry)
    peer = Peer(registry)
    peer.send(pub(b"t", b"x"))
    assert peer.receive() == [OK]
    fix_parts(PART * 16)
    registry.topics.delete("t")
    peer.send(pub(b"t", b"y"))
    assert peer.receive() == [OK]
    assert registry.topics.ensure("t").depth == 1
    assert registry.topics.ensure("t").channels() == []
    registry.topics.close()
