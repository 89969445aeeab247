"""nsqd's HTTP answers over raw sockets where the compat transcripts do not reach: layout, order, log, files."""

import json
import re
import socket

import pytest

from nsqfast.nsqd.stats import format_latency
from support.server import Server, program, start_nsqd, start_nsqlookupd
from support.waiting import eventually
from support.web import get, post, request, stats, topic_stats
from support.wire import Client

HEADERS = "HTTP/1.1\r\nHost: localhost\r\n"


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    folder = tmp_path_factory.mktemp("http")
    with start_nsqd("nsqfast", folder, "--max-msg-size=100", "--max-body-size=200") as server:
        server.folder = folder
        yield server


def transcript(address, sent, byte_by_byte=False):
    """Everything that comes back until the broker closes; the last request has to ask for that."""
    with socket.create_connection(address, timeout=10) as raw:
        raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for piece in [sent[i : i + 1] for i in range(len(sent))] if byte_by_byte else [sent]:
            raw.sendall(piece)
        got = b""
        while piece := raw.recv(65536):
            got += piece
        return got


@pytest.mark.parametrize("byte_by_byte", [False, True])
def test_publish_and_look(broker, byte_by_byte):
    topic = f"look{int(byte_by_byte)}"
    one = f"POST /pub?topic={topic} {HEADERS}Content-Length: 3\r\n\r\nabc".encode()
    last = f"GET /stats?format=json&topic={topic} {HEADERS}Connection: close\r\n\r\n".encode()
    answer = transcript(broker.http, one * 3 + last, byte_by_byte)
    assert answer.count(b"HTTP/1.1 200 OK\r\n") == 4
    found = json.loads(answer.partition(b"Connection: close\r\n\r\n")[2])
    assert found["topics"][0]["message_count"] == 3
    assert found["topics"][0]["message_bytes"] == 9


def test_every_message_on_disk_before_its_answer(tmp_path):
    with start_nsqd("nsqfast", tmp_path, "--sync-every=1", "--mem-queue-size=0") as server:
        one = f"POST /pub?topic=t {HEADERS}Content-Length: 1\r\n\r\nx".encode()
        info = f"GET /info {HEADERS}\r\n".encode()
        bad = f"POST /pub {HEADERS}Content-Length: 1\r\nConnection: close\r\n\r\nx".encode()
        answer = transcript(server.http, one * 20 + info + one + bad)
        statuses = re.findall(rb"HTTP/1.1 (\d+)", answer)
        assert statuses == [b"200"] * 22 + [b"400"]
        assert answer.index(b'"version"') > answer.rindex(b"OK", 0, answer.index(b'"version"'))
        assert topic_stats(server.http, "t")["depth"] == 21
        server.kill()
    with start_nsqd("nsqfast", tmp_path) as server:
        assert topic_stats(server.http, "t")["depth"] == 21


@pytest.mark.parametrize(
    ("target", "size", "code"),
    [
        ("/pub?topic=%zz", 101, b"MSG_TOO_BIG"),
        ("/mpub?topic=%zz", 201, b"BODY_TOO_BIG"),
        ("/config/log_level", 101, b"INVALID_VALUE"),
    ],
)
@pytest.mark.parametrize("expect", ["", "Expect: 100-continue\r\n"])
def test_too_big_comes_first(broker, target, size, code, expect):
    method = "PUT" if target.startswith("/config") else "POST"
    head = f"{method} {target} {HEADERS}{expect}Content-Length: {size}\r\n\r\n".encode()
    answer = transcript(broker.http, head)
    assert answer.startswith(b"HTTP/1.1 413 Request Entity Too Large\r\n")
    assert answer.endswith(b'{"message":"%b"}' % code)


