"""/api/* while something is wrong: nodes down, frozen, talking nonsense, or behind TLS."""

import contextlib
import functools
import http.client
import json
import re

import pytest

from support.admin import LiveCluster, start_nsqadmin, text_of
from support.alike import alike
from support.certificates import Certificates
from support.fake_stats import FakeStats
from support.server import start_nsqd
from support.web import get, request

pytestmark = [pytest.mark.go, pytest.mark.slow, pytest.mark.soak]

SOON = ("--http-client-request-timeout=1s", "--http-client-connect-timeout=1s")
LATE = "(Client.Timeout exceeded while awaiting headers)"  # Go has more than one text before it
PATHS = (
    "/api/topics",
    "/api/topics?inactive=true",
    "/api/nodes",
    "/api/topics/t/c",
    "/api/counter",
)


@pytest.fixture
def cluster(tmp_path):
    with LiveCluster(tmp_path) as made:
        made.make("t", "c")
        made.publish("t", 3)
        yield made


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    return Certificates(tmp_path_factory.mktemp("certificates"))


def is_same(both, path):
    """Both answer alike; the errors of one step have no order in Go, and we ask for less. What ours says."""
    ours, theirs = (json.loads(answer.body) for answer in both)
    assert both.ours.status == both.theirs.status, (path, both)
    messages = [re.sub(r'\?[^"]*"', '"', one.pop("message")) for one in (ours, theirs)]
    first = re.compile("Get |got response|invalid")
    heads = [first.split(message)[0] for message in messages]
    lines = [sorted(re.split("\n|; ", message.removeprefix(heads[0]))) for message in messages]
    assert heads[0] == heads[1], path
    assert lines[0] == lines[1], path
    assert alike(ours) == alike(theirs), path
    return both.ours.json()


def refused(address, path):
    host = text_of(address)
    return f'Get "http://{host}{path}": dial tcp {host}: connect: connection refused'


def test_one_nsqd_is_down_and_nsqlookupd_knows(cluster):
    with cluster.admins(*SOON) as pair:
        cluster.nsqds[2].kill()
        cluster.wait_for_nodes(2)
        for path in PATHS:
            assert is_same(pair.get(path), path)["message"] == ""


def test_one_nsqd_is_down_in_direct_mode(cluster):
    with cluster.admins(*SOON, direct=True) as pair:
        gone = cluster.nsqds[1].http
        cluster.nsqds[1].kill()
        for path in ("/api/nodes", "/api/counter"):
            message = is_same(pair.get(path), path)["message"]
            assert message == "WARNING: " + refused(gone, "/info")
        ours, theirs = pair.get("/api/topics")
        assert ours.json()["topics"] == theirs.json()["topics"] == ["t"]
        cause = f": dial tcp {text_of(gone)}: connect: connection refused"
        assert ours.json()["message"].startswith("WARNING: Get ")
        assert ours.json()["message"].endswith(cause)
        assert theirs.json()["message"].endswith(cause)
        assert is_same(pair.get("/api/topics/t/c"), "a channel")["depth"] == 3
        target = f"/api/nodes/{text_of(gone)}"
        assert is_same(pair.get(target), target)["message"] == "NODE_NOT_FOUND"


def test_an_nsqd_that_nsqlookupd_still_lists_is_down(cluster):
    """Frozen first, so that its connections stay: what asks it has to give up by itself."""
    with cluster.admins(*SOON) as pair, cluster.nsqds[0].frozen():
        gone = text_of(cluster.nsqds[0].http)
        ours, theirs = pair.get("/api/topics/t/c")
        path = "/stats?format=json&include_mem=false&topic=t&channel=c"
        text = f'WARNING: Get "http://{gone}{path}": context deadline exceeded {LATE}'
        assert ours.json()["message"] == text
        assert theirs.json()["message"].endswith(LATE)
        assert len(ours.json()["nodes"]) == 2
        assert alike(ours.json()) | {"message": ""} == alike(theirs.json()) | {"message": ""}
        for answer in pair.get(f"/api/nodes/{gone}"):
            assert answer.status == 502
            assert answer.json()["message"].startswith("UPSTREAM_ERROR: failed to query any nsqd: ")
        assert len(is_same(pair.get("/api/nodes"), "nodes")["nodes"]) == 3


