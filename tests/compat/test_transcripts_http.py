"""The HTTP API: status, headers and body of every endpoint; /stats after a scripted scenario."""

import socket

import pytest

from support.server import LOG_MODES
from support.web import get, post, request, stats, topic_stats
from support.wire import encode_body, encode_messages

NSQD_FLAGS = ("--node-id=5", "--statsd-prefix=p.%s", "--log-level=info")

JSON = "application/json; charset=utf-8"
TEXT = "text/plain; charset=utf-8"
V1 = {"X-Nsq-Content-Type": "nsq; version=1.0"}


def check_error(answer, status, code):
    assert (answer.status, answer.body) == (status, b'{"message":"%s"}' % code.encode())
    size = str(len(answer.body))
    assert answer.headers == {**V1, "Content-Type": JSON, "Content-Length": size} | {
        name: value for name, value in answer.headers.items() if name in ("Allow", "Connection")
    }


def check_text(answer, body):
    assert (answer.status, answer.body) == (200, body)
    expected = {**V1, "Content-Length": str(len(body))}
    if body:
        expected["Content-Type"] = TEXT
    assert answer.headers == expected


def test_ping(broker):
    answer = get(broker.http, "/ping")
    assert (answer.status, answer.body) == (200, b"OK")
    assert answer.headers == {"Content-Type": TEXT, "Content-Length": "2"}


def test_info(broker, implementation):
    answer = get(broker.http, "/info")
    assert (answer.status, answer.headers["Content-Type"]) == (200, JSON)
    info = answer.json()
    names = ["version", "broadcast_address", "hostname", "http_port", "tcp_port", "start_time"]
    names += ["max_heartbeat_interval", "max_output_buffer_size", "max_output_buffer_timeout"]
    names += ["max_deflate_level"]
    ours = [] if implementation == "go" else ["nsqfast_version", "draining"]
    assert [name for name in info if not name.startswith("topology_")] == names + ours
    assert info["broadcast_address"] == "127.0.0.1"
    assert info["hostname"] == socket.gethostname()
    assert (info["tcp_port"], info["http_port"]) == (broker.tcp[1], broker.http[1])
    assert info["max_heartbeat_interval"] == 60_000_000_000
    assert info["max_output_buffer_timeout"] == 30_000_000_000


@pytest.mark.parametrize(
    "path", ["/", "/nothing", "/pub/x", "/config/", "/put", "/debug/pprof/x/y"]
)
def test_not_found(broker, path):
    check_error(get(broker.http, path), 404, "NOT_FOUND")


@pytest.mark.parametrize(
    ("method", "path", "allow"),
    [
        ("GET", "/pub?topic=t", "OPTIONS, POST"),
        ("PUT", "/mpub", "OPTIONS, POST"),
        ("POST", "/stats", "GET, OPTIONS"),
        ("POST", "/ping", "GET, OPTIONS"),
        ("DELETE", "/info", "GET, OPTIONS"),
        ("GET", "/topic/create?topic=t", "OPTIONS, POST"),
        ("GET", "/channel/pause", "OPTIONS, POST"),
        ("POST", "/config/log_level", "GET, OPTIONS, PUT"),
    ],
)
def test_method_not_allowed(broker, method, path, allow):
    answer = request(broker.http, method, path)
    check_error(answer, 405, "METHOD_NOT_ALLOWED")
    assert answer.headers["Allow"] == allow


def test_head_is_not_allowed(broker):
    answer = request(broker.http, "HEAD", "/ping")
    assert (answer.status, answer.body) == (405, b"")


def test_options(broker):
    answer = request(broker.http, "OPTIONS", "/pub")
    assert (answer.status, answer.body) == (200, b"")
    assert answer.headers["Allow"] == "OPTIONS, POST"


@pytest.mark.parametrize(
    ("method", "path", "statuses", "location"),
    [
        ("GET", "/ping/", {301}, "/ping"),
        ("GET", "/STATS?format=json", {301}, "/stats?format=json"),
        ("POST", "/topic/create/?topic=t", {307, 308}, "/topic/create?topic=t"),
        ("GET", "//ping", {301}, "/ping"),
    ],
)
def test_redirects(broker, method, path, statuses, location):
    answer = request(broker.http, method, path)
    assert answer.status in statuses
    assert answer.headers["Location"] == location


