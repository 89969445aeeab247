"""The admin client against real daemons, nsqfast's and Go's, and against answers that are none."""

import http.server
import json
import os
import threading
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

import pytest

from nsqfast.client import (
    Admin,
    ClosedError,
    Config,
    ConnectError,
    InvalidNameError,
    OptionsError,
    Producer,
    RefusedError,
    UnsupportedError,
    WrongPeerError,
    sync,
)
from nsqfast.client.admin import NSQD, PEERS_KEPT_MAX
from support.authd import AuthServer, grant, permit
from support.server import start_nsqd, start_nsqlookupd
from support.waiting import until
from support.web import get, topic_stats

HOUR = timedelta(hours=1)
ID = b"18a486d315a69000"


def place(address):
    return "{}:{}".format(*address)


@pytest.fixture(scope="module")
def ours(tmp_path_factory):
    with start_nsqd("nsqfast", tmp_path_factory.mktemp("admin")) as server:
        yield server


@pytest.fixture(scope="module")
def lookupd(implementation):
    with start_nsqlookupd(implementation) as server:
        yield server


@pytest.fixture
def cluster(implementation, lookupd, tmp_path):
    """Two nsqd that register at the nsqlookupd."""
    flag = f"--lookupd-tcp-address={place(lookupd.tcp)}"
    folders = [tmp_path / "a", tmp_path / "b"]
    for folder in folders:
        folder.mkdir()
    with (
        start_nsqd(implementation, folders[0], flag) as first,
        start_nsqd(implementation, folders[1], flag) as second,
    ):
        yield [first, second]


async def test_topics_and_channels(loop_factory, broker, address, topic):
    """All that NSQ's own nsqd can do, too."""
    http = place(broker.http)
    async with Admin(http) as admin:
        assert await admin.create_topic(topic) == [http]
        assert await admin.create_channel(topic, "c") == [http]
        assert await admin.create_channel(f"{topic}-new", "c") == [http]
        for pause, unpause in (
            ((admin.pause_topic, topic), (admin.unpause_topic, topic)),
            ((admin.pause_channel, topic, "c"), (admin.unpause_channel, topic, "c")),
        ):
            for is_paused, (act, *names) in ((True, pause), (False, unpause)):
                assert await act(*names) == [http]
                (nsqd,) = await admin.stats(topic)
                found = nsqd.topics[topic]
                assert (found if len(names) == 1 else found.channels["c"]).is_paused is is_paused
        async with Producer(address) as producer:
            await producer.publish_many(topic, [b"one", b"two"])
            await producer.publish_later(topic, b"later", 600.0)
        # Go passes messages on from topic to channel by itself, after its OK.
        await until(lambda: topic_stats(broker.http, topic)["channels"]["c"]["message_count"] == 3)
        (nsqd,) = await admin.stats(topic, "c")
        channel = nsqd.topics[topic].channels["c"]
        assert (channel.depth, channel.deferred_count, channel.message_count) == (2, 1, 3)
        assert (channel.consumer_count, channel.in_flight_count, channel.is_paused) == (0, 0, False)
        assert (nsqd.nsqd, nsqd.version, nsqd.health) == (http, "1.3.0", "OK")
        assert datetime.now(UTC) - nsqd.start_time < timedelta(hours=1)
        assert nsqd.topics[topic].message_bytes == 11
        assert await admin.empty_channel(topic, "c") == [http]
        assert await admin.delete_channel(topic, "c") == [http]
        assert (await admin.stats(topic))[0].topics[topic].channels == {}
        assert await admin.empty_topic(topic) == [http]
        assert await admin.delete_topic(topic) == [http]
        assert (await admin.stats(topic))[0].topics == {}
        assert f"{topic}-new" in (await admin.stats())[0].topics


