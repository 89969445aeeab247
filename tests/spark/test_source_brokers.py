"""From nsqd to Spark, with a receiver that belongs to the query."""

import os
import signal
import threading
from pathlib import Path

import pytest

from nsqfast.client.sync import Producer
from nsqfast.spark import release
from nsqfast.spark.receiver.child import MODULE, ReceiverSettings
from nsqfast.spark.source.query import PAUSES_S, RESTARTS_MAX, SOUND_S, OwnReceiver
from nsqfast.spark.spool.identity import SpoolError
from nsqfast.spark.spool.segments import list_segments
from support.segments import CHANNEL, TOPIC
from support.server import start_nsqd
from support.source import Source
from support.waiting import wait_until
from support.web import topic_stats

GO = pytest.param("go", marks=pytest.mark.go)


@pytest.fixture(params=["nsqfast"])
def broker(request, tmp_path):
    folder = tmp_path / "nsqd"
    folder.mkdir()
    with start_nsqd(request.param, folder) as server:
        yield server


@pytest.fixture
def source(spark, broker, tmp_path):
    found = Source(spark, tmp_path, "{}:{}".format(*broker.tcp))
    yield found
    found.close()


def publish(source, *numbers):
    with Producer(source.address) as producer:
        producer.publish_many(TOPIC, [b"%d" % number for number in numbers])


def channel(broker):
    return topic_stats(broker.http, TOPIC)["channels"][CHANNEL]


