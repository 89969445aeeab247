"""kill -9 of receivers and brokers, frozen ones, several receivers: nothing is missing, nothing is there twice."""

import random
import signal

import pytest

from nsqfast.spark.spool.segments import ARROW, FORMATS, PARQUET
from support.drain import address_of
from support.server import start_nsqd
from support.spool import (
    is_empty,
    metric,
    numbers,
    publish,
    receiver_flags,
    row_count,
    start_killed_at,
    start_receiver,
)
from support.waiting import eventually

pytestmark = pytest.mark.soak

COUNT = 200_000
MESSAGE_HEADER_SIZE = 26  # timestamp, attempts and id, before the body
SOON = ("--msg-timeout=1s",)


def receive_rest(broker, topic, folder, *more):
    """All that is left, also what a killed one had in flight; returns what the receiver said."""
    flags = receiver_flags(folder, address_of(broker), *SOON, *more, topic=topic)
    with start_receiver(*flags) as tool:
        eventually(lambda: is_empty(broker, topic), 30)
        assert tool.end() == 0, tool.text
    return tool.text


def check_all(folder, count=COUNT):
    found = numbers(folder)
    assert len(set(found)) == count, f"{count - len(set(found))} are missing"
    assert len(found) == count, f"{len(found) - count} are there twice"


POINTS = [
    ("before fsync", 7),
    ("before the name", 6),
    ("before the folder's fsync", 8),
    ("before FIN", 5),
    ("after FIN", 4),
]


@pytest.mark.parametrize(
    ("point", "count", "kind"),
    [
        ("within the file", 65, ARROW),
        ("within the file", 9, PARQUET),
        *[(*point, kind) for point in POINTS for kind in FORMATS],
    ],
)
def test_killed_at_a_point_of_sealing(ours, topic, folder, point, count, kind):
    address = address_of(ours)
    publish(address, topic, range(COUNT))
    flags = receiver_flags(folder, address, f"--segment-format={kind}", topic=topic)
    with start_killed_at(point, count, *flags, *SOON) as tool:
        assert tool.end(None) == -signal.SIGKILL, tool.text
    assert 0 < row_count(folder) < COUNT
    said = receive_rest(ours, topic, folder, f"--segment-format={kind}")
    check_all(folder)
    # A FIN, also that of the segment before, may have been sent or not.
    if point not in {"within the file", "after FIN"}:
        assert ", 0 came before" not in said


def test_killed_before_fin_and_finished_by_another_receiver(broker, topic, folder):
    """A redelivery may reach another receiver of the same spool."""
    address = address_of(broker)
    publish(address, topic, range(COUNT))
    flags = receiver_flags(folder, address, *SOON, topic=topic)
    with start_killed_at("before FIN", 5, *flags) as tool:
        assert tool.end(None) == -signal.SIGKILL, tool.text
    said = receive_rest(broker, topic, folder, "--receiver=r1")
    assert ", 0 came before" not in said
    check_all(folder)


