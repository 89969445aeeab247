"""What one task of the sink does, with real brokers and without Spark: `publish_partition` in this process."""

import contextlib
import logging
import signal
import sys
import time
from pathlib import Path

import pyarrow as pa
import pytest

from nsqfast.client.sync.loop_thread import LoopThread
from nsqfast.errors import (
    NotConnectedError,
    OutcomeUnknownError,
    PublishRefusedError,
    RefusedError,
)
from nsqfast.spark.sink import publisher
from nsqfast.spark.sink.options import parse_options
from nsqfast.spark.sink.publisher import Counts
from nsqfast.spark.sink.rows import RowError
from nsqfast.spark.sink.writer import NsqBatchWriter, NsqCommitMessage, publish_partition
from support.authd import AuthServer, grant, permit
from support.commands import run_command
from support.drain import address_of, drain, drain_until_still, message_count
from support.fake_nsqd import FakeNsqd
from support.server import start_nsqd
from support.waiting import eventually, wait_until
from support.wire import Client


@pytest.fixture(autouse=True)
def clean_process():
    """What a worker process keeps goes with the test."""
    ours = logging.getLogger("nsqfast")
    level = ours.level
    yield
    drop_connections()
    ours.setLevel(level)


def drop_connections():
    for options in list(publisher._kept):
        publisher.drop_connection(options)


def make_options(addresses, topic, **more):
    return parse_options({"nsqdTcpAddresses": addresses, "topic": topic, **more})


def batch_of(bodies, **columns):
    arrays = {name: pa.array(values) for name, values in columns.items()}
    return pa.RecordBatch.from_pydict({"body": pa.array(bodies, pa.binary()), **arrays})


def number_bodies(first, count):
    return [b"%d" % number for number in range(first, first + count)]


def counted(rows, size, publishes, **more):
    return Counts(rows=rows, size=size, publishes=publishes, **more)


@contextlib.contextmanager
def fake_nsqd(script):
    """Its loop runs in a thread of its own, for the sink is called from this one."""
    loop_thread = LoopThread("fake nsqd")
    fake = FakeNsqd(script)
    try:
        loop_thread.call(fake.__aenter__())
        yield fake
        loop_thread.call(fake.__aexit__(None, None, None))
    finally:
        loop_thread.stop()


# -- what comes out


def test_all_rows_arrive_once(broker, topic):
    options = make_options(address_of(broker), topic, maxBatchRows="300", window="3")
    batches = [batch_of(number_bodies(first, 1000)) for first in (0, 1000, 2000)]
    message = publish_partition(iter(batches), options)
    bodies = number_bodies(0, 3000)
    # 300 + 300 + 300 + 100 of each batch.
    assert message == NsqCommitMessage(0, 0, counted(3000, sum(map(len, bodies)), 12))
    assert sorted(drain(broker, topic)) == sorted(bodies)


def test_bodies_as_large_as_nsqd_takes(broker, topic):
    bodies = [b"x" * (1 << 20), b"y", bytes(range(256)) * 4096]
    options = make_options(address_of(broker), topic)
    assert publish_partition([batch_of(bodies)], options).counts.rows == 3
    assert sorted(drain(broker, topic)) == sorted(bodies)


def test_topics_of_a_column(broker, topic):
    names = [f"{topic}.a", f"{topic}.b", None] * 100
    message = publish_partition(
        [batch_of(number_bodies(0, 300), topic=names)], make_options(address_of(broker), topic)
    )
    assert (message.counts.rows, message.counts.publishes) == (300, 3)
    for number, name in enumerate([*names[:2], topic]):
        found = sorted(map(int, drain(broker, name)))
        assert found == list(range(number, 300, 3))


def test_delays(broker, topic):
    """nsqd holds those back, and only those."""
    delay_s = 0.4
    delays = pa.array([0, 400, None, 400], pa.int32())
    with Client(broker.tcp) as client:
        client.sub(topic, "c", 10)
        started_s = time.time()
        message = publish_partition(
            [batch_of(number_bodies(0, 4), defer_ms=delays)],
            make_options(address_of(broker), topic),
        )
        first = client.read_messages(2)
        second = client.read_messages(2)
        ended_s = time.time()
        for one in first + second:
            client.fin(one)
        client.barrier()
    assert (message.counts.rows, message.counts.publishes) == (4, 3)
    assert sorted(one.body for one in first) == [b"0", b"2"]
    assert sorted(one.body for one in second) == [b"1", b"3"]
    assert ended_s - started_s >= delay_s


