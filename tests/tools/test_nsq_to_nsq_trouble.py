"""nsqfast-nsq-to-nsq where something goes wrong: nothing is lost, and what is doubled is counted."""

import asyncio
import collections
import time

import pytest

from support.drain import address_of, drain, drain_until_still, message_count
from support.fake_nsqd import FakeNsqd
from support.ports import hold_port
from support.programs import left, publish
from support.server import start_nsqd
from support.tools import Tool, tool_command
from support.waiting import eventually, until
from support.web import post, topic_stats

pytestmark = pytest.mark.soak

CHANNEL = "nsq_to_nsq"
MEBIBYTE = 1 << 20
# What was taken is on the disk, and survives the process.
ON_DISK = ("--mem-queue-size=0", "--sync-every=1")
COUNT = 6000
SLOWLY = "--max-in-flight=10"  # so that a kill comes in the middle
SECONDS_MAX = 50  # a disk may be slow, and Go's nsqd syncs each message by itself


def start(source, topic, destinations, *flags, channel=CHANNEL):
    """`source` is a broker, or an address where there will be one."""
    if not isinstance(source, str):
        # So that there are figures to look at from the beginning.
        create(source, topic, channel)
        source = address_of(source)
    words = [f"--topic={topic}", f"--nsqd-tcp-address={source}", "--status-every=0"]
    words += [f"--channel={channel}"]
    words += [f"--destination-nsqd-tcp-address={one}" for one in destinations]
    return Tool(tool_command("nsq_to_nsq", "nsqfast", *words, *flags))


def create(broker, topic, channel):
    assert post(broker.http, f"/topic/create?topic={topic}").status == 200
    assert post(broker.http, f"/channel/create?topic={topic}&channel={channel}").status == 200


def make(folder, name):
    (folder / name).mkdir(exist_ok=True)
    return folder / name


def fill(source, topic, count, start=0):
    for first in range(start, count, 1000):
        publish(address_of(source), topic, *[b"%d" % n for n in range(first, first + 1000)])


def held(broker, topic):
    """What the source's channel holds, by its place."""
    return topic_stats(broker.http, topic)["channels"][CHANNEL]


def check_all_there(bodies, count):
    """Returns how many came twice."""
    found = collections.Counter(bodies)
    assert set(found) == {b"%d" % number for number in range(count)}
    return sum(found.values()) - count


# -- death


def test_death_of_the_destination(implementation, tmp_path, topic):
    """kill -9 under load, and back at the same address: nothing is lost, in order but for what came twice."""
    port, count = hold_port(), 2000
    words = (*ON_DISK, f"--tcp-address=127.0.0.1:{port}")
    folder = make(tmp_path, "b")
    with start_nsqd(implementation, make(tmp_path, "a")) as source:
        fill(source, topic, count)
        destination = start_nsqd(implementation, folder, *words)
        try:
            with start(source, topic, [f"127.0.0.1:{port}"], SLOWLY) as running:
                eventually(lambda: message_count(destination, topic) > 500)
                destination.kill()
                assert left(source, topic, CHANNEL) > 0  # or it was not under load
                running.wait_for(lambda it: b"lost" in it.err)
                destination = start_nsqd(implementation, folder, *words)
                eventually(lambda: left(source, topic, CHANNEL) == 0, SECONDS_MAX)
                assert held(source, topic)["requeue_count"] == 0
                assert running.end() == 0
                assert b"Traceback" not in running.err
            bodies = drain_until_still(destination, topic)
        finally:
            destination.kill()
    twice = check_all_there(bodies, count)
    assert twice <= 200  # what may be in flight
    firsts = list(dict.fromkeys(bodies))
    assert firsts == [b"%d" % number for number in range(count)]


