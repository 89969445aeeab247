"""What an operator may set, see and shut off: addresses, secrets, a listener, numbers of topics and channels."""

import http.client
import json
import socket
from functools import partial

import pytest

from nsqfast.net.addresses import mask_address, mask_command_line, place_of
from support.authd import AuthServer, grant, permit
from support.server import start_nsqd
from support.waiting import eventually
from support.web import get, post, request, stats, topic_stats
from support.wire import Client, encode_messages

SECRET = "s3cr3t"


def fail_with(client, *texts):
    """The client hears of an error with all these texts, and its connection ends."""
    error = client.read_error()
    assert all(text in error.decode() for text in texts), error
    client.read_to_end()


# -- addresses


def test_a_list_of_addresses_has_an_end(tmp_path):
    path = "/config/nsqlookupd_tcp_addresses"
    with start_nsqd("nsqfast", tmp_path) as broker:
        many = json.dumps([f"127.0.0.1:{port}" for port in range(1, 102)]).encode()
        answer = request(broker.http, "PUT", path, many)
        assert (answer.status, answer.json()["message"]) == (
            400,
            "INVALID_VALUE: at most 100 addresses, not 101",
        )
        assert get(broker.http, path).body in (b"null", b"[]")
        assert "LOOKUP" not in broker.stderr


@pytest.mark.parametrize(
    ("address", "shown", "place"),
    [
        ("127.0.0.1:4181", "127.0.0.1:4181", "127.0.0.1:4181"),
        ("/run/a@b/nsqd.sock", "/run/a@b/nsqd.sock", "/run/a@b/nsqd.sock"),
        ("http://h:1/auth", "http://h:1/auth", "http://h:1"),
        ("http://u:p@h:1/auth?a=b&c", "http://xxxxx@h:1/auth?a=xxxxx&xxxxx", "http://h:1"),
        ("https://t@[::1]:1/?t=a@b#f", "https://xxxxx@[::1]:1/?t=xxxxx", "https://[::1]:1"),
        ("u:p@h:1", "xxxxx@h:1", "h:1"),
        ("http://u:a@b@h", "http://xxxxx@h", "http://h"),
    ],
)
def test_masks(address, shown, place):
    assert mask_address(address) == shown
    if not address.startswith("/"):
        assert place_of(address) == place


def test_mask_command_line():
    words = ["nsqd", "--auth-http-address", "u:p@h:1", "--auth-http-address=u:p@h:1", "a@b", "-v"]
    shown = [
        "nsqd",
        "--auth-http-address",
        "xxxxx@h:1",
        "--auth-http-address=xxxxx@h:1",
        "a@b",
        "-v",
    ]
    assert mask_command_line(words) == shown
    assert mask_command_line(["x", "--k=http://u:p@h/"]) == ["x", "--k=http://xxxxx@h/"]


def test_secrets_of_addresses_stay_with_the_broker(tmp_path):
    with AuthServer() as authd:
        authd.answers["who"] = grant(permit())
        flags = [
            f"--auth-http-address=http://user:{SECRET}@{authd.address}/auth?token={SECRET}",
            "--auth-http-address",
            f"http://{SECRET}@127.0.0.1:1",
        ]
        with start_nsqd("nsqfast", tmp_path, *flags) as broker:
            for path in ("/config/auth_http_addresses", "/debug/pprof/cmdline"):
                answer = get(broker.http, path)
                assert authd.address.encode() in answer.body
                assert SECRET.encode() not in answer.body
            assert get(broker.http, "/debug/pprof/goroutine").status == 200
            with Client(broker.tcp) as client:
                client.command("AUTH", body=b"nobody")
                assert client.read_error().startswith(b"E_AUTH_FAILED")
            wrong = json.dumps([f"user:{SECRET}@127.0.0.1:1"]).encode()
            put = request(broker.http, "PUT", "/config/nsqlookupd_tcp_addresses", wrong)
            assert (put.status, put.body) == (200, b'["xxxxx@127.0.0.1:1"]')
            broker.wait_for_line("LOOKUPD(xxxxx@127.0.0.1:1): ")
        assert SECRET not in broker.stderr