def test_several_nsqd_take_turns(tmp_path, topic):
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    with (
        start_nsqd("nsqfast", tmp_path / "a") as first,
        start_nsqd("nsqfast", tmp_path / "b") as second,
    ):
        options = make_options(
            f"{address_of(first)},{address_of(second)}", topic, maxBatchRows="10"
        )
        # A task begins when one is connected, and uses the other one from when it is.
        wait_connected(publisher.borrow_connection(options), 2)
        publish_partition([batch_of(number_bodies(0, 100))], options)
        assert message_count(first, topic) == message_count(second, topic) == 50


def wait_connected(kept, count):
    eventually(lambda: len(kept.producer.connected_addresses) >= count, 20)


@pytest.mark.parametrize("packing", ["snappy", "deflate"])
def test_the_clients_configuration_is_used(broker, topic, packing):
    options = make_options(address_of(broker), topic, **{f"nsq.{packing}": "true"})
    publish_partition([batch_of([b"x" * 10_000] * 20)], options)
    assert drain(broker, topic) == [b"x" * 10_000] * 20


# -- connections


def test_a_connection_is_used_again(broker, topic):
    options = make_options(address_of(broker), topic)
    for first in range(0, 50, 10):
        publish_partition([batch_of(number_bodies(first, 10))], options)
    (kept,) = publisher._kept.values()
    assert kept.producer.stats().connects == 1
    assert len(drain(broker, topic)) == 50


def test_after_an_error_there_is_a_new_connection(broker, topic):
    options = make_options(address_of(broker), topic)
    publish_partition([batch_of([b"a"])], options)
    with pytest.raises(RowError):
        publish_partition([batch_of([b"b"]), batch_of([b"c", b""])], options)
    assert publisher._kept == {}
    publish_partition([batch_of([b"d"])], options)
    # What came in front of the bad batch is there, nothing of that batch is.
    assert sorted(drain(broker, topic)) == [b"a", b"b", b"d"]


def test_few_connections_are_kept(broker, topic):
    kept = []
    for retries in range(publisher.KEPT_MAX + 2):
        options = make_options(address_of(broker), topic, retries=str(retries))
        publish_partition([batch_of([b"a"])], options)
        kept.append(options)
    assert list(publisher._kept) == kept[2:]


FORKING = """
import os, sys
import pyarrow as pa
from nsqfast.spark.sink.options import parse_options
from nsqfast.spark.sink.writer import publish_partition

options = parse_options({"nsqdtcpaddresses": sys.argv[1], "topic": sys.argv[2]})
batch = pa.RecordBatch.from_pydict({"body": pa.array([b"x"])})
publish_partition([batch], options)
child = os.fork()
publish_partition([batch], options)
if child:
    _, status = os.waitpid(child, 0)
    assert status == 0, status
"""


def test_a_process_that_forks_and_ends_by_itself(broker, topic):
    """Parent and child have connections of their own, and neither hangs at its end."""
    done = run_command(sys.executable, "-W", "ignore", "-c", FORKING, address_of(broker), topic)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    assert done.stderr.count(": connected, ") == 2
    assert len(drain(broker, topic)) == 3


# -- trouble


def test_no_nsqd(dead, topic, caplog):
    options = make_options(f"{dead},127.0.0.1:1", topic, timeout="500ms", retries="1")
    with pytest.raises(NotConnectedError) as caught:
        publish_partition([batch_of([b"a"])], options)
    text = str(caught.value)
    assert text.startswith(f"topic {topic}: no nsqd could be reached: {dead}: ")
    assert "127.0.0.1:1: " in text
    assert "(tried for 0.5 s)" in text
    assert "\n" not in text
    assert "partition 0, attempt 0: failed, with 0 rows of 0 bytes in 0 publishes" in caplog.text