async def test_peek_and_deferred(ours, topic):
    http = place(ours.http)
    bodies = [b"text", "ümlaut".encode(), b"\xff\0binary", b"long" * 20_000]
    async with Admin(http) as admin, Producer(place(ours.tcp)) as producer:
        for body in bodies[:2]:
            await producer.publish(topic, body)
        (peek,) = await admin.peek(topic)
        assert [message.body for message in peek.messages] == bodies[:2]
        await admin.create_channel(topic, "c")
        for body in bodies[2:]:
            await producer.publish(topic, body)
        soon = await producer.publish_delayed(topic, b"soon", HOUR / 2)
        late = await producer.publish_delayed(topic, b"late", HOUR)
        (peek,) = await admin.peek(topic, "c")
        assert (peek.nsqd, peek.depth, peek.next_offset, peek.note) == (http, 4, None, "")
        *shown, last = peek.messages
        assert [message.body for message in shown] == bodies[:3]
        assert bodies[3].startswith(last.body)
        assert (last.is_truncated, last.size, last.attempts, last.due) == (True, 80_000, 0, None)
        (peek,) = await admin.peek(topic, "c", limit=1, offset=2)
        assert ([one.body for one in peek.messages], peek.next_offset) == ([bodies[2]], 3)
        (peek,) = await admin.peek(topic, "c", contains=b"\xff\0b")
        assert [message.body for message in peek.messages] == [bodies[2]]
        (peek,) = await admin.deferred(topic, "c")
        assert [message.id for message in peek.messages] == [soon.id, late.id]
        assert peek.messages[1].where == "deferred"
        in_s = (peek.messages[1].due - datetime.now(UTC)).total_seconds()
        assert 3000 < in_s <= 3600
        assert await admin.cancel_deferred(topic, "c", soon.id) == [http]
        assert await admin.run_deferred(topic, "c", late.id) == [http]
        with pytest.raises(RefusedError, match=f"MESSAGE_NOT_FOUND {http}") as caught:
            await admin.run_deferred(topic, "c", late.id)
        assert caught.value.code == "MESSAGE_NOT_FOUND"
        assert (await admin.stats(topic))[0].topics[topic].channels["c"].depth == 5


@pytest.mark.go
async def test_a_go_nsqd_says_in_one_line_what_it_cannot(tmp_path, topic):
    with start_nsqd("go", tmp_path) as server:
        http = place(server.http)
        async with Admin(http) as admin:
            await admin.create_channel(topic, "c")
            for act in (
                admin.peek(topic),
                admin.peek(topic, "c"),
                admin.deferred(topic, "c"),
                admin.cancel_deferred(topic, "c", ID),
                admin.run_deferred(topic, "c", ID),
            ):
                with pytest.raises(UnsupportedError) as caught:
                    await act
                text = str(caught.value)
                assert text.startswith(f"{http} has no /")
                assert text.endswith(": NSQ's own nsqd cannot do that, nsqfast's can")


async def test_a_cluster_by_its_nsqlookupd(cluster, lookupd, topic):
    https = [place(server.http) for server in cluster]
    async with Admin(*https) as direct, Admin(nsqlookupd=place(lookupd.http)) as admin:
        assert sorted(await direct.create_channel(topic, "c")) == sorted(https)
        await until(lambda: len(lookup(lookupd, topic)) == 2)
        assert {nsqd.nsqd for nsqd in await admin.stats(topic)} == set(https)
        assert {nsqd.nsqd for nsqd in await admin.stats()} >= set(https)
        assert sorted(await admin.pause_channel(topic, "c")) == sorted(https)
        for server in cluster:
            assert topic_stats(server.http, topic)["channels"]["c"]["paused"]
        async with Admin(https[0]) as one:
            assert await one.delete_channel(topic, "c") == [https[0]]
        assert await direct.unpause_channel(topic, "c") == [https[1]]
        assert sorted(await admin.delete_topic(topic)) == sorted(https)
        with pytest.raises(RefusedError, match=f"TOPIC_NOT_FOUND no nsqd has the topic '{topic}'"):
            await admin.delete_topic(topic)
        with pytest.raises(RefusedError) as caught:
            await direct.pause_topic(topic)
        assert caught.value.code == "TOPIC_NOT_FOUND"
        assert await admin.create_topic(f"{topic}-only-there") == []
        assert topic + "-only-there" in topics_of(lookupd)