def test_one_nsqlookupd_is_down(cluster):
    with cluster.admins(*SOON) as pair:
        gone = cluster.lookupds[0].http
        cluster.lookupds[0].kill()
        for path, asked in (
            ("/api/topics", "/topics"),
            ("/api/nodes", "/nodes"),
            ("/api/topics/t/c", "/lookup?topic=t"),
            ("/api/counter", "/nodes"),
        ):
            assert is_same(pair.get(path), path)["message"] == "WARNING: " + refused(gone, asked)
        nodes = pair.get("/api/nodes").ours.json()["nodes"]
        assert [len(node["remote_addresses"]) for node in nodes] == [1, 1, 1]


def test_both_nsqlookupd_are_down(cluster):
    with cluster.admins(*SOON) as pair:
        for lookupd in cluster.lookupds:
            lookupd.kill()
        for path in PATHS:
            ours = pair.get(path).ours
            assert is_same(pair.get(path), path)["message"].startswith(
                "UPSTREAM_ERROR: failed to query any nsqlookupd: Get "
            )
            assert ours.json()["message"].count("\n") == 1
        # Nothing was made, and yet it is no error: as from Go.
        for answer in pair.ask("POST", "/api/topics", b'{"topic":"new"}'):
            assert answer.status == 200
            assert answer.json()["message"].count("connection refused") == 2
        for answer in pair.ask("DELETE", "/api/topics/t"):
            assert answer.status == 502


GARBAGE = [
    b"",
    b"<html>",
    b"[]",
    b"{",
    b"null",
    b'"text"',
    b'{"topics":3,"producers":{}}',
    b'{"topics":[3],"producers":[3]}',
    b'{"topics":[{"topic_name":{}}],"producers":[{"http_port":"x"}],"data":"\xff"}',
    b"[" * 100_000,
    b'{"topics":' + b"[" * 100_000,
    b"\x00" * 1000,
    b'{"producers":[{"broadcast_address":"::","http_port":99999999,"topics":["a","b"]}],"topics":["a"]}',
]


@pytest.mark.parametrize("flag", ["--lookupd-http-address", "--nsqd-http-address"])
def test_nonsense_is_an_error_of_who_says_it(flag):
    """Ours alone: of some of these Go's nsqadmin dies."""
    with (
        FakeStats(lambda _path, _query: b"") as talker,
        start_nsqadmin("nsqfast", f"{flag}={talker.address}", *SOON) as server,
    ):
        for body in GARBAGE:
            talker.answer = lambda _path, _query, body=body: body
            for path in (*PATHS, "/api/topics/a", "/api/topics/a/b"):
                answer = get(server.http, path)
                assert answer.status in (200, 404, 502), (path, body[:40], answer)
                assert answer.json()["message"] != "INTERNAL_ERROR"
        assert "Traceback" not in server.stderr


def test_the_way_to_https(certificates, tmp_path):
    """An nsqd that wants TLS says on HTTP where HTTPS is; both follow, for reads and for actions."""
    trust = f"--http-client-tls-root-ca-file={certificates.path('ca.crt')}"
    listeners = ("TCP", "HTTP", "HTTPS")
    with contextlib.ExitStack() as stack:
        nsqds = []
        for kind in ("nsqfast", "go"):
            folder = tmp_path / kind
            folder.mkdir()
            flags = [*certificates.flags(), "--tls-required=true"]
            nsqds.append(stack.enter_context(start_nsqd(kind, folder, *flags, listeners=listeners)))
        for nsqd in nsqds:
            context = certificates.client_context()
            https = functools.partial(http.client.HTTPSConnection, context=context)
            for path in ("/topic/create?topic=t", "/channel/create?topic=t&channel=c"):
                assert request(nsqd.https, "POST", path, connect=https).status == 200
        pair = [
            stack.enter_context(start_nsqadmin(kind, trust, nsqds=nsqds))
            for kind in ("nsqfast", "go")
        ]
        strict = stack.enter_context(start_nsqadmin("nsqfast", nsqds=nsqds))
        for path in ("/api/topics", "/api/nodes", "/api/topics/t/c", "/api/counter"):
            ours, theirs = (get(one.http, path) for one in pair)
            assert alike(ours.json()) == alike(theirs.json())
            assert ours.json()["message"] == ""
            assert get(strict.http, path).status == 502
        for one in pair:
            done = request(one.http, "POST", "/api/topics/t/c", b'{"action":"pause"}')
            assert (done.status, done.body) == (200, b'{"message":""}')
        assert get(pair[0].http, "/api/topics/t/c").json()["paused"]