PUB_ERRORS = [
    ("/pub", b"", 400, "MSG_EMPTY"),
    ("/pub?topic=t", b"", 400, "MSG_EMPTY"),
    ("/pub", b"x", 400, "MISSING_ARG_TOPIC"),
    ("/pub?topics=t", b"x", 400, "MISSING_ARG_TOPIC"),
    ("/pub?topic=", b"x", 400, "INVALID_TOPIC"),
    ("/pub?topic=a+b", b"x", 400, "INVALID_TOPIC"),
    ("/pub?topic=a%3Ab", b"x", 400, "INVALID_TOPIC"),
    ("/pub?topic=" + "x" * 65, b"x", 400, "INVALID_TOPIC"),
    ("/pub?topic=%zz", b"x", 400, "INVALID_REQUEST"),
    ("/pub?topic=t;x=1", b"x", 400, "INVALID_REQUEST"),
    ("/pub?topic=http-d&defer=", b"x", 400, "INVALID_DEFER"),
    ("/pub?topic=http-d&defer=1.5", b"x", 400, "INVALID_DEFER"),
    ("/pub?topic=http-d&defer=-1", b"x", 400, "INVALID_DEFER"),
    ("/pub?topic=http-d&defer=3600001", b"x", 400, "INVALID_DEFER"),
    ("/pub?topic=http-d&defer=99999999999999999999", b"x", 400, "INVALID_DEFER"),
    ("/mpub", b"x", 400, "MISSING_ARG_TOPIC"),
    ("/mpub", b"", 400, "MISSING_ARG_TOPIC"),
    ("/mpub?topic=a!", b"x", 400, "INVALID_TOPIC"),
    ("/mpub?topic=%", b"x", 400, "INVALID_REQUEST"),
    ("/mpub?topic=http-m&binary=true", b"", 413, "BAD_BODY"),
    ("/mpub?topic=http-m&binary=1", b"\0\0\0\0", 413, "BAD_BODY"),
    ("/mpub?topic=http-m&binary=1", b"\0\0\0\1\0\0\0\0", 413, "BAD_MESSAGE"),
    ("/mpub?topic=http-m&binary=1", b"\0\0\0\1\0\0\0\5abc", 413, "BAD_MESSAGE"),
    ("/mpub?topic=http-m&binary=", b"text", 413, "BAD_BODY"),
    ("/mpub?topic=http-m&binary=TRUE", b"text", 413, "BAD_BODY"),
]


@pytest.mark.parametrize(("target", "body", "status", "code"), PUB_ERRORS)
def test_publish_errors(broker, target, body, status, code):
    check_error(post(broker.http, target, body), status, code)


def test_message_too_big(broker):
    # Both answers come from the announced length alone; the body need not follow.
    for path, length, code in (
        ("/pub", 1048577, "MSG_TOO_BIG"),
        ("/mpub", 5242881, "BODY_TOO_BIG"),
    ):
        with socket.create_connection(broker.http, timeout=10) as raw:
            head = f"POST {path}?topic=t HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\n"
            raw.sendall(head.encode())
            answer = b""
            while code.encode() not in answer:
                piece = raw.recv(65536)
                assert piece, answer
                answer += piece
            assert answer.startswith(b"HTTP/1.1 413 ")


def test_raw_answer(broker):
    with socket.create_connection(broker.http, timeout=10) as raw:
        head = b"POST /pub?topic=raw#ephemeral HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\n\r\nx"
        raw.sendall(head.replace(b"#", b"%23"))
        answer = b""
        while not answer.endswith(b"\r\n\r\nOK"):
            piece = raw.recv(65536)
            assert piece, answer
            answer += piece
        lines = answer.split(b"\r\n")
        assert lines[0] == b"HTTP/1.1 200 OK"
        names = sorted(line.partition(b":")[0] for line in lines[1:-2])
        assert names == [b"Content-Length", b"Content-Type", b"Date", b"X-Nsq-Content-Type"]