# -- numbers of topics and channels


def test_topics_beyond_the_limit_are_not_created(tmp_path):
    with start_nsqd("nsqfast", tmp_path, "--max-topics=2") as broker:
        with Client(broker.tcp) as client:
            client.pub("one", b"x")
            client.pub("two", b"x")
            client.pub("one", b"x")
            client.command("PUB", "three", body=b"x")
            fail_with(client, "E_BAD_TOPIC", "three", "--max-topics=2")
        for command, more, body in (
            ("MPUB", [], encode_messages([b"x"])),
            ("DPUB", ["5"], b"x"),
            ("SUB", ["c"], None),
        ):
            with Client(broker.tcp) as client:
                client.command(command, "three", *more, body=body)
                fail_with(client, "E_BAD_TOPIC", "three", "--max-topics=2")
        for path in ("/pub?topic=three", "/mpub?topic=three", "/topic/create?topic=three"):
            answer = post(broker.http, path, b"x")
            assert (answer.status, answer.json()) == (403, {"message": "TOO_MANY_TOPICS"})
        assert {topic["topic_name"] for topic in stats(broker.http)["topics"]} == {"one", "two"}
        assert post(broker.http, "/topic/create?topic=one").status == 200
        assert post(broker.http, "/topic/delete?topic=one").status == 200
        assert post(broker.http, "/pub?topic=three", b"x").status == 200


def test_channels_beyond_the_limit_are_not_created(tmp_path):
    with start_nsqd("nsqfast", tmp_path, "--max-channels-per-topic=1") as broker:
        assert post(broker.http, "/topic/create?topic=t").status == 200
        assert post(broker.http, "/channel/create?topic=t&channel=one").status == 200
        assert post(broker.http, "/channel/create?topic=t&channel=one").status == 200
        answer = post(broker.http, "/channel/create?topic=t&channel=two")
        assert (answer.status, answer.json()) == (403, {"message": "TOO_MANY_CHANNELS"})
        with Client(broker.tcp) as client:
            client.command("SUB", "t", "two")
            fail_with(client, "E_BAD_CHANNEL", "t:two", "--max-channels-per-topic=1")
        with Client(broker.tcp) as client:
            client.sub("t", "one", 1)
        with Client(broker.tcp) as client:
            client.sub("u", "two", 1)
        assert set(topic_stats(broker.http, "t")["channels"]) == {"one"}


def test_a_start_makes_all_it_finds(tmp_path):
    with start_nsqd("nsqfast", tmp_path) as broker:
        for number in range(3):
            assert post(broker.http, f"/topic/create?topic=t{number}").status == 200
            assert post(broker.http, f"/channel/create?topic=t0&channel=c{number}").status == 200
    flags = ["--max-topics=1", "--max-channels-per-topic=1"]
    with start_nsqd("nsqfast", tmp_path, *flags) as broker:
        assert len(stats(broker.http)["topics"]) == 3
        assert len(topic_stats(broker.http, "t0")["channels"]) == 3
        assert post(broker.http, "/pub?topic=t2", b"x").status == 200
        assert post(broker.http, "/pub?topic=t3", b"x").status == 403


# -- a listener of his own

ADMIN = "HTTP-ADMIN"
FOR_OPERATORS = [
    ("GET", "/config/log_level"),
    ("PUT", "/config/log_level"),
    ("GET", "/debug/pprof/"),
    ("GET", "/debug/pprof/cmdline"),
    ("GET", "/debug/pprof/goroutine"),
    ("GET", "/debug/pprof/heap"),
    ("PUT", "/debug/setblockrate?rate=1"),
    ("POST", "/debug/freememory"),
    *(
        ("POST", f"/{kind}/{verb}?topic=t&channel=c")
        for kind in ("topic", "channel")
        for verb in ("pause", "unpause", "empty", "delete")
    ),
    ("POST", "/channel/deferred/run?topic=t&channel=c&id=x"),
    ("POST", "/channel/deferred/cancel?topic=t&channel=c&id=x"),
]