def test_an_nsqd_that_is_back_in_time(tmp_path, topic):
    """Publishes wait for it."""
    with start_nsqd("nsqfast", tmp_path) as server:
        address = address_of(server)
        options = make_options(address, topic)
        publish_partition([batch_of(number_bodies(0, 10))], options)
    with start_nsqd("nsqfast", tmp_path, f"--tcp-address={address}") as server:
        publish_partition([batch_of(number_bodies(10, 10))], options)
        assert sorted(map(int, drain(server, topic))) == list(range(20))


def unread_size(address):
    """Bytes that have reached the sockets of a daemon, which has not read them (proc(5), net/tcp)."""
    local = f"{int(address.rpartition(':')[2]):04X}"
    lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return sum(
        int(fields[4].partition(":")[2], 16) for fields in lines if fields[1].endswith(f":{local}")
    )


def test_one_of_two_nsqd_dies_by_sigkill(implementation, tmp_path, topic):
    """Nothing is missing; what it had not answered is sent again, and counted."""
    # What is in memory goes with a daemon, so nothing is.
    flags = ("--mem-queue-size=0",)
    count, size = 60, 500
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    with (
        start_nsqd(implementation, tmp_path / "a", *flags) as first,
        start_nsqd(implementation, tmp_path / "b", *flags) as second,
    ):
        options = make_options(
            f"{address_of(first)},{address_of(second)}", topic, maxBatchRows="100", window="4"
        )
        wait_connected(publisher.borrow_connection(options), 2)

        def batches():
            for number in range(count):
                if number == count // 2:
                    # With the window full of publishes that it will never answer.
                    assert message_count(first, topic) > 0
                    first.process.send_signal(signal.SIGSTOP)
                if number == count // 2 + 1:
                    wait_until(lambda: unread_size(address_of(first)) > 0, "a publish on its way")
                    first.kill()
                yield batch_of(number_bodies(number * size, size))

        message = publish_partition(batches(), options)
        found = drain(second, topic)
    with start_nsqd(implementation, tmp_path / "a", *flags) as first:
        found += drain_until_still(first, topic)
    assert set(map(int, found)) == set(range(count * size))
    assert message.counts.rows == count * size
    assert message.counts.resent_rows > 0
    assert len(found) - len(set(found)) <= message.counts.resent_rows


def test_a_disk_that_is_full_for_a_while(topic, monkeypatch):
    monkeypatch.setattr(publisher, "FIRST_PAUSE_S", 0.01)
    refusals = iter([True, True])
    taken = []

    async def script(peer):
        await peer.greet()
        async for name, _, body in peer.commands():
            if name == "MPUB":
                if next(refusals, False):
                    peer.refuse("E_MPUB_FAILED MPUB failed no space left on device")
                    return
                taken.append(body)
                peer.respond(b"OK")

    with fake_nsqd(script) as fake:
        message = publish_partition([batch_of([b"a", b"b"])], make_options(fake.address, topic))
        drop_connections()
    assert message.counts == counted(2, 2, 1, resent_rows=4)
    assert len(taken) == 1


def test_a_disk_that_stays_full(topic, monkeypatch, caplog):
    monkeypatch.setattr(publisher, "FIRST_PAUSE_S", 0.01)
    tries = []

    async def script(peer):
        await peer.greet()
        tries.append(await peer.expect("MPUB"))
        peer.refuse("E_MPUB_FAILED MPUB failed no space left on device")

    with fake_nsqd(script) as fake, pytest.raises(PublishRefusedError) as caught:
        publish_partition([batch_of([b"a", b"b"])], make_options(fake.address, topic, retries="2"))
    assert caught.value.code == "E_MPUB_FAILED"
    assert f"(topic {topic}, {fake.address})" in str(caught.value)
    assert len(tries) == 3
    assert "2 more were sent without an answer and may be there" in caplog.text


def test_a_refusal_that_will_not_pass(topic):
    tries = []

    async def script(peer):
        await peer.greet()
        tries.append(await peer.expect("MPUB"))
        peer.refuse("E_BAD_TOPIC MPUB topic name is not valid")
        await peer.read_to_end()

    with fake_nsqd(script) as fake, pytest.raises(PublishRefusedError) as caught:
        publish_partition([batch_of([b"a", b"b"])], make_options(fake.address, topic))
    assert caught.value.code == "E_BAD_TOPIC"
    assert "\n" not in str(caught.value)
    assert len(tries) == 1