def test_publish(broker, client, topic):
    client.sub(topic, "c", 100)
    check_text(post(broker.http, f"/pub?topic={topic}", b"one"), b"OK")
    assert client.read_message().body == b"one"
    check_text(post(broker.http, f"/pub?topic={topic}&topic=other", b"\0\xff\n"), b"OK")
    assert client.read_message().body == b"\0\xff\n"
    check_text(post(broker.http, f"/pub?topic={topic}&defer=%2B0", b"now"), b"OK")
    assert client.read_message().body == b"now"


TEXTS = [
    (b"", []),
    (b"\n\n", []),
    (b"a\nb\n", [b"a", b"b"]),
    (b"a\n\nb", [b"a", b"b"]),
    (b"a\r\n b \r\n", [b"a\r", b" b \r"]),
]


@pytest.mark.parametrize(("body", "messages"), TEXTS)
@pytest.mark.parametrize("binary", ["", "&binary=false", "&binary=0"])
def test_publish_lines(broker, client, topic, body, messages, binary):
    client.sub(topic, "c", 100)
    check_text(post(broker.http, f"/mpub?topic={topic}{binary}", body), b"OK")
    assert [m.body for m in client.read_messages(len(messages))] == messages
    client.barrier()


@pytest.mark.parametrize("binary", ["true", "1"])
@pytest.mark.parametrize("tail", [b"", b"ignored"])
def test_publish_binary(broker, client, topic, binary, tail):
    client.sub(topic, "c", 100)
    body = encode_messages([b"a\n", b"\0"]) + tail
    check_text(post(broker.http, f"/mpub?topic={topic}&binary={binary}", body), b"OK")
    assert [m.body for m in client.read_messages(2)] == [b"a\n", b"\0"]


@pytest.mark.parametrize("path", ["/pub", "/mpub"])
def test_chunked_body(broker, client, topic, path):
    client.sub(topic, "c", 100)
    with socket.create_connection(broker.http, timeout=10) as raw:
        raw.sendall(
            f"POST {path}?topic={topic} HTTP/1.1\r\nHost: localhost\r\n"
            "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n".encode()
        )
        assert client.read_message().body == b"abcde"


def test_pipelining_and_old_http(broker, topic):
    one = f"POST /pub?topic={topic} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\n\r\nx".encode()
    last = f"POST /pub?topic={topic} HTTP/1.0\r\nContent-Length: 1\r\n\r\nx".encode()
    with socket.create_connection(broker.http, timeout=10) as raw:
        raw.sendall(one * 5 + last)
        answer = b""
        while piece := raw.recv(65536):
            answer += piece
    assert answer.count(b" 200 OK\r\n") == 6
    assert topic_stats(broker.http, topic)["depth"] == 6


def test_topic_and_channel_life(broker, topic):
    create = f"/topic/create?topic={topic}"
    for _ in range(2):
        check_text(post(broker.http, create), b"")
    channel = f"topic={topic}&channel=c"
    for _ in range(2):
        check_text(post(broker.http, f"/channel/create?{channel}"), b"")
    for verb in ("pause", "pause", "unpause", "unpause", "empty", "delete"):
        check_text(post(broker.http, f"/channel/{verb}?{channel}", b"body is ignored"), b"")
    for verb in ("pause", "unpause", "empty", "delete"):
        check_text(post(broker.http, f"/topic/{verb}?topic={topic}"), b"")
    check_error(post(broker.http, f"/topic/delete?topic={topic}"), 404, "TOPIC_NOT_FOUND")


TOPIC_ERRORS = [
    ("create", "", "MISSING_ARG_TOPIC", "INVALID_TOPIC"),
    ("delete", "", "MISSING_ARG_TOPIC", "TOPIC_NOT_FOUND"),
    ("empty", "", "MISSING_ARG_TOPIC", "INVALID_TOPIC"),
    ("pause", "", "MISSING_ARG_TOPIC", "TOPIC_NOT_FOUND"),
    ("unpause", "", "MISSING_ARG_TOPIC", "TOPIC_NOT_FOUND"),
]