@pytest.mark.parametrize(
    ("target", "count", "code"),
    [
        ("/pub?topic=%zz", 11, b"MSG_TOO_BIG"),
        ("/mpub?topic=chunks", 21, b"BODY_TOO_BIG"),
        ("/mpub?topic=chunks", 11, b"MSG_TOO_BIG"),
        ("/mpub?topic=%zz", 21, b"INVALID_REQUEST"),
    ],
)
def test_chunked_too_big(broker, target, count, code):
    head = (
        f"POST {target} {HEADERS}Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n".encode()
    )
    answer = transcript(broker.http, head + b"a\r\n0123456789\r\n" * count + b"0\r\n\r\n")
    assert answer.endswith(b'{"message":"%b"}' % code)


def test_topic_exists_after_a_bad_delay(broker):
    answer = post(broker.http, "/pub?topic=late&defer=x", b"x")
    assert (answer.status, answer.body) == (400, b'{"message":"INVALID_DEFER"}')
    assert topic_stats(broker.http, "late")["message_count"] == 0


def test_deferred(broker):
    post(broker.http, "/topic/create?topic=defer")
    post(broker.http, "/channel/create?topic=defer&channel=c")
    assert post(broker.http, "/pub?topic=defer&defer=3600000", b"x").body == b"OK"
    channel = topic_stats(broker.http, "defer")["channels"]["c"]
    assert (channel["deferred_count"], channel["depth"]) == (1, 0)


def test_pause_is_on_disk_before_the_answer(broker):
    post(broker.http, "/topic/create?topic=paused")
    post(broker.http, "/channel/create?topic=paused&channel=c")
    for path in ("/topic/{}?topic=paused", "/channel/{}?topic=paused&channel=c"):
        for verb, paused in (("pause", True), ("unpause", False)):
            assert post(broker.http, path.format(verb)).status == 200
            saved = json.loads((broker.folder / "nsqd.dat").read_text())
            entry = next(t for t in saved["topics"] if t["name"] == "paused")
            assert (entry if "/topic" in path else entry["channels"][0])["paused"] is paused


def test_stats_filters(broker):
    post(broker.http, "/topic/create?topic=f1")
    post(broker.http, "/topic/create?topic=f2")
    post(broker.http, "/channel/create?topic=f1&channel=only")
    unknown = stats(broker.http, topic="nobody", include_mem="false")
    assert list(unknown) == ["version", "health", "start_time", "topics", "producers"]
    assert (unknown["topics"], unknown["producers"]) == (None, None)
    found = stats(broker.http, channel="only", include_mem="0")
    assert [t["topic_name"] for t in found["topics"]] == ["f1"]
    assert stats(broker.http, topic="f2", channel="only")["topics"] == []
    without = stats(broker.http, topic="f1", include_clients="false")
    assert without["topics"][0]["channels"][0]["clients"] is None
    assert (
        stats(broker.http, topic="f1", include_clients="no")["topics"][0]["channels"][0]["clients"]
        == []
    )
    assert all(isinstance(value, int) for value in without["memory"].values())
    text = get(broker.http, "/stats?topic=nobody&format=xml").body
    assert text.endswith(b"\n\nTopics: None\n\nProducers: None\n")


def test_a_client_does_not_steer_the_terminal_of_who_reads_the_stats(tmp_path):
    steering = "".join(map(chr, [*range(0x20), *range(0x7F, 0xA0)]))
    with start_nsqd("nsqfast", tmp_path) as server, Client(server.tcp) as client:
        client.identify(hostname=f"{steering}host", user_agent=f"agent{steering}")
        client.sub("steered", "c")
        text = get(server.http, "/stats").body.decode()
    assert "\\x1b" in text
    assert text.replace("\n", "").replace("\t", "").isprintable()
    (line,) = [line for line in text.splitlines() if "agent" in line]
    assert re.search(r"^ {8}\[V2 .*host:\d+ agent", line)


def test_latency_units():
    values = [0, 1000, 1001, 1e6, 1.5e6, 1e9, 2.5e9]
    shown = format_latency({"percentiles": [{"value": value} for value in values]})
    assert shown == "0.0ns, 1000.0ns, 1.0us, 1000.0us, 1.5ms, 1000.0ms, 2.5s"


