"""The receiver: what comes from nsqd stands in the spool, and is finished only then."""

import os
import re
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
import urllib.request

import pytest

from nsqfast.client.sync import Producer
from nsqfast.spark.spool.segments import FORMATS
from support.authd import AuthServer, grant, permit
from support.drain import address_of
from support.ports import hold_port
from support.server import start_nsqd, start_nsqlookupd
from support.spool import (
    bodies,
    channel_state,
    is_empty,
    numbers,
    publish,
    read_spool,
    receiver_flags,
    row_count,
    run_receiver,
    segments,
    start_receiver,
)
from support.waiting import eventually

pytestmark = pytest.mark.slow

QUICK = ("--drain", "--drain-idle=300ms")


@pytest.mark.parametrize("kind", FORMATS)
def test_all_columns_and_every_message_once(broker, topic, folder, kind):
    address = address_of(broker)
    began_ns = time.time_ns()
    publish(address, topic, range(20_000))
    with Producer(address) as producer:
        producer.publish(topic, b"\xff\x00\n\r")
    flags = receiver_flags(folder, address, f"--segment-format={kind}", topic=topic)
    with start_receiver(*flags) as tool:
        eventually(lambda: row_count(folder) == 20_001)
        eventually(lambda: is_empty(broker, topic))
        assert tool.end() == 0, tool.text
    table = read_spool(folder)
    found = table.column("body").to_pylist()
    assert found.pop(found.index(b"\xff\x00\n\r"))
    assert sorted(map(int, found)) == list(range(20_000))
    assert set(table.column("topic").to_pylist()) == {topic}
    assert set(table.column("channel").to_pylist()) == {"c"}
    assert set(table.column("nsqd").to_pylist()) == {address}
    assert set(table.column("attempts").to_pylist()) == {1}
    assert len(set(table.column("id").to_pylist())) == 20_001
    times_ns = table.column("timestamp_ns").to_pylist()
    assert began_ns <= min(times_ns) <= max(times_ns) <= time.time_ns()
    times_us = table.column("timestamp").cast("int64").to_pylist()
    assert times_us == [time_ns // 1000 for time_ns in times_ns]
    assert is_empty(broker, topic)
    numbers_used = sorted(segment.number for segment in segments(folder))
    assert {segment.format for segment in segments(folder)} == {kind}
    assert numbers_used == list(range(1, len(numbers_used) + 1))
    assert "20001 messages in" in tool.text


def test_it_runs_until_sigterm_and_seals_the_rest(broker, topic, folder):
    address = address_of(broker)
    flags = receiver_flags(folder, address, "--seal-interval=1m", "--seal-rows=100000", topic=topic)
    with start_receiver(*flags) as tool:
        tool.wait_for(lambda t: b"subscribed" in t.err)
        publish(address, topic, range(500))
        eventually(lambda: channel_state(broker, topic).get("in_flight_count") == 500)
        assert row_count(folder) == 0
        assert tool.end() == 0, tool.text
    # What it had not read yet was handed back.
    left = channel_state(broker, topic)
    assert left["in_flight_count"] == 0
    assert left["depth"] + row_count(folder) == 500
    assert run_receiver(*receiver_flags(folder, address, *QUICK, topic=topic))[0] == 0
    assert numbers(folder) == list(range(500))
    assert is_empty(broker, topic)


def test_a_few_messages_are_sealed_after_the_interval(ours, topic, folder):
    address = address_of(ours)
    with start_receiver(*receiver_flags(folder, address, topic=topic)) as tool:
        tool.wait_for(lambda t: b"subscribed" in t.err)
        publish(address, topic, range(3))
        eventually(lambda: row_count(folder) == 3)
        eventually(lambda: is_empty(ours, topic))
        assert tool.end(signal.SIGINT) == 0


def test_it_ends_with_its_standard_input(ours, topic, folder):
    flags = receiver_flags(folder, address_of(ours), "--until-eof", topic=topic)
    with start_receiver(*flags) as tool:
        tool.wait_for(lambda t: b"subscribed" in t.err)
        publish(address_of(ours), topic, range(100))
        tool.process.stdin.write(b"what is written there means nothing\n")
        tool.process.stdin.flush()
        eventually(lambda: channel_state(ours, topic).get("message_count") == 100)
        tool.process.stdin.close()
        assert tool.end(None) == 0, tool.text
    left = channel_state(ours, topic)["depth"]
    assert left + row_count(folder) == 100
    done = subprocess.run(
        [sys.executable, "-m", "nsqfast.spark.receiver.main", *flags],
        stdin=subprocess.DEVNULL,
        timeout=30,
        check=False,
    )
    assert done.returncode == 0


def test_sizes_of_all_kinds_become_segments_of_bounded_size(ours, topic, folder):
    address = address_of(ours)
    publish(address, topic, range(2000))
    publish(address, topic, range(2000, 2040), size=900_000)
    # What is in flight is finished when it is sealed, so no segment has more than this.
    flags = receiver_flags(folder, address, *QUICK, "--max-in-flight=1500", topic=topic)
    status, said = run_receiver(*flags)
    assert status == 0, said
    assert numbers(folder) == list(range(2040))
    assert len(segments(folder)) > 1
    assert max(segment.row_count for segment in segments(folder)) <= 1500


# -- topics


def test_several_topics_in_one_spool(ours, folder):
    address = address_of(ours)
    for topic in ("a", "b", "unheard-of"):
        if topic != "unheard-of":
            publish(address, topic, range(1000))
    flags = receiver_flags(folder, address, "--topic=b", "--topic=unheard-of", *QUICK, topic="a")
    assert run_receiver(*flags)[0] == 0
    by_topic = read_spool(folder).group_by("topic").aggregate([("id", "count")]).to_pydict()
    assert dict(zip(by_topic["topic"], by_topic["id_count"], strict=True)) == {"a": 1000, "b": 1000}


def test_topics_of_a_pattern_and_those_that_come_later(implementation, folder, tmp_path):
    with start_nsqlookupd(implementation) as lookupd:
        flag = "--lookupd-tcp-address={}:{}".format(*lookupd.tcp)
        with start_nsqd(implementation, tmp_path, flag) as broker:
            address = address_of(broker)
            for topic in ("red-1", "red-2", "blue"):
                publish(address, topic, range(10))
            flags = [
                f"--spool={folder}",
                "--channel=c",
                "--topic-pattern=^red-",
                "--topic-refresh=200ms",
                "--consumer-opt=lookupd_poll_interval,200ms",
                "--lookupd-http-address={}:{}".format(*lookupd.http),
            ]
            with start_receiver(*flags) as tool:
                eventually(lambda: row_count(folder) == 20)
                publish(address, "red-3", range(10))
                eventually(lambda: row_count(folder) == 30)
                assert tool.end() == 0, tool.text
            assert tool.err.count(b"skipping topic blue") == 1
            publish(address, "red-3", range(5))
            assert run_receiver(*flags, *QUICK)[0] == 0
            assert row_count(folder) == 35
    topics = set(read_spool(folder).column("topic").to_pylist())
    assert topics == {"red-1", "red-2", "red-3"}


# -- who may use a spool, and what is wrong with it


def test_a_second_process_of_the_same_name_is_refused(ours, topic, folder):
    flags = receiver_flags(folder, address_of(ours), topic=topic)
    with start_receiver(*flags) as tool:
        tool.wait_for(lambda t: b"subscribed" in t.err)
        status, said = run_receiver(*flags)
        assert status == 1
        (line,) = said.splitlines()
        assert (
            f"{folder / 'r0'} belongs to a receiver that runs (process {tool.process.pid} on"
            in line
        )
        assert run_receiver(*flags, "--receiver=r1", *QUICK)[0] == 0
        assert tool.end() == 0


def test_what_does_not_fit_the_spool_is_one_line(ours, folder):
    base = receiver_flags(folder, address_of(ours))
    assert run_receiver(*base, *QUICK)[0] == 0
    status, said = run_receiver(*base, "--topic=more")
    assert (status, len(said.splitlines())) == (1, 1)
    assert "holds t of channel c, not more,t of channel c" in said


def test_a_spool_that_cannot_be_made_or_written_to(ours, tmp_path):
    (tmp_path / "file").write_text("")
    status, said = run_receiver(*receiver_flags(tmp_path / "file" / "x", address_of(ours)))
    assert (status, len(said.splitlines())) == (1, 1)
    assert "Not a directory" in said or "not a directory" in said
    folder = tmp_path / "spool"
    assert run_receiver(*receiver_flags(folder, address_of(ours), *QUICK))[0] == 0
    read_only = ["mount", "--bind", str(folder), str(folder)]
    if os.geteuid() or subprocess.run(read_only, check=False).returncode:
        folder.chmod(stat.S_IRUSR | stat.S_IXUSR)
        (folder / "r0").chmod(stat.S_IRUSR | stat.S_IXUSR)
        if not os.geteuid():
            return
        status, said = run_receiver(*receiver_flags(folder, address_of(ours)))
        folder.chmod(stat.S_IRWXU)
        (folder / "r0").chmod(stat.S_IRWXU)
        assert "permission denied" in said.lower()
    else:
        try:
            subprocess.run(["mount", "-o", "remount,ro,bind", str(folder)], check=True)
            status, said = run_receiver(*receiver_flags(folder, address_of(ours)))
        finally:
            subprocess.run(["umount", "-l", str(folder)], check=True)
        assert "read-only file system" in said.lower()
    assert (status, len(said.splitlines())) == (1, 1)


@pytest.mark.parametrize(
    ("flags", "status", "reason"),
    [
        (["--spool="], 1, "--spool is required"),
        (["--channel="], 1, "--channel is required"),
        (["--channel=a b"], 1, "no name of a channel"),
        (["--topic=a b"], 1, "'a b' is no name of a topic"),
        (["--topic-pattern=x"], 1, "use --topic or --topic-pattern not both"),
        (["--segment-format=orc"], 1, "--segment-format is 'orc'; it is arrow or parquet"),
        (["--checkpoint=c"], 1, "--checkpoint needs --segment-format=parquet"),
        (["--seal-rows=0"], 1, "--seal-rows is 0; it is 1 or more"),
        (["--connections=0"], 1, "--connections is 0"),
        (["--retention=-1s"], 1, "--retention is less than 0"),
        (["--seal-interval=0s"], 1, "--seal-interval should be positive"),
        (["--consumer-opt=max_attempts,3"], 1, "gives up no message"),
        (["--consumer-opt=max_in_flight,3"], 1, "say --max-in-flight"),
        (["--consumer-opt=snappy", "--consumer-opt=deflate"], 1, "not together with snappy"),
        (["--log-level=x"], 1, "--log-level is invalid"),
        (["x"], 1, "unknown arguments: [x]"),
        (["--no-such-flag"], 2, "no-such-flag"),
    ],
)
def test_wrong_flags_are_named(folder, flags, status, reason):
    from nsqfast.spark.receiver.main import main

    with pytest.MonkeyPatch.context() as patch:
        lines = []
        patch.setattr("sys.stderr.write", lines.append, raising=False)
        assert main([*receiver_flags(folder, "127.0.0.1:1"), *flags]) == status
    assert reason in "".join(lines)
    assert not folder.exists()


# -- brokers


def test_nsqd_that_is_away_at_the_start_is_waited_for(topic, folder, tmp_path):
    port = hold_port()
    address = f"127.0.0.1:{port}"
    with start_receiver(*receiver_flags(folder, address, topic=topic)) as tool:
        tool.wait_for(lambda t: b"no connection" in t.err)
        with socket.create_server(("127.0.0.1", port)) as listener:
            listener.settimeout(20)
            for _ in range(3):  # some more attempts
                listener.accept()[0].close()
        with start_nsqd("nsqfast", tmp_path, f"--tcp-address={address}"):
            publish(address, topic, range(10))
            eventually(lambda: row_count(folder) == 10)
            assert tool.end() == 0, tool.text
    reasons = re.findall(rb"no connection: (.*); again in ", tool.err)
    assert len(reasons) == len(set(reasons)) >= 2, tool.text


def test_a_drain_of_an_nsqd_that_is_away_fails(topic, folder):
    flags = receiver_flags(folder, f"127.0.0.1:{hold_port()}", "--drain", topic=topic)
    code = (
        "import sys, nsqfast.spark.receiver.drain as d; d.CONNECT_TIMEOUT_S = 0.2\n"
        "from nsqfast.spark.receiver.main import main; sys.exit(main(sys.argv[1:]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *flags], capture_output=True, timeout=30, check=False
    )
    assert done.returncode == 1
    assert b"connection refused" in done.stderr.splitlines()[-1].lower()


def test_tls_auth_and_snappy(implementation, topic, folder, certificates, tmp_path):
    with AuthServer() as auth:
        auth.answers["secret"] = grant(permit())
        flags = [
            *certificates.flags(),
            "--tls-required=tcp-https",
            f"--auth-http-address={auth.address}",
        ]
        with start_nsqd(implementation, tmp_path, *flags) as broker:
            address = address_of(broker)
            options = ["tls_v1", f"tls_root_ca_file,{certificates.path('ca.crt')}", "snappy"]
            more = [f"--consumer-opt={option}" for option in options]
            wrong = run_receiver(*receiver_flags(folder, address, *more, *QUICK, topic=topic))
            assert wrong[0] == 1, wrong
            assert "E_AUTH" in wrong[1]
            flags = receiver_flags(folder, address, *more, topic=topic)
            with start_receiver(*flags, NSQFAST_CONSUMER_OPT="auth_secret,secret") as tool:
                tool.wait_for(lambda t: b"subscribed" in t.err)
                assert tool.end() == 0, tool.text


def test_a_drain_ends_while_somebody_publishes(ours, topic, folder):
    address = address_of(ours)
    publish(address, topic, range(5000))
    is_over = threading.Event()

    def publish_on():
        with Producer(address) as producer:
            number = 5000
            while not is_over.is_set():
                producer.publish_many(topic, [b"%d" % n for n in range(number, number + 10)])
                number += 10

    publisher = threading.Thread(target=publish_on)
    publisher.start()
    try:
        status, said = run_receiver(*receiver_flags(folder, address, *QUICK, topic=topic))
    finally:
        is_over.set()
        publisher.join()
    assert status == 0, said
    assert "time is over" not in said
    found = numbers(folder)
    assert found[:5000] == list(range(5000))
    assert len(set(found)) == len(found)


def test_a_drain_has_a_time_limit(ours, topic, folder):
    flags = receiver_flags(
        folder, address_of(ours), "--drain", "--drain-idle=1m", "--drain-timeout=300ms", topic=topic
    )
    status, said = run_receiver(*flags)
    assert status == 0
    assert "its time is over" in said


# -- figures


def test_metrics(ours, topic, folder):
    address = address_of(ours)
    flags = receiver_flags(
        folder, address, "--metrics-address=127.0.0.1:0", "--status-interval=100ms", topic=topic
    )
    with start_receiver(*flags) as tool:
        tool.wait_for(lambda t: b"metrics: listening on" in t.err)
        place = re.search(rb"metrics: listening on (\S+)", tool.err)[1].decode()
        publish(address, topic, range(1000), size=100)
        eventually(lambda: row_count(folder) == 1000)
        tool.wait_for(lambda t: b"1000 messages in" in t.err)
        with urllib.request.urlopen(f"http://{place}/metrics", timeout=10) as answer:
            text = answer.read().decode()
        assert tool.end() == 0
    values = dict(re.findall(r"^nsqfast_nsq_spool_(\S+) (\S+)$", text, re.MULTILINE))
    assert float(values[f'messages_total{{topic="{topic}"}}']) == 1000
    assert float(values[f'bytes_total{{topic="{topic}"}}']) == 100_000
    assert float(values["segments_total"]) == len(segments(folder))
    assert float(values["live_segments"]) == len(segments(folder))
    size = sum(segment.size for segment in segments(folder))
    assert float(values["stored_bytes_total"]) == float(values["live_bytes"]) == size
    assert float(values["paused"]) == float(values["in_flight"]) == 0
    assert float(values["oldest_unfinished_seconds"]) == float(values["dropped_total"]) == 0
    assert float(values["seal_seconds_total"]) > 0
    assert float(values["disk_free_bytes"]) > 0
    assert len(bodies(folder)) == 1000