@pytest.mark.parametrize(("verb", "query", "missing", "bad"), TOPIC_ERRORS)
def test_topic_errors(broker, verb, query, missing, bad):
    path = f"/topic/{verb}"
    check_error(post(broker.http, path + "?topic=%zz"), 400, "INVALID_REQUEST")
    check_error(post(broker.http, path + query), 400, missing)
    status = 404 if bad == "TOPIC_NOT_FOUND" else 400
    check_error(post(broker.http, path + "?topic=a!"), status, bad)
    if verb != "create":
        check_error(post(broker.http, path + "?topic=nobody"), 404, "TOPIC_NOT_FOUND")


@pytest.mark.parametrize("verb", ["create", "delete", "empty", "pause", "unpause"])
def test_channel_errors(broker, topic, verb):
    path = f"/channel/{verb}"
    post(broker.http, f"/topic/create?topic={topic}")
    check_error(post(broker.http, path + "?topic=%zz"), 400, "INVALID_REQUEST")
    check_error(post(broker.http, path), 400, "MISSING_ARG_TOPIC")
    check_error(post(broker.http, path + "?topic=a!"), 400, "INVALID_ARG_TOPIC")
    check_error(post(broker.http, path + "?topic=t"), 400, "MISSING_ARG_CHANNEL")
    check_error(post(broker.http, path + "?topic=t&channel=c!"), 400, "INVALID_ARG_CHANNEL")
    check_error(post(broker.http, path + "?topic=nobody&channel=c"), 404, "TOPIC_NOT_FOUND")
    if verb != "create":
        target = f"{path}?topic={topic}&channel=nobody"
        check_error(post(broker.http, target), 404, "CHANNEL_NOT_FOUND")


CONFIG = [
    ("id", b"5"),
    ("mem_queue_size", b"10000"),
    ("msg_timeout", b"60000000000"),
    ("sync_timeout", b"2000000000"),
    ("log_level", b"2"),
    ("tls_min_version", None),
    ("tls_required", b"0"),
    ("nsqlookupd_tcp_addresses", b"[]"),
    ("auth_http_addresses", b"[]"),
    ("e2e_processing_latency_percentiles", b"[]"),
    ("snappy", None),
    ("max_rdy_count", b"2500"),
    ("max_body_size", b"5242880"),
]


@pytest.mark.parametrize(("name", "value"), CONFIG)
def test_config_values(broker, name, value):
    answer = get(broker.http, f"/config/{name}")
    assert (answer.status, answer.headers["Content-Type"]) == (200, JSON)
    assert value is None or answer.body == value


def test_config_strings(broker):
    check_text(get(broker.http, "/config/broadcast_address"), b"127.0.0.1")
    check_text(get(broker.http, "/config/tls_cert"), b"")
    prefix = get(broker.http, "/config/statsd_prefix")
    check_text(prefix, b"p.127_0_0_1_%d." % broker.http[1])


@pytest.mark.parametrize("name", ["nothing", "verbose", "config", "node_id", "Snappy"])
def test_config_unknown(broker, name):
    check_error(get(broker.http, f"/config/{name}"), 400, "INVALID_OPTION")


def test_config_log_level(broker):
    try:
        for word, number in ((b"ERROR", b"4"), (b"debug", b"1"), (b"Fatal", b"5")):
            answer = request(broker.http, "PUT", "/config/log_level", word)
            assert (answer.status, answer.body) == (200, number)
    finally:
        assert request(broker.http, "PUT", "/config/log_level", b"info").body == b"2"


