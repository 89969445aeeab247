"""How much one peer, all peers and HTTP clients may make nsqlookupd keep; what is too much is refused and counted."""

import json
import struct
from contextlib import ExitStack, closing
from http.client import HTTPConnection

import pytest

from support.commands import run_command
from support.lookup import Node, channels, producers, topics
from support.prometheus import scrape
from support.server import ROOT, program, start_nsqd, start_nsqlookupd
from support.waiting import wait_until
from support.web import get, post
from support.wire import SECONDS_MAX, Client

PING = b"GET /ping HTTP/1.1\r\nHost: localhost\r\n\r\n"
SERVED = b"HTTP/1.1 200 OK"
FORBIDDEN_TOPIC = (403, {"message": "TOO_MANY_TOPICS"})
FORBIDDEN_CHANNEL = (403, {"message": "TOO_MANY_CHANNELS"})


def refused(lookupd, reason):
    return scrape(lookupd.http).value("nsq_refused_total", reason=reason)


def told(answer):
    return answer.status, json.loads(answer.body or b"{}")


def identified(lookupd):
    node = Node(lookupd.tcp)
    node.identify()
    return node


def pinged(lookupd):
    """One that the listener does not count among those it is about to serve any more."""
    node = Node(lookupd.tcp)
    for _ in range(3):
        assert node.ask(b"PING") == b"OK"
    return node


def test_names_of_a_peer():
    """A refused name leaves nothing behind, the connection goes on, and what it gives back it may use again."""
    with start_nsqlookupd("nsqfast", "--max-names-per-peer=3") as lookupd:
        with identified(lookupd) as node, identified(lookupd) as other:
            node.register("a", "c")  # two names
            error = b"E_INVALID REGISTER b c not registered, --max-names-per-peer=3 is reached"
            assert node.ask(b"REGISTER b c") == error
            assert topics(lookupd.http) == ["a"]
            node.register("b")
            assert node.ask(b"REGISTER c").startswith(b"E_INVALID REGISTER c not registered")
            node.register("a", "c")
            other.register("c")
            node.unregister("b")
            node.register("c")
            assert len(producers(lookupd.http, "c")) == 2
            assert refused(lookupd, "too_many_names") == 2
            assert scrape(lookupd.http).value("nsqlookupd_registrations") == 4
        lookupd.stop()
        assert sum("--max-names-per-peer=3 is reached" in line for line in lookupd.lines) == 2


def test_lines_about_refusals_have_a_quota():
    count = 3000
    with start_nsqlookupd("nsqfast", "--max-names-per-peer=1") as lookupd:
        with identified(lookupd) as node:
            node.register("a")
            node.send(b"REGISTER b\n" * count)
            for _ in range(count):
                assert node.read().startswith(b"E_INVALID")
        assert refused(lookupd, "too_many_names") == count
        lookupd.stop()
        assert sum("is reached" in line for line in lookupd.lines) < count / 10


def test_topics_and_channels():
    flags = ("--max-topics=2", "--max-channels-per-topic=1")
    with start_nsqlookupd("nsqfast", *flags) as lookupd, identified(lookupd) as node:
        node.register("a", "c")
        assert told(post(lookupd.http, "/topic/create?topic=b")) == (200, {})
        error = b"E_BAD_TOPIC REGISTER c not registered, --max-topics=2 is reached"
        assert node.ask(b"REGISTER c") == error
        assert node.ask(b"REGISTER c c").startswith(b"E_BAD_TOPIC REGISTER c c not registered")
        error = b"E_BAD_CHANNEL REGISTER a d not registered, --max-channels-per-topic=1 is reached"
        assert node.ask(b"REGISTER a d") == error
        for target in ("/topic/create?topic=c", "/channel/create?topic=c&channel=c"):
            assert told(post(lookupd.http, target)) == FORBIDDEN_TOPIC
        assert told(post(lookupd.http, "/channel/create?topic=a&channel=d")) == FORBIDDEN_CHANNEL
        # What is there is nothing new.
        node.register("b")
        assert told(post(lookupd.http, "/channel/create?topic=a&channel=c")) == (200, {})
        assert topics(lookupd.http) == ["a", "b"]
        assert [channels(lookupd.http, topic) for topic in "abc"] == [["c"], [], []]
        assert get(lookupd.http, "/lookup?topic=c").status == 404
        assert refused(lookupd, "too_many_topics") == 4
        assert refused(lookupd, "too_many_channels") == 2
        post(lookupd.http, "/topic/delete?topic=b")
        node.register("c")


