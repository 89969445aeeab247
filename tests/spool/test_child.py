"""The receiver as a child process of Spark's source."""

import os
import signal
import subprocess
import sys

import pytest

from nsqfast.spark.receiver.child import ReceiverChild, ReceiverError, ReceiverSettings
from nsqfast.spark.receiver.options import make_config, parse
from support.drain import address_of
from support.server import ROOT
from support.spool import channel_state, numbers, publish, row_count
from support.waiting import eventually

pytestmark = pytest.mark.slow


@pytest.fixture
def settings(ours, topic, folder):
    return ReceiverSettings(
        spool=folder,
        channel="c",
        topics=(topic,),
        nsqd_tcp_addresses=(address_of(ours),),
        seal_interval_s=0.05,
    )


@pytest.fixture
def child(settings):
    lines = []
    made = ReceiverChild(settings, lines.append)
    made.lines = lines
    yield made
    made.stop()


def test_every_setting_is_a_flag(folder, monkeypatch):
    settings = ReceiverSettings(
        spool=folder,
        channel="c",
        receiver="r7",
        topic_pattern="^x",
        lookupd_http_addresses=("a:4161", "b:4161"),
        consumer_options=("snappy", "auth_secret,s"),
        max_in_flight=6,
        max_spool_bytes=7,
        min_free_bytes=8,
        retention_s=1.5,
        seal_interval_s=0.25,
        metrics_address="127.0.0.1:0",
        tells_deaths=True,
    )
    assert not any("auth_secret" in word for word in settings.words())
    monkeypatch.setenv("NSQ_AUTH_SECRET", "of-somebody-else")
    for name, value in settings.environment().items():
        if name.startswith("NSQFAST"):
            monkeypatch.setenv(name, value)
    options = parse(settings.words())
    assert (options.spool, options.channel, options.receiver) == (str(folder), "c", "r7")
    assert (options.topic, options.topic_pattern) == ([], "^x")
    assert options.lookupd_http_address == ["a:4161", "b:4161"]
    assert options.consumer_opt[-2:] == ["snappy", "auth_secret,s"]
    assert make_config(options, 1).auth_secret == "s"
    assert (options.max_in_flight, options.max_spool_bytes, options.min_free_bytes) == (6, 7, 8)
    assert (options.retention_ns, options.seal_interval_ns) == (1_500_000_000, 250_000_000)
    assert (options.metrics_address, options.deaths) == ("127.0.0.1:0", True)


def test_from_start_to_stop(ours, topic, folder, child):
    assert not child.is_alive
    with pytest.raises(ReceiverError, match="was not started"):
        child.check()
    assert child.stop() is None
    child.start()
    with pytest.raises(ReceiverError, match="runs already"):
        child.start()
    publish(address_of(ours), topic, range(1000))
    eventually(lambda: row_count(folder) == 1000)
    child.check()
    assert child.stop() == 0
    assert not child.is_alive
    assert numbers(folder) == list(range(1000))
    assert any("subscribed" in line for line in child.lines)
    assert child.lines == child.last_lines
    first = child.pid
    child.restart()
    assert child.is_alive
    assert child.pid != first
    assert child.returncode is None


def test_a_drain_takes_what_there_is_and_ends(ours, topic, folder, child):
    publish(address_of(ours), topic, range(5000))
    child.drain(idle_s=0.2, timeout_s=20)
    assert numbers(folder) == list(range(5000))
    assert channel_state(ours, topic)["depth"] == 0
    assert not child.is_alive
    child.start()
    assert child.is_alive


def test_why_it_ended_is_told(ours, settings, folder, child):
    folder.parent.joinpath("spool").write_text("no folder")
    child.start()
    eventually(lambda: not child.is_alive)
    with pytest.raises(ReceiverError, match=r"receiver r0 ended \(1\): .*spool"):
        child.check()
    with pytest.raises(ReceiverError, match=r"receiver r0 ended \(1\): .*spool"):
        child.drain()


def test_one_that_was_killed_is_told_and_can_be_restarted(ours, topic, folder, child):
    child.start()
    eventually(lambda: any("subscribed" in line for line in child.lines))
    os.kill(child.pid, signal.SIGKILL)
    eventually(lambda: not child.is_alive)
    with pytest.raises(ReceiverError, match="was killed by signal 9"):
        child.check()
    child.restart()
    publish(address_of(ours), topic, range(10))
    eventually(lambda: row_count(folder) == 10)


def test_one_that_does_not_end_is_killed(child):
    child.start()
    eventually(lambda: any("subscribed" in line for line in child.lines))
    os.kill(child.pid, signal.SIGSTOP)
    assert child.stop(timeout_s=0.1) == -signal.SIGKILL


PARENT = """
import sys
from pathlib import Path
from nsqfast.spark.receiver.child import ReceiverChild, ReceiverSettings
child = ReceiverChild(ReceiverSettings(spool=Path(sys.argv[1]), channel="c", topics=("t",),
                                       nsqd_tcp_addresses=(sys.argv[2],)))
child.start()
print(child.pid, flush=True)
sys.stdin.read()
"""


def is_running(pid):
    """A zombie is not."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_it_does_not_outlive_a_parent_that_is_killed(ours, folder, tmp_path):
    """Nor does it take modules from the folder where its parent happens to run."""
    (tmp_path / "orjson.py").write_text("raise SystemExit('not this one')")
    with subprocess.Popen(
        [sys.executable, "-P", "-c", PARENT, str(folder), address_of(ours)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    ) as parent:
        pid = int(parent.stdout.readline())
        assert b"subscribed" in parent.stderr.readline()
        assert is_running(pid)
        parent.kill()
        eventually(lambda: not is_running(pid))
