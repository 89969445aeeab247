"""A broker with a commit log, from outside: its first publish, and what it says of the log."""

import json
import resource
import signal

import pytest

from support.prometheus import scrape
from support.server import start_nsqd
from support.waiting import wait_until
from support.web import get, post, request, stats, topic_stats
from support.wire import ERROR, Client

pytestmark = pytest.mark.slow

MODES = ("always", "interval")
BODY = bytes(128 << 10)
SIZE = 16 << 20
NAMES = {
    "failed": "failed",
    "size_bytes": "size_bytes",
    "needed_bytes": "needed_bytes",
    "bad_quarters": "bad_quarters",
    "commit_count": "commits_total",
    "commit_bytes": "written_bytes_total",
    "record_count": "records_total",
    "message_count": "messages_total",
    "error_count": "errors_total",
    "missed_count": "missed_records_total",
    "checkpoint_count": "checkpoint_duration_seconds_count",
    "carried_bytes": "carried_bytes",
}


def start(folder, mode):
    small = (f"--commit-log-size={SIZE}", "--max-body-size=1048576", "--max-msg-size=262144")
    return start_nsqd("nsqfast", folder, f"--durable={mode}", *small)


def said(server):
    return stats(server.http)["commit_log"]


def scrape_at_rest(server):
    """The metrics, and the figures of the same time."""
    before, metrics, after = said(server), scrape(server.http), said(server)
    return (metrics, after) if before == after and after["commit_times"]["count"] else None


def metric(found, name, **labels):
    return found.value(f"nsqd_commit_log_{name}", **labels)


@pytest.mark.parametrize("mode", MODES)
def test_the_first_publish_of_all_is_answered_at_once(tmp_path, mode):
    """Nothing else makes the loop's turn end: the client has said nothing before, and gets no heartbeats."""
    for name in ("http", "tcp"):
        (tmp_path / name).mkdir()
    with start(tmp_path / "http", mode) as server:
        assert post(server.http, "/pub?topic=t", b"x").status == 200
    with start(tmp_path / "tcp", mode) as server, Client(server.tcp, seconds_max=10) as client:
        client.pub("t", b"x")


@pytest.mark.parametrize("mode", MODES)
def test_commits_and_what_is_in_them(tmp_path, mode):
    with start(tmp_path, mode) as server, Client(server.tcp) as client:
        client.sub("t", "c", 50)
        before = said(server)
        for _ in range(10):
            client.pub("t", b"one")
        client.mpub("t", [b"many"] * 20)
        client.pub("t#ephemeral", b"of which no log knows")
        for message in client.read_messages(30):
            client.fin(message)
        client.barrier()
        wait_until(lambda: said(server)["record_count"] >= before["record_count"] + 42, "FINs")
        # In interval mode the log is synced a little later, and that is a commit's time there.
        wait_until(lambda: said(server)["commit_times"]["count"] > 0, "a commit has a time")
        found = said(server)
        assert (found["mode"], found["failed"], found["refusal"]) == (mode, False, "")
        assert found["message_count"] - before["message_count"] == 30
        assert 11 <= found["commit_count"] - before["commit_count"] <= 45
        assert found["commit_bytes"] - before["commit_bytes"] >= 60 * 16
        assert 0 < found["needed_bytes"] < found["size_bytes"] == SIZE
        times = found["commit_times"]
        if mode == "always":
            assert times["count"] == found["commit_count"]
        assert times["sum_ms"] > 0
        counts = [count for _, count in times["within_ms"]]
        assert counts == sorted(counts)
        assert counts[-1] <= times["count"]


@pytest.mark.parametrize("mode", MODES)
def test_metrics_and_text_say_the_same(tmp_path, mode):
    with start(tmp_path, mode) as server:
        for _ in range(3):
            assert post(server.http, "/pub?topic=t", b"x").status == 200
        metrics, found = wait_until(lambda: scrape_at_rest(server), "it is at rest")
        assert {key: metric(metrics, name) for key, name in NAMES.items()} == {
            key: found[key] for key in NAMES
        }
        of_times = "commit_duration_seconds"
        assert metric(metrics, f"{of_times}_bucket", le="+Inf") == found["commit_times"]["count"]
        for bound_ms, count in found["commit_times"]["within_ms"]:
            assert metric(metrics, f"{of_times}_bucket", le=str(bound_ms / 1e3)) == count
        text = get(server.http, "/stats").text
        block = text.partition("\nCommit log:\n")[2].partition("\n\n")[0]
        lines = dict(line.split(maxsplit=1) for line in block.splitlines())
        assert (lines["mode"], lines["failed"]) == (mode, "false")
        assert lines["message_count"] == "3"