def test_connections():
    """Of each listener; who is refused is told so in its own protocol, and room that is given back is used."""
    with start_nsqlookupd("nsqfast", "--max-connections=2") as lookupd:
        first, second = pinged(lookupd), pinged(lookupd)
        with Node(lookupd.tcp) as third:
            text = b"E_INVALID too many connections, the limit is 2"
            assert third.read_to_end() == struct.pack(">i", len(text)) + text
        assert refused(lookupd, "too_many_connections") == 1
        first.close()
        wait_until(
            lambda: scrape(lookupd.http).value("nsqlookupd_connections", listener="tcp") == 1
        )
        with identified(lookupd) as fourth:
            assert fourth.ask(b"PING") == b"OK"
        second.close()
        lookupd.stop()
        assert any("raise --max-connections" in line for line in lookupd.lines)


def test_connections_over_http():
    with start_nsqlookupd("nsqfast", "--max-connections=2") as lookupd, ExitStack() as stack:
        for _ in range(2):
            one = stack.enter_context(Client(lookupd.http, PING))
            assert one.read_exactly(len(SERVED)) == SERVED
        answer = get(lookupd.http, "/ping")
        assert told(answer) == (503, {"message": "TOO_MANY_CONNECTIONS"})


def test_a_connection_below_the_ceiling_is_served_however_quickly_it_follows_another():
    """One that was accepted, and is open by now, once counted twice for a turn of the loop: in one round of 500."""
    with (
        start_nsqlookupd("nsqfast", "--max-connections=3") as lookupd,
        closing(HTTPConnection(*lookupd.http, timeout=SECONDS_MAX)) as operator,
    ):

        def is_alone():
            operator.request("GET", "/metrics")
            text = operator.getresponse().read()
            return b'nsqlookupd_connections{listener="http"} 1' in text

        for _ in range(500):
            with Client(lookupd.http, PING) as one, Client(lookupd.http, PING) as other:
                assert one.read_exactly(len(SERVED)) == SERVED
                assert other.read_exactly(len(SERVED)) == SERVED
            wait_until(is_alone)


@pytest.mark.slow
def test_an_nsqd_of_ten_thousand_topics_with_two_channels_does_not_meet_the_defaults():
    lines = [
        b"REGISTER t%d c%d\n" % (topic, channel) for topic in range(10_000) for channel in (1, 2)
    ]
    with start_nsqlookupd("nsqfast") as lookupd, identified(lookupd) as node:
        node.send(b"".join(lines))
        assert all(node.read() == b"OK" for _ in lines)
        assert scrape(lookupd.http).value("nsqlookupd_registrations") == 30_000


@pytest.mark.parametrize(
    "flag", ["max-connections", "max-names-per-peer", "max-topics", "max-channels-per-topic"]
)
def test_a_negative_ceiling(flag):
    done = run_command(*program("nsqlookupd", "nsqfast"), f"--{flag}=-1", cwd=ROOT)
    assert done.returncode == 1
    assert f"--{flag} must be at least 0, not -1" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("name", [pytest.param("go", marks=pytest.mark.go), "nsqfast"])
def test_an_nsqd_beyond_the_ceiling_stays(tmp_path, name):
    """Go's ignores the answer to REGISTER: if it ended the connection, all its topics would come and go for ever."""
    with start_nsqlookupd("nsqfast", "--max-names-per-peer=2") as lookupd:
        address = f"--lookupd-tcp-address={lookupd.tcp[0]}:{lookupd.tcp[1]}"
        with start_nsqd(name, tmp_path, address) as nsqd:
            wait_until(lambda: get(lookupd.http, "/nodes").json()["producers"])
            for topic in ("a", "b", "c"):
                post(nsqd.http, f"/topic/create?topic={topic}")
            wait_until(lambda: refused(lookupd, "too_many_names"))
            assert topics(lookupd.http) == ["a", "b"]
            post(nsqd.http, "/topic/delete?topic=a")
            wait_until(lambda: len(producers(lookupd.http, "a")) == 0)
            post(nsqd.http, "/topic/create?topic=d")
            wait_until(lambda: "d" in topics(lookupd.http))
            metrics = scrape(lookupd.http)
            assert metrics.value("nsqlookupd_connections_accepted_total", listener="tcp") == 1
            if name == "nsqfast":
                nsqd.stop()
                assert sum("--max-names-per-peer=2 is reached" in line for line in nsqd.lines) == 1