def lookup(lookupd, topic):
    answer = get(lookupd.http, f"/lookup?topic={topic}")
    return answer.json()["producers"] if answer.status == 200 else []


def topics_of(lookupd):
    return get(lookupd.http, "/topics").json()["topics"]


async def test_one_of_several_that_is_down(ours, dead, topic):
    async with Admin(place(ours.http), dead) as admin:
        with pytest.raises(ConnectError, match=dead) as caught:
            await admin.create_topic(topic)
        assert caught.value.__notes__ == [f"done at {place(ours.http)}"]
        with pytest.raises(ConnectError, match=dead):
            await admin.stats()
    async with Admin(place(ours.http), nsqlookupd=dead) as admin:
        with pytest.raises(ConnectError, match=dead):
            await admin.delete_topic(topic)
    async with Admin(place(ours.http)) as admin:
        assert topic in (await admin.stats())[0].topics


@pytest.mark.parametrize(
    ("nsqd", "nsqlookupd", "text"),
    [
        ("nsqd tcp", "", "this is the TCP port of an nsqd; give its HTTP port (4151 as a rule)"),
        ("lookupd tcp", "", "this is nsqlookupd's TCP port; give its HTTP port"),
        ("lookupd http", "", "this is no nsqd; an nsqlookupd is given as nsqlookupd="),
        ("", "nsqd http", "this is an nsqd; it is given as first parameter"),
        ("", "lookupd tcp", "this is nsqlookupd's TCP port"),
    ],
)
async def test_the_wrong_port(broker, lookupd, nsqd, nsqlookupd, text):
    found = {
        "nsqd tcp": broker.tcp,
        "nsqd http": broker.http,
        "lookupd tcp": lookupd.tcp,
        "lookupd http": lookupd.http,
    }
    given = [place(found[nsqd])] if nsqd else []
    more = [place(found[nsqlookupd])] if nsqlookupd else []
    async with Admin(*given, nsqlookupd=more) as admin:
        for act in (admin.stats(), admin.create_topic("t"), admin.delete_topic("t")):
            with pytest.raises(WrongPeerError) as caught:
                await act
            assert text in str(caught.value)


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "nsqd",
        "ftp://a:1",
        "http://a:4151/stats",
        "a:b",
        "[::1",
        "a b:1",
        "a:1?x",
        "a:70000",
    ],
)
def test_what_is_no_address(address):
    for admin in (Admin, sync.Admin):
        with pytest.raises(OptionsError, match="say host:port"):
            admin(address)
        with pytest.raises(OptionsError, match="nsqlookupd .4161 as a rule"):
            admin(nsqlookupd=address)


def test_what_an_admin_needs(monkeypatch):
    monkeypatch.delenv("NSQFAST_LOOKUPD", raising=False)
    with pytest.raises(OptionsError, match="needs the HTTP address.*NSQFAST_LOOKUPD"):
        Admin()
    monkeypatch.setenv("NSQFAST_LOOKUPD", "a:4161,b:4161")
    assert Admin().name == "http://a:4161, http://b:4161"
    assert Admin("c:4151, d:4151").name == "http://c:4151, http://d:4151"
    with pytest.raises(OptionsError, match="timeout_s is positive"):
        Admin("a:1", timeout_s=0)