@pytest.mark.parametrize("kind", FORMATS)
def test_killed_again_and_again_at_random(ours, topic, folder, kind):
    address = address_of(ours)
    publish(address, topic, range(COUNT))
    flags = receiver_flags(folder, address, f"--segment-format={kind}", topic=topic)
    lottery = random.Random(14)
    for _ in range(3):
        before = row_count(folder)
        with start_receiver(*flags, *SOON) as tool:
            eventually(lambda: row_count(folder) > before + lottery.randrange(1, COUNT // 8))  # noqa: B023
            tool.kill()
    receive_rest(ours, topic, folder)
    check_all(folder)


def test_nsqd_is_killed(topic, folder, tmp_path):
    """With --sync-every=1 what nsqd has answered by OK survives; it may come again with one attempt."""
    durable = ("--mem-queue-size=0", "--sync-every=1")
    data = tmp_path / "data"
    data.mkdir()
    broker = start_nsqd("nsqfast", data, *durable)
    address = address_of(broker)
    publish(address, topic, range(COUNT // 4))
    flags = receiver_flags(folder, address, *SOON, topic=topic)
    with start_receiver(*flags) as tool:
        for part in (8, 6, 5):
            eventually(lambda: row_count(folder) > COUNT // 4 // part)  # noqa: B023
            broker.kill()
            broker = start_nsqd("nsqfast", data, *durable, f"--tcp-address={address}")
        eventually(lambda: row_count(folder) >= COUNT // 4, 30)
        eventually(lambda: is_empty(broker, topic))
        assert tool.end() == 0, tool.text
    broker.stop()
    check_all(folder, COUNT // 4)


def kept_numbers(data):
    """What a stopped nsqd has yet to deliver, in its queues on disk."""
    found = set()
    for meta in data.glob("*.diskqueue.meta.dat"):
        _, reads, _ = meta.read_text().splitlines()[:3]
        number, position = map(int, reads.split(","))
        while (path := data / meta.name.replace("meta", f"{number:06d}")).exists():
            content = path.read_bytes()
            while position < len(content):
                end = position + 4 + int.from_bytes(content[position : position + 4], "big")
                found.add(int(content[position + 4 + MESSAGE_HEADER_SIZE : end]))
                position = end
            number, position = number + 1, 0
    return found


def test_nsqd_is_restarted(implementation, topic, folder, tmp_path):
    data = tmp_path / "data"
    data.mkdir()
    with start_nsqd(implementation, data) as first:
        address = address_of(first)
        publish(address, topic, range(COUNT // 4))
        more = (*SOON, "--metrics-address=127.0.0.1:0")
        tool = start_receiver(*receiver_flags(folder, address, *more, topic=topic))
        eventually(lambda: row_count(folder) > COUNT // 16)
    # It goes on sealing what it has got, which may be what nsqd no longer knows of.
    # Until nobody listens there: an nsqd that stops may take one more connection and break it.
    tool.wait_for(lambda t: b": no connection: " in t.err)
    eventually(lambda: metric(tool, "in_flight") == 0)
    # What is not sealed was not finished, so nsqd has to have it. Go's may lose what it was about to send at its stop.
    lost = set(range(COUNT // 4)) - set(numbers(folder)) - kept_numbers(data)
    print(f"lost at its stop: {len(lost)}")
    assert implementation == "go" or not lost
    with tool, start_nsqd(implementation, data, f"--tcp-address={address}") as second:
        publish(address, topic, sorted(lost))
        eventually(lambda: row_count(folder) >= COUNT // 4, 30)
        eventually(lambda: is_empty(second, topic))
        assert tool.end() == 0, tool.text
    check_all(folder, COUNT // 4)


def test_nsqd_is_frozen(topic, folder, tmp_path):
    """SIGTERM is heeded all the same, and what was sealed without an answer is dropped when it comes again."""
    with start_nsqd("nsqfast", tmp_path) as broker:
        address = address_of(broker)
        publish(address, topic, range(COUNT // 4))
        flags = receiver_flags(folder, address, topic=topic)
        with start_receiver(*flags, *SOON) as tool:
            eventually(lambda: row_count(folder) > 0)
            broker.process.send_signal(signal.SIGSTOP)
            try:
                assert tool.end(seconds_max=10) == 0, tool.text
            finally:
                broker.process.send_signal(signal.SIGCONT)
        assert b"an nsqd does not answer; ending without it" in tool.err
        receive_rest(broker, topic, folder)
        check_all(folder, COUNT // 4)


def test_several_receivers_share_a_spool(ours, topic, folder):
    address = address_of(ours)
    flags = receiver_flags(folder, address, *SOON, topic=topic)
    with (
        start_receiver(*flags) as first,
        start_receiver(*flags, "--receiver=r1") as second,
    ):
        for tool in (first, second):
            tool.wait_for(lambda t: b"subscribed" in t.err)
        publish(address, topic, range(COUNT // 2))
        second.kill()
        with start_receiver(*flags, "--receiver=r2") as third:
            publish(address, topic, range(COUNT // 2, COUNT))
            eventually(lambda: row_count(folder) >= COUNT, 30)
            eventually(lambda: is_empty(ours, topic))
            assert [first.end(), third.end()] == [0, 0]
    check_all(folder)


def test_a_receiver_that_stood_still_gives_back_what_it_has(ours, topic, folder):
    """Meanwhile nsqd gave it to the other one."""
    address = address_of(ours)
    flags = receiver_flags(folder, address, topic=topic)
    # nsqd soon finds out that it does not answer, and gives it nothing more; no message times out before that.
    slow = ("--seal-interval=1m", "--seal-rows=100000", "--consumer-opt=heartbeat_interval,2s")
    with start_receiver(*flags, *slow, "--metrics-address=127.0.0.1:0") as tool:
        tool.wait_for(lambda t: b"subscribed" in t.err)
        publish(address, topic, range(100))
        # It has read them, too: what it has not it does not give back.
        eventually(lambda: metric(tool, "in_flight") == 100)
        tool.process.send_signal(signal.SIGSTOP)
        with start_receiver(*flags, "--receiver=r1") as other:
            eventually(lambda: row_count(folder) == 100, 20)
            eventually(lambda: is_empty(ours, topic))
            assert other.end() == 0
        tool.process.send_signal(signal.SIGCONT)
        assert tool.end() == 0
    said = b"100 messages are requeued: the receiver stood still for long"
    assert said in tool.err, tool.err.decode()
    check_all(folder, 100)