def test_death_of_the_tool(implementation, tmp_path, topic):
    """kill -9 under load: what is finished is at the destination; the rest is still at the source."""
    with (
        start_nsqd(implementation, make(tmp_path, "a")) as source,
        start_nsqd(implementation, make(tmp_path, "b"), "--mem-queue-size=100000") as destination,
    ):
        fill(source, topic, COUNT // 2)
        # Go's nsqd gives what a client had to another one when its time is up, and not before.
        flag = "--consumer-opt=msg_timeout,1s"
        with start(source, topic, [address_of(destination)], SLOWLY, flag) as running:
            eventually(lambda: message_count(destination, topic) > 500)
            # However long the look took, the kill comes while there is work.
            fill(source, topic, COUNT, COUNT // 2)
            running.kill()
        eventually(lambda: not held(source, topic)["clients"])
        there = drain(destination, topic)
        rest = left(source, topic, CHANNEL) + topic_stats(source.http, topic)["depth"]
        assert 0 < rest < COUNT  # or it was not under load
        with start(source, topic, [address_of(destination)]) as running:
            running.wait_for(lambda it: b"subscribed" in it.err)
            eventually(lambda: left(source, topic, CHANNEL) == 0)
            assert running.end() == 0
        again = drain(destination, topic)
    assert len(there) + rest >= COUNT
    assert len(again) == rest
    assert check_all_there(there + again, COUNT) <= 200


def test_death_of_one_of_several(tmp_path, topic):
    """The others get the rest; what nobody knows of comes again."""
    with start_nsqd("nsqfast", make(tmp_path, "a")) as source:
        fill(source, topic, COUNT)
        survivor = start_nsqd("nsqfast", make(tmp_path, "b"), "--mem-queue-size=100000")
        victim_folder = make(tmp_path, "c")
        victim = start_nsqd("nsqfast", victim_folder, *ON_DISK)
        flags = ("--consumer-opt=default_requeue_delay,0", "--consumer-opt=backoff_multiplier,20ms")
        try:
            both = [address_of(victim), address_of(survivor)]
            with start(source, topic, both, SLOWLY, *flags) as running:
                eventually(lambda: message_count(victim, topic) > 500)
                victim.kill()
                assert left(source, topic, CHANNEL) > 0  # or it was not under load
                eventually(lambda: left(source, topic, CHANNEL) == 0, SECONDS_MAX)
                assert running.end() == 0
            victim = start_nsqd("nsqfast", victim_folder, *ON_DISK)
            bodies = drain(survivor, topic) + drain(victim, topic)
        finally:
            victim.kill()
            survivor.kill()
    assert check_all_there(bodies, COUNT) <= 200


# -- refusing and hanging


def test_a_destination_that_is_away(implementation, tmp_path, topic):
    """Held for as long as read_timeout says, then requeued with backoff; and nothing is lost."""
    port = hold_port()
    flags = (
        "--producer-opt=read_timeout,300ms",
        "--producer-opt=heartbeat_interval,300ms",
        "--consumer-opt=backoff_multiplier,10ms",
    )
    with start_nsqd(implementation, make(tmp_path, "a")) as source:
        publish(address_of(source), topic, b"1", b"2", b"3")
        with start(source, topic, [f"127.0.0.1:{port}"], *flags) as running:
            eventually(lambda: held(source, topic)["deferred_count"] == 3)
            assert running.end() == 0
        assert b"no connection in time" in running.err
        assert b"messages are requeued" in running.err
        assert b"Traceback" not in running.err
        assert message_count(source, topic) == 3
        assert held(source, topic)["requeue_count"] == 3


def test_a_destination_that_hangs(implementation, tmp_path, topic):
    """It takes the bytes and says nothing: requeued after read_timeout, finished never."""
    flags = ("--producer-opt=read_timeout,1s", "--producer-opt=heartbeat_interval,1s")
    destination = start_nsqd(implementation, make(tmp_path, "b"))
    try:
        with (
            start_nsqd(implementation, make(tmp_path, "a")) as source,
            start(source, topic, [address_of(destination)], *flags) as running,
        ):
            publish(address_of(source), topic, b"1")
            eventually(lambda: message_count(destination, topic) == 1)
            eventually(lambda: left(source, topic, CHANNEL) == 0)
            destination.freeze()
            publish(address_of(source), topic, b"2", b"3")
            eventually(lambda: held(source, topic)["deferred_count"] == 2)
            assert running.end() == 0
            assert left(source, topic, CHANNEL) == 2
        assert b" in time" in running.err
    finally:
        destination.kill()


def test_one_that_is_away_is_passed_over(tmp_path, topic):
    with (
        start_nsqd("nsqfast", make(tmp_path, "a")) as source,
        start_nsqd("nsqfast", make(tmp_path, "b"), "--mem-queue-size=100000") as destination,
    ):
        for number in range(3):
            create(source, topic, f"c{number}")
        fill(source, topic, 2000)
        both = [f"127.0.0.1:{hold_port()}", address_of(destination)]
        for number, mode in enumerate(["round-robin", "hostpool", "epsilon-greedy"]):
            channel = f"c{number}"
            with start(source, topic, both, f"--mode={mode}", channel=channel) as running:
                eventually(
                    lambda number=number: message_count(destination, topic) == 2000 * (number + 1)
                )
                assert running.end() == 0
            assert held_by(source, topic, f"c{number}")["requeue_count"] == 0


def held_by(broker, topic, channel):
    return topic_stats(broker.http, topic)["channels"][channel]


def test_none_of_several_is_there(tmp_path, topic):
    with start_nsqd("nsqfast", make(tmp_path, "a")) as source:
        publish(address_of(source), topic, b"1", b"2")
        both = [f"127.0.0.1:{hold_port()}" for _ in range(2)]
        with start(source, topic, both) as running:
            eventually(lambda: held(source, topic)["deferred_count"] == 2)
            assert running.end() == 0
        assert b"no destination is connected" in running.err


@pytest.mark.parametrize("frozen", ["source", "destination"])
def test_a_frozen_nsqd_at_the_end(implementation, tmp_path, topic, frozen):
    """SIGTERM ends it within 5 s, and what was not answered is back at the source."""
    brokers = {
        "source": start_nsqd(implementation, make(tmp_path, "a"), "--msg-timeout=1h"),
        "destination": start_nsqd(implementation, make(tmp_path, "b")),
    }
    source, destination = brokers.values()
    try:
        publish(address_of(source), topic, b"first")
        with start(source, topic, [address_of(destination)]) as running:
            eventually(lambda: message_count(destination, topic) == 1)
            eventually(lambda: left(source, topic, CHANNEL) == 0)
            brokers[frozen].freeze()
            if frozen == "destination":
                publish(address_of(source), topic, b"second")
                eventually(lambda: held(source, topic)["in_flight_count"] == 1)
            begun_s = time.monotonic()
            assert running.end() == 0
            assert time.monotonic() - begun_s < 5
            assert b"Traceback" not in running.err
            assert b"Warning" not in running.err
        brokers[frozen].thaw()
        if frozen == "destination":
            eventually(lambda: held(source, topic)["depth"] == 1)
    finally:
        for broker in brokers.values():
            broker.kill()


# -- messages that a destination does not take


BIG_AT = ("--max-msg-size=5000000",)


def test_a_message_that_is_too_big(implementation, tmp_path, topic):
    """It is named and requeued; those beside it arrive, and nothing slows down."""
    with (
        start_nsqd(implementation, make(tmp_path, "a"), *BIG_AT) as source,
        start_nsqd(implementation, make(tmp_path, "b")) as destination,
    ):
        big = b"x" * (MEBIBYTE + 1)
        healthy = [b"%d" % number for number in range(300)]
        publish(address_of(source), topic, *healthy[:100], big, *healthy[100:200], big)
        with start(source, topic, [address_of(destination)]) as running:
            eventually(lambda: held(source, topic)["deferred_count"] == 2)
            eventually(lambda: b"connected again" in running.err)
            lost_count = running.err.count(b"lost")
            publish(address_of(source), topic, *healthy[200:], big)
            eventually(lambda: held(source, topic)["deferred_count"] == 3)
            eventually(lambda: message_count(destination, topic) == 300)
            assert running.end() == 0
        assert sorted(drain(destination, topic)) == sorted(healthy)
        assert held(source, topic)["requeue_count"] == 3
    assert running.err.count(b"of 1048577 bytes, it is requeued") == 3
    assert running.err.count(b"too big") + running.err.count(b"takes messages of up to") >= 3
    # Found out with the first two, and known from then on.
    assert running.err.count(b"lost") == lost_count


def test_batches_that_are_too_big(implementation, tmp_path, topic):
    """A limit of MPUBs alone harms no message."""
    flags = ("--max-body-size=20000", "--max-msg-size=9000")
    with (
        start_nsqd(implementation, make(tmp_path, "a")) as source,
        start_nsqd(implementation, make(tmp_path, "b"), *flags) as destination,
    ):
        bodies = [b"%d" % number * 1000 for number in range(100)]
        publish(address_of(source), topic, *bodies)
        with start(source, topic, [address_of(destination)]) as running:
            eventually(lambda: left(source, topic, CHANNEL) == 0)
            assert running.end() == 0
        assert sorted(drain(destination, topic)) == sorted(bodies)
        assert held(source, topic)["requeue_count"] == 0


@pytest.mark.parametrize("action", ["finish", "exit", "topic:"])
def test_giving_up(tmp_path, topic, action):
    flags = ("--consumer-opt=max_attempts,2", "--consumer-opt=default_requeue_delay,0")
    with (
        start_nsqd("nsqfast", make(tmp_path, "a"), *BIG_AT) as source,
        start_nsqd("nsqfast", make(tmp_path, "b")) as destination,
    ):
        big = b"x" * (MEBIBYTE + 1)
        publish(address_of(source), topic, b"small", big)
        action = f"{action}{topic}-dead" if action == "topic:" else action
        flags = (*flags, f"--on-give-up={action}")
        with start(source, topic, [address_of(destination)], *flags) as running:
            if action == "exit":
                assert running.end(None) == 1
                assert left(source, topic, CHANNEL) == 1
            else:
                eventually(lambda: left(source, topic, CHANNEL) == 0)
                assert running.end() == 0
        assert f"giving up {topic}: ".encode() in running.err
        assert drain(destination, topic) == [b"small"]
        if action.startswith("topic:"):
            assert drain(source, f"{topic}-dead") == [big]


def test_an_id_that_is_no_text(tmp_path):
    """What a destination refuses is requeued, however its source names it."""
    identity = bytes(range(0xF0, 0x100))
    requeued = []

    async def script(peer):
        await peer.subscribe()
        await peer.expect("RDY")
        peer.deliver(1, body=b"x" * 2000, identity=identity)
        requeued.append(await peer.reader.readuntil(b"REQ " + identity))
        await peer.read_to_end()

    async def main(destination):
        async with FakeNsqd(script) as source:
            flags = [f"--nsqd-tcp-address={source.address}", "--topic=t"]
            flags.append(f"--destination-nsqd-tcp-address={address_of(destination)}")
            running = await asyncio.to_thread(Tool, tool_command("nsq_to_nsq", "nsqfast", *flags))
            try:
                await until(lambda: requeued)
            finally:
                await asyncio.to_thread(running.kill)
            assert b"refuses message \\xf0" in running.err

    with start_nsqd("nsqfast", tmp_path, "--max-msg-size=1000") as destination:
        asyncio.run(main(destination))
