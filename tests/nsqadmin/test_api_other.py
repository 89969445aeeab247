"""/config, /ping, /render, /api/graphite, compression, and paths that nobody serves."""

import gzip
import json
import zlib

import pytest

from support.admin import LiveCluster, text_of
from support.destination import Destination, answer
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


ANN = {"X-Forwarded-User": "ann"}


def same(both):
    """Status, body and type are the same; the answer."""
    ours, theirs = both
    assert (ours.status, ours.body) == (theirs.status, theirs.body)
    if ours.body:
        assert ours.headers["Content-Type"] == theirs.headers["Content-Type"]
    return ours


# ---- /config and /ping


def test_ping_and_every_option(pair):
    assert same(pair.get("/x/z/ping")).body == b"OK"
    for name in OPTIONS:
        same(pair.ask("GET", f"/x/z/config/{name}", headers=ANN))
    assert same(pair.ask("GET", "/x/z/config/base_path", headers=ANN)).body == b"/x/z"


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
    same(pair.ask("PUT", f"/x/z/config/{name}", body, ANN))


def test_a_value_that_is_too_large(pair):
    """Go does not read the rest of it, so our answer is looked at alone."""
    said = request(pair.ours.http, "PUT", "/x/z/config/log_level", b"x" * ((1 << 20) + 1), ANN)
    assert (said.status, said.body) == (413, b'{"message":"INVALID_VALUE"}')


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


# ---- compression, and what nobody serves


@pytest.mark.parametrize(
    "accepted",
    ["gzip", "deflate", "br, deflate, gzip", "gzip;q=0, deflate", "identity", "", "*", " GZIP ,x"],
)
def test_compression(pair, accepted):
    """Also of errors, and of what is not JSON."""
    for target in ("/x/z/api/nodes", "/x/z/nothing", "/x/z/config/log_prefix"):
        ours, theirs = pair.ask("GET", target, None, {"Accept-Encoding": accepted, **ANN})
        assert ours.status == theirs.status
        assert ours.headers.get("Content-Encoding") == theirs.headers.get("Content-Encoding")
        assert unpacked(ours) == unpacked(theirs)
        if ours.headers.get("Content-Encoding"):
            assert "Accept-Encoding" in ours.headers["Vary"]


def unpacked(said):
    encoding = said.headers.get("Content-Encoding")
    if encoding == "gzip":
        return gzip.decompress(said.body)
    if encoding == "deflate":
        return zlib.decompress(said.body, wbits=-15)
    return said.body


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS"])
def test_methods(pair, method):
    for path in ("ping", "api/nodes", "config/log_level", "api/counter", "api/graphite", "api/no"):
        ours, theirs = pair.ask(method, f"/x/z/{path}", headers=ANN)
        assert ours.status == theirs.status, path
        if ours.status in (404, 405) or method == "OPTIONS":
            assert ours.body == theirs.body, path
            assert ours.headers.get("Allow") == theirs.headers.get("Allow"), path


def test_a_slash_too_many(pair):
    for path in ("api/topics", "api/topics/t", "api/topics/t/c", "api/nodes", "ping"):
        ours, theirs = pair.get(f"/x/z/{path}/?a=b")
        assert (ours.status, ours.headers["Location"]) == (301, theirs.headers["Location"])


# ---- Graphite


@pytest.fixture(scope="module")
def graphite():
    """Answers with `body`."""
    png = "Content-Type: image/png"
    with Destination(lambda *_: answer(fake.status, png, body=fake.body)) as fake:
        fake.status, fake.body = 200, b"[]"
        yield fake


@pytest.fixture(scope="module")
def drawing(cluster, graphite):
    url = f"http://joe:secret@127.0.0.1:{graphite.port}"
    flags = (f"--graphite-url={url}", "--proxy-graphite", "--statsd-interval=30s")
    with cluster.admins(*flags) as made:
        yield made


def test_a_rate(drawing, graphite):
    for number in (617.1, 0, -1, 1e-9, 123456789.5, 3):
        graphite.body = json.dumps([{"target": "x", "datapoints": [[number, 1], [7, 2]]}]).encode()
        graphite.requests.clear()
        said = same(drawing.get("/api/graphite?metric=rate&target=sumSeries(a%26b.%2A)"))
        assert said.json() == {"rate": f"{number / 30:.2f}" if number >= 0 else "N/A"}
        ours, theirs = (asked.path.split("?")[1].split("&") for asked in graphite.requests)
        assert sorted(ours) == sorted(theirs)


def test_no_rate_is_no_error_and_nonsense_is_one(drawing, graphite):
    """Go stumbles over each of them."""
    for body in (b"[]", b'[{"datapoints":[]}]', b'[{"datapoints":[[null,1]]}]'):
        graphite.body = body
        ours, theirs = drawing.get("/api/graphite?metric=rate&target=x")
        assert (ours.status, ours.json()) == (200, {"rate": "N/A"})
        assert theirs.status == 500
    for body in (b"", b"<html>", b"{}", b'[{"datapoints":3}]'):
        graphite.body = body
        assert drawing.get("/api/graphite?metric=rate&target=x").ours.status == 500
    graphite.body = b'[{"datapoints":[[30,1]]}]'
    for query in ("", "metric=rate", "metric=depth&target=x", "target=x", "metric=rate&target="):
        same(drawing.get(f"/api/graphite?{query}"))


def test_pictures_through_us(drawing, graphite):
    graphite.body = b"\x89PNG picture"
    graphite.requests.clear()
    said = same(drawing.get("/render?target=summarize(a,%221h%22)&from=-1h&x=%23"))
    assert said.headers["Content-Type"] == "image/png"
    ours, theirs = graphite.requests
    assert ours.path == theirs.path
    assert ours.header("Authorization") == theirs.header("Authorization")
    assert ours.header("Host") == text_of(drawing.ours.http)
    graphite.status = 503
    assert same(drawing.get("/render?x")).status == 503
    graphite.status = 200


def test_pictures_below_a_base_path(cluster, graphite):
    """Go asks Graphite for /base/render, which it does not have."""
    url = f"http://127.0.0.1:{graphite.port}"
    flags = (f"--graphite-url={url}", "--proxy-graphite", "--base-path=/base")
    with cluster.admin("nsqfast", *flags) as admin:
        graphite.requests.clear()
        assert get(admin.http, "/base/render?x=1").status == 200
        assert [asked.path for asked in graphite.requests] == ["/render?x=1"]


def test_without_the_flag_there_is_no_proxy_and_graphite_may_be_gone(cluster, pair):
    assert same(pair.get("/x/z/render?x")).status == 404
    flags = ("--graphite-url=http://127.0.0.1:1", "--proxy-graphite")
    with cluster.admins(*flags) as alone:
        assert alone.get("/render?x").ours.status == 502
        assert same(alone.get("/api/graphite?metric=rate&target=x")).status == 500
