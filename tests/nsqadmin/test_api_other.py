"""/config, /ping, /render, /api/graphite, compression, and paths that nobody serves."""

import gzip
import json
import threading
import zlib
from http.server import BaseHTTPRequestHandler

import pytest

from support.admin import LiveCluster, start_nsqadmin, text_of, wait_until
from support.fake_stats import FakeStats, stats, topic
from support.strict_http import StrictHTTPServer
from support.web import get, request

pytestmark = [pytest.mark.go, pytest.mark.slow]

OPTIONS = """
    log_level log_prefix http_address base_path dev_static_dir graphite_url proxy_graphite statsd_prefix
    statsd_counter_format statsd_gauge_format statsd_interval nsqlookupd_http_addresses nsqd_http_addresses
    http_client_connect_timeout http_client_request_timeout http_client_tls_insecure_skip_verify
    http_client_tls_root_ca_file http_client_tls_cert http_client_tls_key allow_config_from_cidr
    notification_http_endpoint acl_http_header admin_users lookupd_http_address nothing verbose config Log_level
""".split()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with LiveCluster(tmp_path_factory.mktemp("other"), ["nsqfast"], ["nsqfast"]) as made:
        made.make("t", "c")
        yield made


@pytest.fixture(scope="module")
def pair(cluster):
    flags = ("--admin-user=ann", "--statsd-interval=90s", "--base-path=x//y/../z/")
    with cluster.admins(*flags) as made:
        yield made


def same(both):
    """Status, body and type are the same; the answer."""
    ours, theirs = both
    assert (ours.status, ours.body) == (theirs.status, theirs.body)
    if ours.body:
        assert ours.headers["Content-Type"] == theirs.headers["Content-Type"]
    return ours


# ---- /config and /ping


def test_ping(pair):
    assert same(pair.get("/x/z/ping")).body == b"OK"


@pytest.mark.parametrize("name", OPTIONS)
def test_reading_an_option(pair, name):
    same(pair.get(f"/x/z/config/{name}"))


def test_base_path_is_cleaned(pair):
    assert same(pair.get("/x/z/config/base_path")).body == b"/x/z"


PUTS = [
    ("log_level", b"debug"),
    ("log_level", b"WARN"),
    ("log_level", b"loud"),
    ("log_level", b" info"),
    ("log_level", b""),
    ("log_level", b"2"),
    ("http_address", b"127.0.0.1:1"),
    ("nothing", b"x"),
    ("nothing", b""),
    ("nsqlookupd_http_addresses", b"x"),
    ("nsqlookupd_http_addresses", b"[3]"),
    ("nsqlookupd_http_addresses", b"{}"),
    ("nsqlookupd_http_addresses", b'"127.0.0.1:4161"'),
    ("nsqlookupd_http_addresses", b'["127.0.0.1:1"] x'),
    ("log_level", b"x" * (1 << 20)),
]


@pytest.mark.parametrize(("name", "body"), PUTS, ids=lambda one: repr(one[:20]))
def test_setting_an_option(pair, name, body):
    same(pair.ask("PUT", f"/x/z/config/{name}", body))


def test_a_value_that_is_too_large(pair):
    """Go does not read the rest of it, so our answer is looked at alone."""
    answer = request(pair.ours.http, "PUT", "/x/z/config/log_level", b"x" * ((1 << 20) + 1))
    assert (answer.status, answer.body) == (413, b'{"message":"INVALID_VALUE"}')


def test_new_addresses_count_at_once(cluster):
    with cluster.admins() as pair:
        known = [text_of(one.http) for one in cluster.lookupds]
        assert same(pair.get("/api/topics")).json()["topics"] == ["t"]
        for addresses in (["127.0.0.1:1"], [*known, "127.0.0.1:1"], [], None, known):
            body = json.dumps(addresses).encode()
            answers = pair.ask("PUT", "/config/nsqlookupd_http_addresses", body)
            if addresses is not None:
                assert same(answers).json() == addresses
            ours, theirs = pair.get("/api/topics")
            assert (ours.status, ours.body) == (theirs.status, theirs.body)
        assert ours.status == 200