@pytest.mark.parametrize(
    ("name", "body", "status", "code"),
    [
        ("log_level", b"loud", 400, "INVALID_VALUE"),
        ("log_level", b'"info"', 400, "INVALID_VALUE"),
        ("log_level", b"info\n", 400, "INVALID_VALUE"),
        ("log_level", b"", 413, "INVALID_VALUE"),
        ("mem_queue_size", b"5", 400, "INVALID_OPTION"),
        ("nothing", b"5", 400, "INVALID_OPTION"),
        ("nsqlookupd_tcp_addresses", b"x", 400, "INVALID_VALUE"),
        ("nsqlookupd_tcp_addresses", b"[1]", 400, "INVALID_VALUE"),
    ],
)
def test_config_refused(broker, name, body, status, code):
    check_error(request(broker.http, "PUT", f"/config/{name}", body), status, code)


CLIENT_KEYS = (
    "client_id hostname version remote_address state ready_count in_flight_count message_count "
    "finish_count requeue_count connect_ts sample_rate deflate snappy user_agent tls "
    "tls_cipher_suite tls_version tls_negotiated_protocol tls_negotiated_protocol_is_mutual"
).split()
CHANNEL_KEYS = (
    "channel_name depth backend_depth in_flight_count deferred_count message_count requeue_count "
    "timeout_count client_count clients paused e2e_processing_latency"
).split()
TOPIC_KEYS = (
    "topic_name channels depth backend_depth message_count message_bytes paused "
    "e2e_processing_latency"
).split()


AGES = {"oldest_message_age_ms", "longest_held_ms", "held_ms", "oldest_in_flight_ms"}


def known(keys):
    """Without the keys of topology, which came after the release, and without ages, which Go's nsqd does not tell."""
    return [
        key
        for key in keys
        if not key.startswith("topology_")
        and key not in AGES
        and key not in ("zone_local_msg_count", "region_local_msg_count", "global_msg_count")
    ]


@pytest.fixture
def scenario(broker, connect, topic):
    """One message in flight, one deferred, one finished; a producer; a second, empty channel."""
    consumer, producer = connect(), connect()
    consumer.identify(client_id="cons", hostname="conshost", user_agent="ua/1")
    producer.identify(client_id="prod", hostname="prodhost", user_agent="<&>/2")
    consumer.sub(topic, "ch1", 2)
    producer.mpub(topic, [b"abc", b"de", b"f"])
    first, second = consumer.read_messages(2)
    consumer.fin(first)
    third = consumer.read_message()
    consumer.command("REQ", second.id, "60000")
    consumer.barrier()
    post(broker.http, f"/channel/create?topic={topic}&channel=ch0")
    assert third.body
    return topic


def test_stats_of_a_scenario(broker, scenario, implementation):
    whole = stats(broker.http, topic=scenario)
    # Of a log that Go's does not have.
    log = ["commit_log"] if implementation in LOG_MODES else []
    wanted = ["version", "health", "start_time", "topics", "memory", *log, "producers"]
    assert list(whole) == wanted
    assert (whole["health"], len(whole["topics"])) == ("OK", 1)
    found = whole["topics"][0]
    assert known(found) == TOPIC_KEYS
    assert (found["message_count"], found["message_bytes"], found["depth"]) == (3, 6, 0)
    assert found["paused"] is False
    assert found["e2e_processing_latency"] == {"count": 0, "percentiles": None}
    names = [channel["channel_name"] for channel in found["channels"]]
    assert names == ["ch0", "ch1"]
    channel = found["channels"][1]
    assert known(channel) == CHANNEL_KEYS
    counters = {name: channel[name] for name in CHANNEL_KEYS[1:9]}
    assert counters == {
        "depth": 0,
        "backend_depth": 0,
        "in_flight_count": 1,
        "deferred_count": 1,
        "message_count": 3,
        "requeue_count": 1,
        "timeout_count": 0,
        "client_count": 1,
    }
    check_consumer(channel["clients"][0])
    assert found["channels"][0]["clients"] in ([], None)


def check_consumer(client):
    assert [k for k in known(client) if k != "pub_counts"] == CLIENT_KEYS
    assert client["client_id"] == "cons"
    assert client["hostname"] == "conshost"
    assert client["user_agent"] == "ua/1"
    assert client["version"] == "V2"
    assert client["remote_address"].startswith("127.0.0.1:")
    assert (client["state"], client["ready_count"], client["in_flight_count"]) == (3, 2, 1)
    counts = ("message_count", "finish_count", "requeue_count")
    assert [client[name] for name in counts] == [3, 1, 1]
    assert client["tls"] is False