def receiver_pids(spool):
    """Of the processes that write into it."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except (FileNotFoundError, ProcessLookupError):
            continue
        if MODULE.encode() in words and f"--spool={spool}".encode() in words:
            found.append(int(path.parent.name))
    return found


def parent_of(pid):
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[1])


@pytest.mark.parametrize("broker", ["nsqfast", GO], indirect=True)
def test_available_now_takes_what_waits(source, broker):
    publish(source, *range(500))
    query = source.run(maxRowsPerTrigger="100000")
    assert source.bodies() == list(range(500))
    row = source.batches[0][0]
    assert (row.topic, row.channel, row.attempts) == (TOPIC, CHANNEL, 1)
    assert row.nsqd == source.address
    assert len(row.id) == 16
    assert row.timestamp.timestamp() == pytest.approx(row.timestamp_ns / 1e9, abs=1e-5)
    assert query.exception() is None
    assert channel(broker)["depth"] == channel(broker)["in_flight_count"] == 0
    publish(source, *range(500, 600))
    source.run()
    assert source.bodies() == list(range(600))
    wait_until(lambda: not receiver_pids(source.spool), "a receiver is left")


@pytest.mark.parametrize("broker", ["nsqfast", GO], indirect=True)
def test_a_batch_takes_what_waits(source):
    publish(source, *range(100))
    assert source.read().count() == 100
    assert release(source.spool) == 100
    publish(source, *range(100, 130))
    frame = source.read()
    assert sorted(int(bytes(row.body)) for row in frame.collect()) == list(range(100, 130))
    assert frame.count() == 30


@pytest.mark.soak
def test_stop_seals_and_finishes(source, broker):
    publish(source, 0)
    query = source.start(maxSpoolBytes="1g")
    wait_until(lambda: source.bodies() == [0], "nothing came")
    (pid,) = receiver_pids(source.spool)
    publish(source, *range(1, 2000))
    query.stop()
    wait_until(lambda: not Path(f"/proc/{pid}").exists(), "the receiver is left")
    left = channel(broker)
    assert left["in_flight_count"] == 0
    assert left["client_count"] == 0
    sealed = sum(segment.row_count for segment in list_segments(source.spool / "r0"))
    assert sealed + left["depth"] == 2000
    source.run()
    assert source.bodies() == list(range(2000))


@pytest.mark.soak
def test_receiver_and_runner_are_killed(source):
    publish(source, *range(100))
    query = source.start()
    wait_until(lambda: len(source.bodies()) == 100, "nothing came")
    (killed,) = receiver_pids(source.spool)
    runner = parent_of(killed)
    os.kill(killed, signal.SIGKILL)
    publish(source, *range(100, 200))
    wait_until(lambda: len(source.bodies()) == 200, "no receiver was started again")
    (pid,) = receiver_pids(source.spool)
    assert (pid != killed, parent_of(pid)) == (True, runner)
    os.kill(runner, signal.SIGKILL)
    source.failure(query)
    wait_until(lambda: not Path(f"/proc/{pid}").exists(), "the receiver outlives the runner")
    publish(source, *range(200, 300))
    source.run()
    assert source.bodies() == list(range(300))


# -- the receiver alone


class Clock:
    def __init__(self):
        self.now_s = 1000.0

    def __call__(self):
        return self.now_s


def await_death(receiver):
    wait_until(lambda: not receiver._child.is_alive, "a receiver without a name lives")


def test_a_receiver_that_never_works(tmp_path, caplog):
    settings = ReceiverSettings(
        spool=tmp_path, channel=CHANNEL, topics=("no topic",), nsqd_tcp_addresses=("127.0.0.1:1",)
    )
    clock = Clock()
    receiver = OwnReceiver(settings, clock)
    receiver.check()
    receiver.start()
    for pause_s in PAUSES_S:
        await_death(receiver)
        pid = receiver._child.pid
        receiver.check()
        clock.now_s += pause_s / 2
        receiver.check()
        assert receiver._child.pid == pid
        clock.now_s += pause_s / 2
        receiver.check()
        assert receiver._child.pid != pid
    await_death(receiver)
    with pytest.raises(SpoolError, match=f"it was started {RESTARTS_MAX + 1} times") as caught:
        receiver.check()
    first, *lines = str(caught.value).splitlines()
    assert first.startswith("receiver r0 ended (")
    assert "'no topic' is no name of a topic" in lines[0]
    assert len(caplog.records) == RESTARTS_MAX
    receiver.stop()
    receiver.stop()


def test_a_receiver_that_died_after_a_long_life_begins_anew(tmp_path):
    settings = ReceiverSettings(
        spool=tmp_path, channel=CHANNEL, topics=("no topic",), nsqd_tcp_addresses=("127.0.0.1:1",)
    )
    clock = Clock()
    receiver = OwnReceiver(settings, clock)
    receiver.start()
    for _ in range(RESTARTS_MAX + 2):
        await_death(receiver)
        clock.now_s += SOUND_S
        receiver.check()
        clock.now_s += PAUSES_S[0]
        receiver.check()
    receiver.stop()


def test_a_drain_that_fails(tmp_path):
    settings = ReceiverSettings(
        spool=tmp_path, channel=CHANNEL, topics=("no topic",), nsqd_tcp_addresses=("127.0.0.1:1",)
    )
    with pytest.raises(SpoolError, match="receiver r0 ended .*no topic"):
        OwnReceiver(settings).drain()


def test_a_drain_that_is_killed_begins_anew(broker, tmp_path, caplog):
    address = "{}:{}".format(*broker.tcp)
    with Producer(address) as producer:
        producer.publish_many(TOPIC, [b"%d" % number for number in range(1000)])
    spool = tmp_path / "spool"
    settings = ReceiverSettings(
        spool=spool, channel=CHANNEL, topics=(TOPIC,), nsqd_tcp_addresses=(address,)
    )
    killed = []

    def kill_once():
        wait_until(lambda: receiver_pids(spool), "no receiver")
        killed.extend(receiver_pids(spool))
        for pid in killed:
            os.kill(pid, signal.SIGKILL)

    killer = threading.Thread(target=kill_once)
    killer.start()
    OwnReceiver(settings).drain()
    killer.join()
    assert len(killed) == 1
    assert "was killed by signal 9" in caplog.text
    assert "it is started again" in caplog.text
    found = {segment.number: segment.row_count for segment in list_segments(spool / "r0")}
    assert sum(found.values()) == 1000
