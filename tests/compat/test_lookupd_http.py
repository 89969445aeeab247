"""nsqlookupd's HTTP API: status, headers and body of every endpoint, Go's and ours."""

import socket

import pytest

from support.lookup import Node, channels, lookup, topics
from support.server import start_nsqlookupd
from support.web import get, post, request

JSON = "application/json; charset=utf-8"
TEXT = "text/plain; charset=utf-8"
V1 = {"X-Nsq-Content-Type": "nsq; version=1.0"}


@pytest.fixture(scope="module")
def lookupd(implementation):
    with start_nsqlookupd(implementation) as server:
        yield server


def check_json(answer, body, status=200):
    assert (answer.status, answer.body) == (status, body)
    size = str(len(body))
    assert answer.headers == {**V1, "Content-Type": JSON, "Content-Length": size} | {
        name: value for name, value in answer.headers.items() if name in ("Allow", "Connection")
    }


def check_error(answer, status, code):
    check_json(answer, b'{"message":"%s"}' % code.encode(), status)


def check_empty(answer):
    assert (answer.status, answer.body) == (200, b"")
    assert answer.headers == {**V1, "Content-Length": "0"}


def test_ping(lookupd):
    answer = get(lookupd.http, "/ping")
    assert (answer.status, answer.body) == (200, b"OK")
    assert answer.headers == {"Content-Type": TEXT, "Content-Length": "2"}


def test_info(lookupd):
    answer = get(lookupd.http, "/info")
    check_json(answer, answer.body)
    assert (found := answer.json())["version"] == "1.3.0"
    assert set(found) <= {"version", "nsqfast_version"}


def test_empty_lists(implementation):
    with start_nsqlookupd(implementation) as fresh:
        check_json(get(fresh.http, "/topics"), b'{"topics":[]}')
        check_json(get(fresh.http, "/nodes"), b'{"producers":[]}')
        check_json(get(fresh.http, "/debug"), b"{}")
        check_json(get(fresh.http, "/channels?topic=t"), b'{"channels":[]}')
        post(fresh.http, "/topic/create?topic=t")
        check_json(get(fresh.http, "/lookup?topic=t"), b'{"channels":[],"producers":[]}')
        check_json(get(fresh.http, "/topics"), b'{"topics":["t"]}')
        check_json(get(fresh.http, "/debug"), b"{}")
        with Node(fresh.tcp) as node:
            node.identify()
            assert b'"tombstones":[],"topics":[]}]}' in get(fresh.http, "/nodes").body


def test_keys_in_order(lookupd, topic):
    with Node(lookupd.tcp) as node:
        node.identify()
        node.register(topic)
        names = ["remote_address", "hostname", "broadcast_address", "tcp_port", "http_port"]
        names += ["version"]
        found = get(lookupd.http, f"/lookup?topic={topic}").json()
        assert list(found) == ["channels", "producers"]
        kept = [name for name in found["producers"][0] if not name.startswith("topology_")]
        assert kept == names
        found = get(lookupd.http, "/nodes").json()["producers"][0]
        kept = [name for name in found if not name.startswith("topology_")]
        assert kept == [*names, "tombstones", "topics"]