def test_stats_producers(broker, scenario):
    producers = stats(broker.http, topic=scenario)["producers"]
    producer = next(p for p in producers if p["client_id"] == "prod")
    assert producer["pub_counts"] == [{"topic": scenario, "count": 3}]
    assert producer["user_agent"] == "<&>/2"
    raw = get(broker.http, f"/stats?format=json&topic={scenario}").body
    assert b"\\u003c\\u0026\\u003e/2" in raw


def test_stats_filters(broker, scenario):
    unknown = stats(broker.http, topic="nobody")
    assert (unknown["topics"], unknown["producers"]) == (None, None)
    one = stats(broker.http, channel="ch0")
    assert [t["topic_name"] for t in one["topics"]].count(scenario) == 1
    assert {c["channel_name"] for t in one["topics"] for c in t["channels"]} == {"ch0"}
    assert stats(broker.http, topic=scenario, channel="nobody")["topics"] == []
    for value in ("false", "0"):
        slim = stats(broker.http, topic=scenario, include_clients=value, include_mem=value)
        assert "memory" not in slim
        assert slim["producers"] is None
        channel = slim["topics"][0]["channels"][1]
        assert (channel["clients"], channel["client_count"]) == (None, 1)
    full = stats(broker.http, topic=scenario, include_clients="no", include_mem="")
    assert full["topics"][0]["channels"][1]["clients"]
    assert full["memory"]


def test_stats_memory_keys(broker):
    memory = stats(broker.http)["memory"]
    assert (
        list(memory)
        == (
            "heap_objects heap_idle_bytes heap_in_use_bytes heap_released_bytes gc_pause_usec_100 "
            "gc_pause_usec_99 gc_pause_usec_95 next_gc_bytes gc_total_runs"
        ).split()
    )
    assert all(isinstance(value, int) for value in memory.values())


def test_stats_text(broker, scenario):
    answer = get(broker.http, f"/stats?topic={scenario}")
    assert (answer.status, answer.headers["Content-Type"]) == (200, TEXT)
    lines = answer.body.decode().split("\n")
    assert lines[0].startswith("nsqd v")
    assert lines[1].startswith("start_time ")
    assert lines[2].startswith("uptime ")
    assert lines[3:5] == ["", "Health: OK"]
    assert "Memory:" in lines
    assert f"   {'heap_objects':25}\t" in answer.body.decode()
    assert f"   [{scenario:15}] depth: 0     be-depth: 0     msgs: 3        e2e%: " in lines
    channel = f"      [{'ch1':25}] depth: 0     be-depth: 0     inflt: 1    def: 1    re-q: 1     "
    assert channel + "timeout: 0     msgs: 3        e2e%: " in lines
    assert any(line.startswith("        [V2 conshost:") for line in lines)
    assert any(line.startswith("   [V2 prodhost:") for line in lines)


def test_stats_text_paused_and_empty(broker, topic):
    post(broker.http, f"/topic/create?topic={topic}")
    post(broker.http, f"/topic/pause?topic={topic}")
    text = get(broker.http, f"/stats?topic={topic}&include_clients=false").body.decode()
    assert f"\nTopics:\n*P [{topic:15}] depth: 0 " in text
    assert text.endswith("\nProducers: None\n")
    text = get(broker.http, "/stats?topic=nobody").body.decode()
    assert "\nTopics: None\n" in text


def test_publish_counts_at_once(broker, connect, topic):
    post(broker.http, f"/channel/create?topic={topic}&channel=c")
    post(broker.http, f"/topic/create?topic={topic}")
    post(broker.http, f"/channel/create?topic={topic}&channel=c")
    for count in range(1, 20):
        body = b"POST" if count % 2 else encode_body(b"x")
        post(broker.http, f"/pub?topic={topic}", body)
        assert topic_stats(broker.http, topic)["message_count"] == count