@pytest.mark.parametrize(
    "name", ["", "t t", "t:t", "t/../u", "t" * 65, "ü", "t\n", "*", b"t", None]
)
async def test_names_are_checked_before_a_url(dead, name):
    """Nobody listens: what came so far would say that it cannot connect."""
    async with Admin(dead) as admin:
        for act in (admin.create_topic, admin.delete_topic, admin.pause_topic, admin.peek):
            with pytest.raises((InvalidNameError, TypeError), match="topic"):
                await act(name)
        for act in (admin.create_channel, admin.empty_channel, admin.deferred):
            with pytest.raises((InvalidNameError, TypeError), match="channel"):
                await act("t", name)
        for id in (b"short", ID.decode(), None):
            with pytest.raises(OptionsError, match="no id of a message"):
                await admin.cancel_deferred("t", "c", id)
        if name:
            with pytest.raises((InvalidNameError, TypeError), match="topic"):
                await admin.stats(name)


async def test_parameters_that_nsqd_refuses(ours, topic):
    async with Admin(place(ours.http)) as admin:
        await admin.create_channel(topic, "c")
        for wrong, code in (
            ({"limit": 101}, "INVALID_ARG_LIMIT"),
            ({"offset": -1}, "INVALID_ARG_OFFSET"),
            ({"state": "gone&limit=1"}, "INVALID_ARG_STATE"),
            ({"contains": b"x" * 1025}, "INVALID_ARG_FILTER"),
        ):
            with pytest.raises(RefusedError) as caught:
                await admin.peek(topic, "c", **wrong)
            assert caught.value.code == code
        with pytest.raises(RefusedError, match="INVALID_ARG_ID"):
            await admin.cancel_deferred(topic, "c", b"X" * 16)


async def test_operators_have_an_address_of_their_own(tmp_path, topic):
    listeners = ("TCP", "HTTP", "HTTP-ADMIN")
    flag = "--http-admin-address=127.0.0.1:0"
    with start_nsqd("nsqfast", tmp_path, flag, listeners=listeners) as server:
        async with Admin(place(server.http)) as admin:
            await admin.create_topic(topic)
            with pytest.raises(RefusedError, match="ADMIN_ADDRESS_ONLY .*--http-admin-address"):
                await admin.delete_topic(topic)
        async with Admin(place(server.addresses["HTTP-ADMIN"])) as admin:
            assert len(await admin.delete_topic(topic)) == 1


async def test_with_permission_only(tmp_path):
    with AuthServer() as auth:
        auth.answers["secret"] = grant(permit("mine"))
        flags = (f"--auth-http-address={auth.address}", "--http-auth-required")
        with start_nsqd("nsqfast", tmp_path, *flags) as server:
            async with Admin(place(server.http)) as admin:
                with pytest.raises(RefusedError, match=r"UNAUTHORIZED .*Config\(auth_secret="):
                    await admin.create_topic("mine")
            config = Config(auth_secret="secret")
            async with Admin(place(server.http), config=config) as admin:
                assert len(await admin.create_topic("mine")) == 1
                with pytest.raises(RefusedError, match="FORBIDDEN"):
                    await admin.create_topic("other")


async def test_over_tls(certificates, tmp_path, topic):
    flags = [*certificates.flags(), "--tls-required=true"]
    with start_nsqd("nsqfast", tmp_path, *flags, listeners=("TCP", "HTTP", "HTTPS")) as server:
        https = f"https://localhost:{server.addresses['HTTPS'][1]}"
        async with Admin(place(server.http)) as admin:
            with pytest.raises(RefusedError, match="TLS_REQUIRED .*say https://"):
                await admin.stats()
        async with Admin(https) as admin:
            with pytest.raises(ConnectError):
                await admin.stats()
        config = Config(tls_root_ca_file=certificates.path("ca.crt"))
        async with Admin(https, config=config) as admin:
            assert await admin.create_topic(topic) == [https]


