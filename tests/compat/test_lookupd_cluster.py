"""nsqd, Go's and ours, around an nsqlookupd, Go's and ours; NSQ's consumers and nsqadmin ask it."""

import json
import subprocess

import pytest

from support.lookup import channels, lookup, nodes, producers, topics
from support.server import Server, go_program, start_nsqd, start_nsqlookupd
from support.waiting import wait_until
from support.web import get, post, request, topic_stats

pytestmark = [pytest.mark.go, pytest.mark.slow]

SECONDS_MAX = 50.0


@pytest.fixture
def lookupd(implementation):
    with start_nsqlookupd(implementation) as server:
        yield server


@pytest.fixture(params=["go", "nsqfast"])
def report(request):
    """Starts an nsqd that reports to it."""

    def start(lookupd, folder):
        address = f"--lookupd-tcp-address={text(lookupd.tcp)}"
        return start_nsqd(request.param, folder, address)

    return start


@pytest.fixture
def broker(lookupd, report, tmp_path):
    with report(lookupd, tmp_path) as server:
        yield server


def text(address):
    return f"{address[0]}:{address[1]}"


def ports_of(lookupd):
    return [one["tcp_port"] for one in nodes(lookupd.http)]


def test_a_life_of_an_nsqd(lookupd, broker):
    (node,) = wait_until(lambda: nodes(lookupd.http))
    assert (node["tcp_port"], node["http_port"]) == (broker.tcp[1], broker.http[1])
    assert (node["broadcast_address"], node["version"]) == ("127.0.0.1", "1.3.0")
    assert node["topics"] == {}
    post(broker.http, "/topic/create?topic=one")
    post(broker.http, "/channel/create?topic=one&channel=c")
    post(broker.http, "/pub?topic=two", b"x")
    wait_until(lambda: topics(lookupd.http) == ["one", "two"])
    wait_until(lambda: channels(lookupd.http, "one") == ["c"])
    assert len(producers(lookupd.http, "one")) == 1
    post(broker.http, "/channel/create?topic=two&channel=gone%23ephemeral")
    wait_until(lambda: channels(lookupd.http, "two") == ["gone#ephemeral"])
    post(broker.http, "/channel/delete?topic=two&channel=gone%23ephemeral")
    wait_until(lambda: channels(lookupd.http, "two") == [])
    post(broker.http, "/topic/delete?topic=two")
    wait_until(lambda: lookup(lookupd.http, "two")["producers"] == [])
    broker.kill()
    wait_until(lambda: nodes(lookupd.http) == [])
    # The names linger.
    assert lookup(lookupd.http, "one") == {"channels": ["c"], "producers": []}


def test_a_new_nsqd_takes_channels_over(lookupd, broker, report, tmp_path):
    """nsqd asks every nsqlookupd for the channels of a topic that is new to it."""
    post(broker.http, "/channel/create?topic=t&channel=c")
    post(broker.http, "/topic/create?topic=t")
    post(broker.http, "/channel/create?topic=t&channel=c")
    wait_until(lambda: lookup(lookupd.http, "t") and channels(lookupd.http, "t") == ["c"])
    folder = tmp_path / "second"
    folder.mkdir()
    with report(lookupd, folder) as second:
        # Once this has arrived it knows whom to ask; Go's asks nobody before, and never again.
        post(second.http, "/topic/create?topic=ready")
        wait_until(lambda: "ready" in topics(lookupd.http))
        post(second.http, "/pub?topic=t", b"x")
        wait_until(lambda: len(producers(lookupd.http, "t")) == 2)
        # Ours takes the message at once and asks meanwhile.
        wait_until(lambda: list(topic_stats(second.http, "t")["channels"]) == ["c"])


def test_an_nsqlookupd_that_comes_back(implementation, report, tmp_path):
    """A quiet nsqd registers again when a command finds the connection broken."""
    with start_nsqlookupd(implementation) as first, report(first, tmp_path) as broker:
        wait_until(lambda: nodes(first.http))
        post(broker.http, "/topic/create?topic=t")
        wait_until(lambda: topics(first.http) == ["t"])
        first.stop()
        again = start_nsqlookupd(implementation, f"--tcp-address={text(first.tcp)}")
        with again:
            # The first command fails, the next one connects.
            numbers = iter(range(1000))
            wait_until(
                lambda: (
                    post(broker.http, f"/topic/create?topic=n{next(numbers)}"),
                    "t" in topics(again.http),
                )[1]
            )
            assert len(producers(again.http, "t")) == 1


def test_nsq_tail_finds_messages(lookupd, broker):
    post(broker.http, "/mpub?topic=t", b"one\ntwo\nthree\n")
    wait_until(lambda: lookup(lookupd.http, "t"))
    flags = ["--topic=t", "-n=3", f"--lookupd-http-address={text(lookupd.http)}"]
    done = subprocess.run(
        [go_program("nsq_tail"), *flags, "--print-topic=false"],
        capture_output=True,
        timeout=SECONDS_MAX,
        check=True,
    )
    assert sorted(done.stdout.split()) == [b"one", b"three", b"two"]


@pytest.fixture
def admin(lookupd):
    """Go's nsqadmin in front of it."""
    flags = ["--http-address=127.0.0.1:0", f"--lookupd-http-address={text(lookupd.http)}"]
    with Server([go_program("nsqadmin"), *flags], ["HTTP"]) as server:
        yield server


def test_nsqadmin(lookupd, broker, admin):
    post(broker.http, "/topic/create?topic=t")
    post(broker.http, "/channel/create?topic=t&channel=c")
    wait_until(lambda: lookup(lookupd.http, "t") and channels(lookupd.http, "t") == ["c"])
    assert get(admin.http, "/api/topics").json() == {"message": "", "topics": ["t"]}
    (node,) = get(admin.http, "/api/nodes").json()["nodes"]
    assert (node["http_port"], node["out_of_date"]) == (broker.http[1], False)
    assert node["topics"] == [{"topic": "t", "tombstoned": False}]
    (remote,) = producers(lookupd.http, "t")
    assert node["remote_addresses"] == [f"{text(lookupd.http)}/{remote}"]
    found = get(admin.http, "/api/topics/t").json()
    assert (found["message"], [one["channel_name"] for one in found["channels"]]) == ("", ["c"])
    assert get(admin.http, "/api/topics?inactive=true").json()["topics"] == {}


def test_nsqadmin_creates_tombstones_and_deletes(lookupd, broker, admin):
    answer = post(admin.http, "/api/topics", json.dumps({"topic": "new", "channel": "c"}).encode())
    assert answer.status in {200, 502}  # nobody produces it
    assert topics(lookupd.http) == ["new"]
    assert get(admin.http, "/api/topics?inactive=true").json()["topics"] == {"new": ["c"]}
    post(broker.http, "/topic/create?topic=t")
    wait_until(lambda: lookup(lookupd.http, "t"))
    target = f"/api/nodes/127.0.0.1:{broker.http[1]}"
    answer = request(admin.http, "DELETE", target, b'{"topic":"t"}')
    assert (answer.status, answer.json()["message"]) == (200, "")
    wait_until(lambda: producers(lookupd.http, "t") == [])
    post(broker.http, "/topic/create?topic=gone")
    wait_until(lambda: lookup(lookupd.http, "gone"))
    assert request(admin.http, "DELETE", "/api/topics/gone").status == 200
    wait_until(lambda: "gone" not in topics(lookupd.http))