@pytest.mark.soak
def test_only_these_networks_may_configure(cluster):
    for network, status in (("127.0.0.0/8", 200), ("10.0.0.0/8", 403), ("", 200), ("::1/128", 403)):
        with cluster.admins(f"--allow-config-from-cidr={network}") as pair:
            assert same(pair.get("/config/log_level")).status == status
            assert same(pair.ask("PUT", "/config/log_level", b"info")).status == status
            assert same(pair.get("/ping")).status == 200


def test_a_change_is_noted(cluster):
    with cluster.admin("nsqfast") as admin:
        request(admin.http, "PUT", "/config/log_level", b"warn")
        request(admin.http, "PUT", "/config/log_level", b"info")
        admin.wait_for_line("/config/log_level was set")


# ---- compression


@pytest.mark.parametrize(
    "accepted",
    [
        "gzip",
        "deflate",
        "br, deflate, gzip",
        "gzip;q=0, deflate",
        "identity",
        "",
        "*",
        "GZIP",
        " gzip ,x",
    ],
)
def test_compression(pair, accepted):
    """Also of errors, and of what is not JSON."""
    for target in ("/x/z/api/nodes", "/x/z/nothing", "/x/z/config/log_prefix"):
        ours, theirs = pair.ask("GET", target, None, {"Accept-Encoding": accepted})
        assert ours.status == theirs.status
        assert ours.headers.get("Content-Encoding") == theirs.headers.get("Content-Encoding")
        assert unpacked(ours) == unpacked(theirs)
        if ours.headers.get("Content-Encoding"):
            assert "Accept-Encoding" in ours.headers["Vary"]


def unpacked(answer):
    encoding = answer.headers.get("Content-Encoding")
    if encoding == "gzip":
        return gzip.decompress(answer.body)
    if encoding == "deflate":
        return zlib.decompress(answer.body, wbits=-15)
    return answer.body


def test_a_large_answer_is_compressed_whole():
    topics = [topic(f"topic-{number:06}") for number in range(20_000)]
    with (
        FakeStats(lambda _path, _query: stats(*topics)) as fake,
        start_nsqadmin("nsqfast", f"--nsqd-http-address={fake.address}") as admin,
    ):
        answer = request(admin.http, "GET", "/api/topics", None, {"Accept-Encoding": "gzip"})
        assert len(answer.body) < 100_000
        assert len(json.loads(gzip.decompress(answer.body))["topics"]) == 20_000


# ---- what nobody serves


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS"])
def test_methods(pair, method):
    for path in (
        "ping",
        "api/nodes",
        "config/log_level",
        "api/counter",
        "api/graphite",
        "api/none",
    ):
        ours, theirs = pair.ask(method, f"/x/z/{path}")
        if ours.status in (404, 405) or method == "OPTIONS":
            assert (ours.status, ours.body) == (theirs.status, theirs.body), path
            assert ours.headers.get("Allow") == theirs.headers.get("Allow"), path
        else:
            assert ours.status == theirs.status, path


def test_a_slash_too_many(pair):
    for path in ("api/topics", "api/topics/t", "api/topics/t/c", "api/nodes", "ping"):
        ours, theirs = pair.get(f"/x/z/{path}/?a=b")
        assert (ours.status, ours.headers["Location"]) == (301, theirs.headers["Location"])


# ---- Graphite


class FakeGraphite:
    """Answers /render with `body`; `asked` are the request lines and headers that came."""

    def __init__(self):
        self.body, self.status = b"[]", 200
        self.asked = []
        fake = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                fake.asked.append((self.path, dict(self.headers)))
                self.send_response(fake.status)
                self.send_header("Content-Type", "image/png")
                self.send_header("Content-Length", str(len(fake.body)))
                self.end_headers()
                self.wfile.write(fake.body)

            def log_message(self, *_):
                pass

        self._server = StrictHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=[0.01], daemon=True)
        self._thread.start()
        self.port = self._server.server_address[1]

    def close(self):
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture(scope="module")
def graphite():
    fake = FakeGraphite()
    yield fake
    fake.close()