NAMES = "%3Cb%3E&topic=other"
MISSING_AND_INVALID = [
    ("GET", "/channels", 400, "MISSING_ARG_TOPIC"),
    ("GET", "/channels?Topic=t", 400, "MISSING_ARG_TOPIC"),
    ("GET", "/lookup", 400, "MISSING_ARG_TOPIC"),
    ("GET", "/lookup?topic=nobody", 404, "TOPIC_NOT_FOUND"),
    ("GET", "/lookup?topic=a!", 404, "TOPIC_NOT_FOUND"),
    ("POST", "/topic/create", 400, "MISSING_ARG_TOPIC"),
    ("POST", "/topic/create?topic=", 400, "INVALID_ARG_TOPIC"),
    ("POST", "/topic/create?topic=a!", 400, "INVALID_ARG_TOPIC"),
    ("POST", "/topic/create?topic=" + "x" * 65, 400, "INVALID_ARG_TOPIC"),
    ("POST", "/topic/create?topic=" + NAMES, 400, "INVALID_ARG_TOPIC"),
    ("POST", "/topic/delete", 400, "MISSING_ARG_TOPIC"),
    ("POST", "/topic/tombstone", 400, "MISSING_ARG_TOPIC"),
    ("POST", "/topic/tombstone?node=a:1", 400, "MISSING_ARG_TOPIC"),
    ("POST", "/topic/tombstone?topic=t", 400, "MISSING_ARG_NODE"),
    *(
        (method, path + query, status, code)
        for method, path in (("POST", "/channel/create"), ("POST", "/channel/delete"))
        for query, status, code in (
            ("", 400, "MISSING_ARG_TOPIC"),
            ("?channel=c", 400, "MISSING_ARG_TOPIC"),
            ("?topic=a!", 400, "INVALID_ARG_TOPIC"),
            ("?topic=&channel=c", 400, "INVALID_ARG_TOPIC"),
            ("?topic=t", 400, "MISSING_ARG_CHANNEL"),
            ("?topic=t&channel=", 400, "INVALID_ARG_CHANNEL"),
            ("?topic=t&channel=c!", 400, "INVALID_ARG_CHANNEL"),
        )
    ),
    ("POST", "/channel/delete?topic=nobody&channel=c", 404, "CHANNEL_NOT_FOUND"),
]
QUERIES = ["topic=%zz", "topic=t%", "topic=t;channel=c", "a=1;b=2&topic=t"]
WITH_QUERY = [("GET", "/channels"), ("GET", "/lookup"), ("POST", "/topic/create")]
WITH_QUERY += [("POST", "/topic/delete"), ("POST", "/topic/tombstone")]
WITH_QUERY += [("POST", "/channel/create"), ("POST", "/channel/delete")]


@pytest.mark.parametrize(("method", "target", "status", "code"), MISSING_AND_INVALID)
def test_errors(lookupd, method, target, status, code):
    check_error(request(lookupd.http, method, target), status, code)


@pytest.mark.parametrize(("method", "path"), WITH_QUERY)
@pytest.mark.parametrize("query", QUERIES)
def test_broken_queries(lookupd, method, path, query):
    check_error(request(lookupd.http, method, f"{path}?{query}"), 400, "INVALID_REQUEST")


def test_parameters_of_a_form_do_not_count(lookupd):
    answer = post(lookupd.http, "/topic/create", b"topic=t")
    check_error(answer, 400, "MISSING_ARG_TOPIC")


@pytest.mark.parametrize("name", ["", "a!", "nobody", "x" * 65])
def test_channels_of_nothing(lookupd, name):
    check_json(get(lookupd.http, f"/channels?topic={name}"), b'{"channels":[]}')


def test_topics_and_channels(lookupd, topic):
    check_empty(post(lookupd.http, f"/topic/create?topic={topic}"))
    check_empty(post(lookupd.http, f"/topic/create?topic={topic}&topic=second-{topic}"))
    assert topic in topics(lookupd.http)
    assert f"second-{topic}" not in topics(lookupd.http)
    assert lookup(lookupd.http, topic) == {"channels": [], "producers": []}
    other = topic + "-b"
    check_empty(post(lookupd.http, f"/channel/create?topic={other}&channel=d"))
    check_empty(post(lookupd.http, f"/channel/create?topic={other}&channel=c%23ephemeral"))
    check_empty(post(lookupd.http, f"/channel/create?topic={other}&channel=d"))
    assert other in topics(lookupd.http)
    assert lookup(lookupd.http, other) == {"channels": ["c#ephemeral", "d"], "producers": []}
    check_empty(post(lookupd.http, f"/channel/delete?topic={other}&channel=d"))
    assert channels(lookupd.http, other) == ["c#ephemeral"]
    check_error(
        post(lookupd.http, f"/channel/delete?topic={other}&channel=d"), 404, "CHANNEL_NOT_FOUND"
    )
    check_empty(post(lookupd.http, f"/topic/delete?topic={other}"))
    check_empty(post(lookupd.http, f"/topic/delete?topic={other}"))
    assert other not in topics(lookupd.http)
    assert channels(lookupd.http, other) == []
    check_empty(post(lookupd.http, f"/topic/tombstone?topic={other}&node="))
    check_empty(post(lookupd.http, f"/topic/tombstone?topic={topic}&node=nobody:1"))