def test_an_nsqd_that_hangs(topic):
    async def script(peer):
        await peer.greet()
        await peer.read_to_end()

    with fake_nsqd(script) as fake:
        options = make_options(fake.address, topic, timeout="200ms", retries="1")
        with pytest.raises(OutcomeUnknownError) as caught:
            publish_partition([batch_of([b"a", b"b"])], options)
    assert f"topic {topic}: no answer in time ({fake.address}, tried 2 times)" in str(caught.value)


@pytest.mark.parametrize(
    ("flag", "bodies", "columns", "words"),
    [
        ("--max-msg-size=1000", [b"x" * 2000, b"y"], {}, "see the option maxMsgSize"),
        ("--max-body-size=3000", [b"x" * 900] * 4, {}, "see the option maxBodySize and maxBatch"),
        ("--max-req-timeout=1s", [b"x"], {"defer_ms": [5000]}, "see the option maxReqTimeout"),
    ],
)
def test_limits_of_nsqd_that_the_options_do_not_know(
    implementation, tmp_path, topic, flag, bodies, columns, words
):
    with start_nsqd(implementation, tmp_path, flag) as server:
        options = make_options(address_of(server), topic)
        with pytest.raises(PublishRefusedError, match=words):
            publish_partition([batch_of(bodies, **columns)], options)


def test_authorization(implementation, tmp_path, topic):
    with AuthServer() as authority:
        authority.answers["all"] = grant(permit())
        authority.answers["other"] = grant(permit("other"))
        flag = f"--auth-http-address={authority.address}"
        with start_nsqd(implementation, tmp_path, flag) as server:

            def publish(**more):
                publish_partition(
                    [batch_of([b"a"])], make_options(address_of(server), topic, **more)
                )

            with pytest.raises(RefusedError, match="E_AUTH_FIRST .* auth_secret .*127.0.0.1"):
                publish()
            with pytest.raises(RefusedError, match="E_AUTH_FAILED"):
                publish(**{"nsq.auth_secret": "wrong"})
            with pytest.raises(PublishRefusedError, match="E_UNAUTHORIZED"):
                publish(**{"nsq.auth_secret": "other"})
            publish(**{"nsq.auth_secret": "all"})
            assert message_count(server, topic) == 1


def test_tls(implementation, certificates, tmp_path, topic):
    flags = (*certificates.flags(), "--tls-required=true")
    with start_nsqd(implementation, tmp_path, *flags, listeners=("TCP", "HTTPS")) as server:

        def publish(**more):
            options = make_options(address_of(server), topic, **more)
            return publish_partition([batch_of([b"a", b"b"])], options).counts.rows

        ca = certificates.path("ca.crt")
        assert publish(**{"nsq.tls_v1": "true", "nsq.tls_root_ca_file": ca}) == 2
        with pytest.raises(RefusedError, match="verify certificate"):
            publish(**{"nsq.tls_v1": "true"})
        with pytest.raises(PublishRefusedError, match="TLS required"):
            publish()


# -- what is said


def test_what_the_driver_says(caplog):
    from pyspark.sql.types import StringType, StructField, StructType

    schema = StructType([StructField("body", StringType())])
    writer = NsqBatchWriter({"nsqdtcpaddresses": "a:1", "topic": "t"}, schema, overwrite=False)
    messages = [
        NsqCommitMessage(0, 0, counted(10, 100, 1, resent_rows=3)),
        None,
        NsqCommitMessage(2, 1, counted(5, 50, 2, retried_rows=5)),
    ]
    writer.commit([messages[0], messages[2]])
    assert (
        "published 15 rows of 150 bytes in 3 publishes; 3 rows were sent again and may be there twice; "
        "5 rows are of retried tasks and may be there twice, by 2 tasks"
    ) in caplog.text
    caplog.clear()
    writer.abort(messages)
    assert "aborted; NSQ keeps what was published: 15 rows of 150 bytes" in caplog.text
    assert caplog.records[0].levelname == "WARNING"
