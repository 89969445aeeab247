"""nsq_to_http beside Go's tool: the same requests, lines and exit status. With our nsqd and with Go's."""

import asyncio
import itertools
import re

import pytest

from support.destination import Destination, answer
from support.server import start_nsqd
from support.to_http import SECONDS_MAX, fill, first_answer, left, start
from support.tools import run_tool
from support.waiting import eventually

TOPICS = (f"topic-{number}" for number in itertools.count(1))
GO = pytest.param("go", marks=pytest.mark.go)
OK = answer(200)


@pytest.fixture(scope="module", params=["nsqfast", GO])
def broker(request, tmp_path_factory):
    with start_nsqd(request.param, tmp_path_factory.mktemp(request.param)) as server:
        yield server


BODIES = [b"plain", b"a b&c=d/\xff%s\n", b"\0" * 3, b'{"json": [1, 2]}']
ONE_BY_ONE = ("--n=1", "--max-in-flight=1")


def converse(implementation, broker, flags, conduct=None, urls=2):
    """The requests that each of the servers got, without their ports; every message is finished."""
    topic = next(TOPICS)
    with Destination(conduct) as one, Destination(conduct) as two:
        servers = [one, two]

        def fill_in(text):
            return text.replace("ONE", one.url).replace("TWO", two.url)

        fill(broker, topic, *BODIES)
        with start(broker, topic, *map(fill_in, flags), implementation=implementation) as tool:
            eventually(lambda: not left(broker, topic), SECONDS_MAX)
            assert tool.end() == 0
        assert tool.out == b""
        ports = {str(one.port): "ONE", str(two.port): "TWO"}
        text = re.compile("|".join(ports))
        return [
            [text.sub(lambda found: ports[found[0]], repr(request)) for request in server.requests]
            for server in servers[:urls]
        ]


def redirecting(status, where):
    def conduct(caller, request):
        other = f"localhost:{caller.server.port}"
        if request.path.startswith("/from"):
            return answer(status, f"Location: {where.format(other=other)}")
        return OK

    return conduct


HEADERS = ("--header=x-a: 1", "--header=cookie: c=d", "--header=user-agent:me", "--header=x-a:2")
REDIRECTS = [(301, "/to"), (302, "to?z"), (303, "http://{other}/to"), (308, "/to")]
REDIRECTS += [(307, "http://{other}/to")]
CONVERSATIONS = {
    "post": ((*ONE_BY_ONE, "--post=ONE/a%20b?c=d"), None),
    "post with headers": ((*ONE_BY_ONE, "--post=ONE", *HEADERS, "--content-type=text/x"), None),
    "post with a user": ((*ONE_BY_ONE, "--post=ONE/", "--header=Authorization: x"), None),
    "post, 204": ((*ONE_BY_ONE, "--post=ONE/"), lambda *_: answer(204)),
    "get": ((*ONE_BY_ONE, "--get=ONE/x?q=%s&r=%%20"), None),
    "round-robin": ((*ONE_BY_ONE, "--mode=round-robin", "--post=ONE/1", "--post=TWO/2"), None),
    "hostpool": ((*ONE_BY_ONE, "--post=ONE/1", "--post=TWO/2"), None),
    "all": ((*ONE_BY_ONE, "--mode=multicast", "--post=ONE/1", "--post=TWO/2"), None),
    "no sample": ((*ONE_BY_ONE, "--sample=0", "--post=ONE/"), None),
    **{
        f"{status} to {where}": (
            (*ONE_BY_ONE, "--post=ONE/from?x", *HEADERS),
            redirecting(status, where),
        )
        for status, where in REDIRECTS
    },
    "get, redirected": ((*ONE_BY_ONE, "--get=ONE/from?x=%s"), redirecting(302, "/to")),
}


@pytest.mark.go
@pytest.mark.parametrize("name", CONVERSATIONS)
def test_the_same_requests_as_go(broker, name):
    flags, conduct = CONVERSATIONS[name]
    found = [converse(one, broker, flags, conduct) for one in ("nsqfast", "go")]
    assert found[0] == found[1]
    assert any(found[0]) != (name == "no sample")


TIMES = re.compile(rb"\d+\.\d\dms")