def test_off_says_nothing(tmp_path):
    with start_nsqd("nsqfast", tmp_path) as server:
        assert post(server.http, "/pub?topic=t", b"x").status == 200
        assert "commit_log" not in stats(server.http)
        assert "Commit log" not in get(server.http, "/stats").text
        assert "nsqd_commit_log" not in get(server.http, "/metrics").text


def publish_until_refused(server):
    """The reason."""
    for _ in range(2 * SIZE // len(BODY)):
        answer = post(server.http, "/pub?topic=t", BODY)
        if answer.status != 200:
            return answer.json()["reason"]
    pytest.fail("it took more than it has room for")


def test_a_checkpoint_and_what_it_carried(tmp_path):
    with start(tmp_path, "always") as server:
        assert said(server)["last_checkpoint"] == said(server)["carried_bytes"] == 0
        for _ in range(SIZE // len(BODY)):
            assert post(server.http, "/pub?topic=t", BODY).status == 200
        wait_until(lambda: said(server)["checkpoint_count"] >= 1, "a checkpoint")
        found = said(server)
        assert found["carried_bytes"] == (tmp_path / "nsqd.commitlog" / "carried").stat().st_size
        assert found["last_checkpoint"] - stats(server.http)["start_time"] >= 0
        assert found["last_checkpoint_ms"] >= 0
        assert metric(scrape(server.http), "checkpoint_duration_seconds_sum") > 0


def test_a_log_that_is_full_refuses_and_says_why(tmp_path):
    with start(tmp_path, "always") as server:
        obstacle = tmp_path / "nsqd.commitlog" / "carried.tmp"
        obstacle.mkdir()
        reason = publish_until_refused(server)
        assert "there is no checkpoint: is a directory" in reason
        found = said(server)
        assert found["refusal"] == reason
        assert found["checkpoint_error"] == "is a directory"
        assert found["needed_bytes"] >= 0.75 * found["size_bytes"]
        assert found["refused_count"] == 1
        refused = scrape(server.http).value("nsqd_publish_refused_total", reason="commit_log")
        assert refused == 1
        obstacle.rmdir()
        wait_until(lambda: post(server.http, "/pub?topic=t", BODY).status == 200, "it goes on")
        found = said(server)
        assert (found["refusal"], found["checkpoint_error"]) == ("", "")


def end_failed(server):
    """Stop it, once files can be written again: its exit status says that not all was kept."""
    everything = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
    resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, everything)
    server.process.send_signal(signal.SIGTERM)
    assert server.process.wait(50) == 1, server.stderr
    server.kill()


def test_what_would_die_without_a_log(tmp_path):
    """It stays where it was, and its consumer is not kept waiting for a batch that nobody writes."""
    with start(tmp_path, "always") as server, Client(server.tcp) as client:
        client.sub("t", "c", 1000)
        client.mpub("t", [bytes(1000)] * 1000)
        messages = client.read_messages(1000)
        definition = json.dumps({"definition": {"max_failures": 1}}).encode()
        assert request(server.http, "PUT", "/policies/p", definition).status == 200
        resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
        client.send(b"".join(b"REQ %s 0\n" % message.id for message in messages))
        client.command("FIN", "0" * 16)
        assert client.read_error().startswith(b"E_FIN_FAILED")
        channel = stats(server.http)["topics"][0]["channels"][0]
        dead = topic_stats(server.http, "t.c.dead")["depth"]
        assert channel["depth"] + channel["deferred_count"] + dead == 1000
        end_failed(server)


def test_a_log_that_has_failed(tmp_path):
    with start(tmp_path, "always") as server, Client(server.tcp) as client:
        client.sub("t", "c", 5)
        client.mpub("t", [b"%d" % number for number in range(5)])
        messages = client.read_messages(5)
        # From now on no byte of any file can be written.
        resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
        with Client(server.tcp) as publisher:
            publisher.command("PUB", "t", body=b"x")
            assert publisher.read_frame()[0] == ERROR
        wait_until(lambda: said(server)["failed"], "it has failed")
        assert post(server.http, "/pub?topic=t", b"x").status == 503
        for message in messages:
            client.fin(message)
        wait_until(lambda: said(server)["missed_count"] == 5, "FINs that are not in the log")
        found = said(server)
        assert found["refusal"] == "the commit log cannot be written until a restart"
        assert found["error_count"] > 0
        assert found["bad_quarters"] > 0
        assert found["size_bytes"] < SIZE
        assert metric(scrape(server.http), "failed") == 1
        end_failed(server)