def test_access_log(broker):
    post(broker.http, "/pub?topic=quiet", b"x")
    post(broker.http, "/mpub?topic=quiet", b"x")
    get(broker.http, "/nothing?quiet=1")
    broker.wait_for_line("/nothing?quiet=1")
    lines = [line for line in broker.lines if "quiet" in line and "INFO: 404" in line]
    assert re.search(
        r"INFO: 404 GET /nothing\?quiet=1 \(127\.0\.0\.1:\d+\) [0-9.]+(ns|µs|ms|s)$", lines[0]
    )
    assert not [line for line in broker.lines if "POST /pub" in line or "POST /mpub" in line]


def test_what_the_broker_as_a_whole_can_do(broker):
    answer = request(broker.http, "OPTIONS", "*")
    assert (answer.status, answer.body) == (200, b"")


def test_redirect_body(broker):
    answer = get(broker.http, "/PING/?a=%3C&b='")
    assert (answer.status, answer.headers["Location"]) == (301, "/ping?a=%3C&b='")
    expected = b'<a href="/ping?a=%3C&amp;b=&#39;">Moved Permanently</a>.\n\n'
    assert answer.body == expected
    answer = post(broker.http, "/Pub?topic=t", b"x")
    assert (answer.status, answer.body) == (307, b"")


@pytest.mark.parametrize(
    ("word", "escaped"),
    [
        ("x%0d%0aSet-Cookie:%20a=b", "x%0D%0ASet-Cookie:%20a=b"),
        ("%ff%fe", "%FF%FE"),
        ("%e2%82%ac", "%E2%82%AC"),
        ("%22%3c%3e%7b", "%22%3C%3E%7B"),
        ("a!*'()[]~;:@&=+$,b", "a%21%2A%27%28%29%5B%5D~;:@&=+$,b"),
        ("a%3Fb", "a%3Fb"),
    ],
)
def test_a_redirect_is_escaped_again(broker, word, escaped):
    """As Go's nsqd writes it; nothing of it can end the header line."""
    answer = get(broker.http, f"/CONFIG/{word}")
    assert (answer.status, answer.headers["Location"]) == (301, f"/config/{escaped}")
    assert "Set-Cookie" not in answer.headers
    shown = escaped.replace("&", "&amp;")
    assert answer.body.decode() == f'<a href="/config/{shown}">Moved Permanently</a>.\n\n'


def test_config_addresses(broker):
    path = "/config/nsqlookupd_tcp_addresses"
    answer = request(broker.http, "PUT", path, b"null")
    assert (answer.status, answer.body) == (200, b"null")
    assert get(broker.http, path).body == b"null"
    assert request(broker.http, "PUT", path, b"[]").body == b"[]"


def test_settings_that_are_no_text(tmp_path):
    """Whoever reads one has U+FFFD for each byte that is no UTF-8, as from Go."""
    with start_nsqlookupd("nsqfast", "--broadcast-address=l\udcff") as lookupd:
        address = f"--lookupd-tcp-address=127.0.0.1:{lookupd.tcp[1]}"
        with start_nsqd("nsqfast", tmp_path, address, "--topology-zone=z\udcff") as server:
            server.wait_for_line("0 names to register")
            found = get(lookupd.http, "/nodes").json()["producers"]
            found.append(get(server.http, "/info").json())
            with Client(server.tcp) as client:
                found.append(client.identify(feature_negotiation=True))
    assert [one["topology_zone"] for one in found] == ["z\ufffd"] * 3


def test_unix_socket_ports(tmp_path):
    flags = (f"--tcp-address={tmp_path}/t.sock", f"--http-address={tmp_path}/h.sock")
    command = [*program("nsqd", "nsqfast"), f"--data-path={tmp_path}", *flags]
    with Server(command, listeners=()) as server:
        server.wait_for_line("HTTP: listening on")
        with socket.socket(socket.AF_UNIX) as raw:
            raw.connect(f"{tmp_path}/h.sock")
            raw.sendall(b"GET /info HTTP/1.0\r\n\r\n")
            got = b""
            while piece := raw.recv(65536):
                got += piece
        info = json.loads(got.partition(b"\r\n\r\n")[2])
        assert (info["http_port"], info["tcp_port"]) == (-1, -1)
        server.wait_for_line("200 GET /info (@)")