def test_what_html_would_read_is_escaped(lookupd):
    with Node(lookupd.tcp) as node:
        node.identify(version="<&>\u2028")
        assert b'"version":"\\u003c\\u0026\\u003e\\u2028"' in get(lookupd.http, "/nodes").body


# ---- paths and methods


@pytest.mark.parametrize("path", ["/", "/nothing", "/topic", "/topics/x", "/put", "/debug/pprof/x"])
def test_not_found(lookupd, path):
    check_error(get(lookupd.http, path), 404, "NOT_FOUND")


GETS = ["/ping", "/info", "/topics", "/channels", "/lookup", "/nodes", "/debug"]
POSTS = ["/topic/create", "/topic/delete", "/topic/tombstone", "/channel/create", "/channel/delete"]


@pytest.mark.parametrize(
    ("method", "path", "allow"),
    [
        *(("POST", path, "GET, OPTIONS") for path in GETS),
        *(("GET", path, "OPTIONS, POST") for path in POSTS),
        ("PUT", "/topics", "GET, OPTIONS"),
        ("DELETE", "/topic/delete", "OPTIONS, POST"),
    ],
)
def test_method_not_allowed(lookupd, method, path, allow):
    answer = request(lookupd.http, method, path)
    check_error(answer, 405, "METHOD_NOT_ALLOWED")
    assert answer.headers["Allow"] == allow


def test_head_and_options(lookupd):
    answer = request(lookupd.http, "HEAD", "/topics")
    assert (answer.status, answer.body) == (405, b"")
    answer = request(lookupd.http, "OPTIONS", "/topic/create")
    assert (answer.status, answer.body) == (200, b"")
    assert answer.headers["Allow"] == "OPTIONS, POST"


@pytest.mark.parametrize(
    ("method", "path", "statuses", "location"),
    [
        ("GET", "/topics/", {301}, "/topics"),
        ("GET", "/LOOKUP?topic=t", {301}, "/lookup?topic=t"),
        ("GET", "//nodes", {301}, "/nodes"),
        ("GET", "/a/../nodes", {301}, "/nodes"),
        ("POST", "/topic/create/?topic=t", {307, 308}, "/topic/create?topic=t"),
        ("POST", "/Channel/Delete?topic=t", {307, 308}, "/channel/delete?topic=t"),
    ],
)
def test_redirects(lookupd, method, path, statuses, location):
    answer = request(lookupd.http, method, path)
    assert answer.status in statuses
    assert answer.headers["Location"] == location


def test_raw_answer(lookupd):
    with socket.create_connection(lookupd.http, timeout=10) as raw:
        raw.sendall(b"GET /info HTTP/1.1\r\nHost: localhost\r\n\r\n")
        answer = b""
        while not answer.endswith(b"}"):
            piece = raw.recv(65536)
            assert piece, answer
            answer += piece
    lines = answer.split(b"\r\n")
    assert lines[0] == b"HTTP/1.1 200 OK"
    names = sorted(line.partition(b":")[0] for line in lines[1:-2])
    assert names == [b"Content-Length", b"Content-Type", b"Date", b"X-Nsq-Content-Type"]