def test_what_operators_may_do_is_done_at_their_address_only(tmp_path):
    flag = "--http-admin-address=127.0.0.1:0"
    with start_nsqd("nsqfast", tmp_path, flag, listeners=("TCP", "HTTP", ADMIN)) as broker:
        admin = broker.addresses[ADMIN]
        for path in ("/topic/create?topic=t", "/channel/create?topic=t&channel=c", "/pub?topic=t"):
            assert post(broker.http, path, b"x").status == 200
        for method, path in FOR_OPERATORS:
            answer = request(broker.http, method, path, b"info")
            assert (answer.status, answer.json()) == (403, {"message": "ADMIN_ADDRESS_ONLY"}), path
        found = topic_stats(broker.http, "t")
        assert not found["paused"]
        assert found["channels"]["c"]["depth"] == 1
        # There everything is served, the ordinary paths as well.
        for path in ("/ping", "/info", "/stats", "/config/log_level", "/debug/pprof/", "/metrics"):
            assert get(admin, path).status == 200, path
        for path in ("/topic/create?topic=u", "/pub?topic=t"):
            assert post(admin, path, b"x").status == 200
        for path in (
            "/channel/empty?topic=t&channel=c",
            "/topic/pause?topic=t",
            "/topic/delete?topic=t",
        ):
            assert post(admin, path).status == 200, path
        assert topic_stats(admin, "t") is None


def test_without_the_flag_all_is_served_at_one_address(tmp_path):
    with start_nsqd("nsqfast", tmp_path) as broker:
        for method, path in FOR_OPERATORS:
            assert request(broker.http, method, path, b"info").status != 403, path
        assert ADMIN not in broker.addresses


def test_it_speaks_tls_where_all_have_to(tmp_path, certificates):
    flags = ["--http-admin-address=127.0.0.1:0", "--tls-required=true", *certificates.flags()]
    listeners = ("TCP", "HTTP", "HTTPS", ADMIN)
    with start_nsqd("nsqfast", tmp_path, *flags, listeners=listeners) as broker:
        context = certificates.client_context()

        def connect(host, port, timeout):
            return http.client.HTTPSConnection(host, port, timeout=timeout, context=context)

        path = "/config/log_level"
        admin = broker.addresses[ADMIN]
        assert request(admin, "GET", path, connect=connect).status == 200
        assert request(broker.https, "GET", path, connect=connect).json() == {
            "message": "ADMIN_ADDRESS_ONLY"
        }
        assert b"HTTPS server" in get(admin, path).body


def test_a_handshake_is_a_connection(tmp_path, certificates):
    flags = ["--max-connections=2", *certificates.flags()]
    listeners = ("TCP", "HTTP", "HTTPS")
    context = certificates.client_context()

    def connect(host, port, timeout):
        return http.client.HTTPSConnection(host, port, timeout=timeout, context=context)

    with start_nsqd("nsqfast", tmp_path, *flags, listeners=listeners) as broker:
        # They say nothing, and are kept for five seconds.
        silent = [socket.create_connection(broker.https, 10) for _ in range(2)]
        answer = request(broker.https, "GET", "/ping", connect=connect)
        assert (answer.status, answer.json()) == (503, {"message": "TOO_MANY_CONNECTIONS"})
        assert 'nsqd_connections{listener="https"} 2' in get(broker.http, "/metrics").body.decode()
        for each in silent:
            each.close()
        ping = partial(request, broker.https, "GET", "/ping", connect=connect)
        eventually(lambda: ping().status != 503)
        assert ping().body == b"OK"