@contextmanager
def answering(*answers):
    """An HTTP server that gives these answers, one after the other: (status, body)."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            status, body = left.pop(0)
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_POST(self):
            self.do_GET()

        def log_message(self, *_):
            pass

    left = list(answers)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield place(server.server_address)
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


INFO = (200, b'{"tcp_port":4150,"http_port":4151}')
GOOD = {"version": "1.3.0", "health": "OK", "start_time": 1, "topics": []}


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"[]",
        b"null",
        b"{}",
        json.dumps(GOOD | {"topics": [{}]}).encode(),
        json.dumps(GOOD | {"topics": 5}).encode(),
        json.dumps(GOOD | {"start_time": 10**18}).encode(),
        json.dumps(GOOD | {"health": None}).encode(),
        b"[" * 100_000,
    ],
)
async def test_answers_that_are_none(answer):
    with answering(INFO, (200, answer)) as address:
        async with Admin(address) as admin:
            with pytest.raises(ConnectError, match="no answer of an nsqd") as caught:
                await admin.stats()
            assert len(str(caught.value)) < 500


@pytest.mark.parametrize(
    ("status", "answer", "error", "text"),
    [
        (500, b'{"message":"INTERNAL_ERROR"}', RefusedError, "INTERNAL_ERROR"),
        (502, b"<html>", ConnectError, "502 b'<html>'"),
        (500, b'{"message":"a\\nb"}', ConnectError, "500"),
        (302, b"", ConnectError, "302"),
        (404, b'{"message":"%s"}' % (b"x" * 999), ConnectError, "404"),
    ],
)
async def test_refusals(status, answer, error, text):
    with answering(INFO, (status, answer)) as address:
        async with Admin(address) as admin:
            with pytest.raises(error, match=text) as caught:
                await admin.create_topic("t")
            assert "\n" not in str(caught.value)
            assert len(str(caught.value)) < 500


async def test_before_its_start_and_after_its_end(ours):
    admin = Admin(place(ours.http))
    with pytest.raises(ClosedError, match="was not started: `async with Admin"):
        await admin.stats()
    async with admin:
        await admin.stats()
    with pytest.raises(ClosedError, match="the admin client is closed"):
        await admin.stats()
    await admin.close()


def test_from_program_threads(ours, topic):
    http_address = place(ours.http)
    with sync.Admin(http_address) as admin:
        assert admin.create_channel(topic, "c") == [http_address]
        with sync.Producer(place(ours.tcp)) as producer:
            producer.publish(topic, b"ready")
            job = producer.publish_delayed(topic, b"later", HOUR)
        (nsqd,) = admin.stats(topic)
        assert nsqd.topics[topic].channels["c"].deferred_count == 1
        assert [one.body for one in admin.peek(topic, "c", limit=5)[0].messages] == [b"ready"]
        assert admin.deferred(topic, "c")[0].messages[0].id == job.id
        assert admin.cancel_deferred(topic, "c", job.id) == [http_address]
        with pytest.raises(RefusedError, match="CHANNEL_NOT_FOUND"):
            admin.pause_channel(topic, "nobody")
        threads = [threading.Thread(target=admin.stats) for _ in range(5)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    with pytest.raises(ClosedError, match="the admin client is closed"):
        admin.stats()


def test_after_a_fork_it_starts_again(ours, topic):
    admin = sync.Admin(place(ours.http))
    admin.create_topic(topic)
    pid = os.fork()
    if pid == 0:
        try:
            os._exit(0 if topic in admin.stats()[0].topics else 1)
        finally:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    admin.close()


async def test_what_is_kept_of_peers_has_an_end(dead):
    """However many nsqd an nsqlookupd lists, others each time."""
    async with Admin(dead) as admin:
        many = [f"http://10.0.{n >> 8}.{n & 255}:4151" for n in range(PEERS_KEPT_MAX + 1)]
        assert len(admin._each(many, NSQD)) == len(many)
        admin._each(["http://10.1.0.0:4151"], NSQD)
        assert len(admin._peers) == 1


@pytest.mark.parametrize("kind", [Admin, sync.Admin])
def test_a_config_that_is_none(dead, kind):
    with pytest.raises(OptionsError, match="it is a Config"):
        kind(dead, config={})