def test_what_nsqadmin_asks_every_few_seconds_is_no_line_of_the_log(tmp_path):
    polling = {"User-Agent": "nsqadmin"}
    with start_nsqd("nsqfast", tmp_path) as server:
        for target in ("/stats?format=json", "/info"):
            assert request(server.http, "GET", target, headers=polling).status == 200
        assert "200 GET " not in server.stderr
        request(server.http, "GET", "/nothing", headers=polling)
        server.wait_for_line("404 GET /nothing ")
        request(server.http, "POST", "/topic/create?topic=t", headers=polling)
        server.wait_for_line("200 POST /topic/create?topic=t ")
        assert "200 GET " not in server.stderr
        # Who reads messages may say that he is nsqadmin.
        request(server.http, "GET", "/topic/peek?topic=t", headers=polling)
        server.wait_for_line("200 GET /topic/peek?topic=t ")
        get(server.http, "/stats?format=json")
        server.wait_for_line("200 GET /stats?format=json ")


# -- POST /client/disconnect


def clients_of(broker, topic):
    return topic_stats(broker.http, topic)["channels"]["c"]["clients"]


def test_a_consumer_is_disconnected_and_what_it_had_goes_to_others(broker):
    with Client(broker.tcp) as stuck, Client(broker.tcp) as other:
        stuck.sub("held", "c", 2)
        other.mpub("held", [b"1", b"2"])
        assert {message.body for message in stuck.read_messages(2)} == {b"1", b"2"}
        other.sub("held", "c", 2)
        (address,) = (
            client["remote_address"]
            for client in clients_of(broker, "held")
            if client["in_flight_count"]
        )
        assert address == "{}:{}".format(*stuck.socket.getsockname())
        path = f"/client/disconnect?address={address}"
        assert post(broker.http, path).status == 200
        assert stuck.read_to_end() == b""
        again = other.read_messages(2)
        assert {(message.body, message.attempts) for message in again} == {(b"1", 2), (b"2", 2)}
        answer = post(broker.http, path)
        assert (answer.status, answer.json()) == (404, {"message": "CLIENT_NOT_FOUND"})


def test_clients_without_an_address_of_their_own_are_not_disconnected(tmp_path):
    path = tmp_path / "socket"
    flags = [f"--data-path={tmp_path}", f"--tcp-address={path}", "--http-address=127.0.0.1:0"]
    with (
        Server([*program("nsqd", "nsqfast"), *flags], ("HTTP",)) as server,
        socket.socket(socket.AF_UNIX) as one,
        socket.socket(socket.AF_UNIX) as two,
    ):
        for each in (one, two):
            each.connect(str(path))
            each.sendall(b"  V2SUB t c\n")
            assert each.recv(100).endswith(b"OK")
        addresses = {client["remote_address"] for client in clients_of(server, "t")}
        assert len(addresses) == 1
        answer = post(server.http, f"/client/disconnect?address={addresses.pop()}")
        assert (answer.status, answer.json()) == (409, {"message": "CLIENT_NOT_UNIQUE"})
        assert len(clients_of(server, "t")) == 2


def test_whom_to_disconnect_has_to_be_said(broker):
    assert post(broker.http, "/client/disconnect").json() == {"message": "MISSING_ARG_ADDRESS"}


def test_stats_say_who_holds_messages(broker):
    """Nothing of it while it is short: then the answer is Go's."""
    with Client(broker.tcp) as client:
        client.sub("hold", "c", 1)
        client.mpub("hold", [b"1", b"2"])
        client.read_message()
        assert "held_ms" not in clients_of(broker, "hold")[0]
        eventually(lambda: "held_ms" in clients_of(broker, "hold")[0])
        found = topic_stats(broker.http, "hold")["channels"]["c"]
        (one,) = found["clients"]
        for figure in (
            one["held_ms"],
            one["oldest_in_flight_ms"],
            found["longest_held_ms"],
            found["oldest_message_age_ms"],
        ):
            assert 1000 <= figure < 60_000