def status_lines(implementation, broker, flags):
    topic = next(TOPICS)
    with Destination() as one, Destination() as two:
        urls = [f"--post={one.url}/", f"--post={two.url}/"]
        fill(broker, topic, *[b"%d" % number for number in range(13)])
        with start(broker, topic, *urls, *flags, implementation=implementation) as tool:
            eventually(lambda: len(one.requests) + len(two.requests) >= 13, SECONDS_MAX)
            assert tool.end() == 0
        lines = [line for line in tool.err.splitlines() if b"finished" in line or b"Warn" in line]
        lines = [line for line in lines if b"INF" not in line]
        for number, server in enumerate((one, two)):
            port = b"%d" % server.port
            lines = [line.replace(port, b"%d" % number) for line in lines]
        assert all(re.match(rb"\d{4}/\d\d/\d\d \d\d:\d\d:\d\d ", line) for line in lines)
        return [TIMES.sub(b"#", line[20:]) for line in lines]


@pytest.mark.go
@pytest.mark.parametrize("every", [0, 3, 12, 13, 100])
def test_the_same_status_lines_as_go(broker, every):
    flags = (*ONE_BY_ONE, "--mode=round-robin", f"--status-every={every}")
    ours, gos = (status_lines(one, broker, flags) for one in ("nsqfast", "go"))
    assert ours == gos
    assert bool(ours) == (every in {3, 12, 13})


BASE = ("--topic=t", "--nsqd-tcp-address=127.0.0.1:1")
POST = ("--post=http://127.0.0.1:1/",)
ENDS = [
    ((), 1),
    (("--version",), 0),
    (("-help",), 0),
    (("--bogus",), 2),
    (("--n=x",), 2),
    (("--consumer-opt=bogus,1",), 2),
    (("--topic=t", *POST), 1),
    (("--nsqd-tcp-address=a:1", *POST), 1),
    ((*BASE, "--channel=", *POST), 1),
    (BASE, 1),
    ((*BASE, *POST, "--get=http://h/%s"), 1),
    ((*BASE, "--get=http://h/"), 1),
    ((*BASE, "--get=http://h/%s%s"), 1),
    ((*BASE, "--get=http://h/%s", "--content-type=a/b"), 1),
    ((*BASE, *POST, "--content-type="), 1),
    ((*BASE, *POST, "--header=x=y"), 1),
    ((*BASE, *POST, "--sample=1.1"), 1),
    ((*BASE, *POST, "--lookupd-http-address=127.0.0.1:1"), 1),
    ((*BASE, *POST, "--topic=a b"), 1),
    ((*BASE, *POST, "--consumer-opt=heartbeat_interval,4m"), 1),
    (("--topic=t", "--lookupd-http-address=127.0.0.1", *POST), 1),
]


@pytest.mark.parametrize(("words", "status"), ENDS)
@pytest.mark.parametrize("implementation", ["nsqfast", GO])
def test_how_it_ends_at_once(implementation, words, status):
    ended = run_tool("nsq_to_http", implementation, *words)
    assert ended.returncode == status, ended
    lines = ended.stderr.decode().splitlines()
    assert "Traceback" not in ended.stderr.decode()
    if status == 1 and implementation == "nsqfast":
        assert len(lines) == 1
    assert ended.stdout.decode().partition("\n")[0].startswith("nsq_to_http v1.3.0") == (
        words == ("--version",)
    )


@pytest.mark.parametrize("implementation", ["nsqfast", GO])
@pytest.mark.parametrize(
    ("flags", "status", "attempts", "told"),
    [
        (["--post=ONE/"], 200, 1, ("FIN",)),
        (["--post=ONE/"], 299, 1, ("FIN",)),
        (["--post=ONE/"], 500, 1, ("REQ", "90000")),
        (["--post=ONE/"], 404, 3, ("REQ", "270000")),
        (["--post=ONE/"], 304, 1, ("REQ", "90000")),
        (["--get=ONE/?%s"], 204, 1, ("REQ", "90000")),
        (["--post=ONE/", "--consumer-opt=default_requeue_delay,2s"], 500, 2, ("REQ", "4000")),
        (["--post=http://127.0.0.1:1/"], 0, 1, ("REQ", "90000")),
        (["--post=ONE/"], 0, 6, ("FIN",)),
    ],
)
def test_what_becomes_of_a_message(implementation, flags, status, attempts, told):
    found = asyncio.run(first_answer(implementation, flags, lambda *_: answer(status), attempts))
    assert found == told