@pytest.fixture(scope="module")
def drawing(cluster, graphite):
    url = f"http://joe:secret@127.0.0.1:{graphite.port}"
    with cluster.admins(
        f"--graphite-url={url}", "--proxy-graphite", "--statsd-interval=30s"
    ) as made:
        yield made


@pytest.mark.parametrize("number", [617.1, 0, -1, 1e-9, 123456789.5, 3])
def test_a_rate(drawing, graphite, number):
    graphite.body = json.dumps([{"target": "x", "datapoints": [[number, 1], [7, 2]]}]).encode()
    graphite.asked.clear()
    answer = same(drawing.get("/api/graphite?metric=rate&target=sumSeries(a%26b.%2A)"))
    expected = f"{number / 30:.2f}" if number >= 0 else "N/A"
    assert answer.json() == {"rate": expected}
    ours, theirs = (path for path, _ in graphite.asked)
    assert sorted(ours.split("?")[1].split("&")) == sorted(theirs.split("?")[1].split("&"))


@pytest.mark.parametrize(
    "body",
    [b"[]", b'[{"datapoints":[]}]', b'[{"datapoints":[[null,1]]}]', b'[{"datapoints":[[]]}]'],
)
def test_no_rate_is_no_error(drawing, graphite, body):
    """Go stumbles over each of them."""
    graphite.body = body
    ours, theirs = drawing.get("/api/graphite?metric=rate&target=x")
    assert (ours.status, ours.json()) == (200, {"rate": "N/A"})
    assert theirs.status == 500


@pytest.mark.parametrize("body", [b"", b"<html>", b"{}", b'[{"datapoints":3}]'])
def test_nonsense_from_graphite(drawing, graphite, body):
    graphite.body = body
    assert drawing.get("/api/graphite?metric=rate&target=x").ours.status == 500


@pytest.mark.parametrize(
    "query", ["", "metric=rate", "metric=depth&target=x", "target=x", "metric=rate&target="]
)
def test_what_is_missing(drawing, graphite, query):
    graphite.body = b'[{"datapoints":[[30,1]]}]'
    same(drawing.get(f"/api/graphite?{query}"))


def test_pictures_through_us(drawing, graphite):
    graphite.body = b"\x89PNG picture"
    graphite.asked.clear()
    answer = same(drawing.get("/render?target=summarize(a,%221h%22)&from=-1h&x=%23"))
    assert answer.headers["Content-Type"] == "image/png"
    (ours, our_headers), (theirs, their_headers) = graphite.asked
    assert ours == theirs
    assert our_headers["Authorization"] == their_headers["Authorization"]
    assert our_headers["Host"] == text_of(drawing.ours.http)
    graphite.status = 503
    assert same(drawing.get("/render?x")).status == 503
    graphite.status = 200


def test_pictures_below_a_base_path(cluster, graphite):
    """Go asks Graphite for /base/render, which it does not have."""
    url = f"http://127.0.0.1:{graphite.port}"
    flags = (f"--graphite-url={url}", "--proxy-graphite", "--base-path=/base")
    with cluster.admin("nsqfast", *flags) as admin:
        graphite.asked.clear()
        assert get(admin.http, "/base/render?x=1").status == 200
        assert [path for path, _ in graphite.asked] == ["/render?x=1"]


def test_without_the_flag_there_is_no_proxy(pair):
    assert same(pair.get("/x/z/render?x")).status == 404


def test_graphite_is_gone(cluster):
    flags = ("--graphite-url=http://127.0.0.1:1", "--proxy-graphite")
    with cluster.admins(*flags) as pair:
        assert pair.get("/render?x").ours.status == 502
        assert same(pair.get("/api/graphite?metric=rate&target=x")).status == 500


def test_a_webhook_that_is_gone_kills_nobody(cluster):
    with cluster.admin("nsqfast", "--notification-http-endpoint=http://127.0.0.1:1/") as admin:
        for _ in range(3):
            answer = request(admin.http, "POST", "/api/topics/t", b'{"action":"unpause"}')
            assert answer.status == 200
        wait_until(lambda: "127.0.0.1:1" in admin.stderr, "a line in the log")
        assert get(admin.http, "/ping").status == 200
