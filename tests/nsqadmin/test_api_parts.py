"""Parts of the JSON API that need no cluster: versions, latencies, rounds, topics in slices, start-up checks."""

import asyncio
import random
import socket
import subprocess

import orjson
import pytest

from nsqfast.nsqadmin.api.objects import latency_of, merge_latencies
from nsqfast.nsqadmin.api.reads import Rounds
from nsqfast.nsqadmin.cluster.answers import (
    PIECE_SIZE_MAX,
    ListedProducer,
    NodeIdentity,
    NsqdStats,
    Percentiles,
    UpstreamError,
    decode,
    decode_in_slices,
)
from nsqfast.nsqadmin.cluster.discovery import ZERO, node_of_info, parse_version, read_topics
from nsqfast.nsqadmin.options import parse
from support.access import refusal
from support.server import program

ORDERED = """
    0.0.1-0 0.0.1 0.3.8 1.0.0-alpha 1.0.0-alpha.1 1.0.0-alpha.beta 1.0.0-beta 1.0.0-beta.2 1.0.0-beta.11 1.0.0-rc.1
    1.0.0 1.0.1-compat 1.0.1 1.2.9 1.2.10 1.3.0-1 1.3.0-a 1.3.0 2.0.0
""".split()


def test_versions_in_the_order_of_semver_org():
    shuffled = random.Random(7).sample(ORDERED, len(ORDERED))
    assert sorted(shuffled, key=parse_version) == ORDERED
    assert parse_version("1.3.0+build.5") == parse_version("1.3.0")


@pytest.mark.parametrize(
    "text", ["", "1", "1.3", "v1.3.0", "1.3.0-", "01.3.0", "1.3.0-01", "1.3.x", "-1.0.0", "1.3.0\n"]
)
def test_what_is_no_version(text):
    assert parse_version(text) == ZERO


def test_latencies_of_nodes():
    parts = [
        latency_of(Percentiles(1, [{"quantile": 0.5, "value": 100.0}])),
        None,
        latency_of(
            Percentiles(3, [{"quantile": 0.5, "value": 20.0}, {"quantile": 1.0, "value": 7}])
        ),
        latency_of(Percentiles(0, [{"quantile": 0.5, "value": 60.0}])),
    ]
    found = merge_latencies(parts, "t", "c")
    assert (found["count"], found["host"], found["topic"], found["channel"]) == (4, "*", "t", "c")
    half, whole = found["percentiles"]
    assert half == {"quantile": 0.5, "min": 20, "max": 100, "count": 4, "average": 40}
    assert whole == {"quantile": 1.0, "min": 7, "max": 7, "count": 3, "average": 7}
    assert merge_latencies([None], "t", "")["percentiles"] is None
    assert latency_of(None) is None
    assert latency_of(Percentiles(0, None))["percentiles"] is None
    found = latency_of(Percentiles(4, [{"quantile": 0.99, "value": 1500.0}]))
    assert orjson.dumps(found) == (
        b'{"count":4,"percentiles":[{"average":1500,"count":4,"max":1500,"min":1500,"quantile":0.99,"value":1500}],'
        b'"topic":"","channel":"","host":""}'
    )


@pytest.mark.parametrize(
    ("listed", "topics"),
    [
        (
            '{"topics":["b","c","a"],"tombstones":[true,false]}',
            (("a", "b", "c"), (False, True, False)),
        ),
        ('{"topics":["b","a"],"tombstones":[false,false,true]}', (("a", "b"), (False, False))),
        ('{"topics":["b","a"],"tombstones":[false,false]}', (("a", "b"), (False, False))),
        ('{"topics":["b","a","b"],"tombstones":[]}', (("a", "b", "b"), (False, False, False))),
        ('{"topics":null,"tombstones":null}', ((), ())),
        ("{}", ((), ())),
    ],
)
def test_tombstones_stay_with_their_topics(listed, topics):
    assert read_topics(decode(listed.encode(), ListedProducer)) == topics


@pytest.mark.parametrize(
    "listed", ['{"topics":3}', '{"topics":[3]}', '{"tombstones":{}}', '{"tombstones":[null]}']
)
def test_topics_that_are_none(listed):
    with pytest.raises(UpstreamError):
        read_topics(decode(listed.encode(), ListedProducer))


def test_an_nsqd_that_does_not_say_where_it_is():
    node = node_of_info(NodeIdentity(version="0.2.0"), "[::1]:4151", ["t"])
    assert (node.key, node.hostname) == ("[::1]:4151", "::1")
    node = node_of_info(
        NodeIdentity(broadcast_address="fd00::1", http_port=7, tcp_port=8), "x:1", []
    )
    assert (node.key, node.tcp_port) == ("[fd00::1]:7", 8)


async def test_a_large_answer_is_decoded_in_slices():
    """The same as in one go, and others have their turn meanwhile."""
    topics = [
        {
            "topic_name": f"t{n}",
            "channels": [{"channel_name": "c", "depth": n}],
            "padding": "x" * 200,
        }
        for n in range(20_000)
    ]
    body = orjson.dumps({"version": "1.3.0", "topics": topics})
    assert len(body) > PIECE_SIZE_MAX
    turns = 0
    task = asyncio.ensure_future(decode_in_slices(body, NsqdStats))
    while not task.done():
        turns += 1
        await asyncio.sleep(0)
    assert await task == decode(body, NsqdStats)
    assert turns > 5


# ---- rounds


async def test_no_answer_is_older_than_its_request():
    """Random comers; each gets what was asked after it came, and not everybody asks anew."""
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    rand = random.Random(seed)

    rounds, clock, asked = Rounds(), iter(range(1, 1 << 20)), 0

    async def question():
        nonlocal asked
        asked += 1
        begun = next(clock)
        for _ in range(rand.randrange(30)):
            await asyncio.sleep(0)
        return b"%d" % begun

    async def come():
        for _ in range(rand.randrange(200)):
            await asyncio.sleep(0)
        came = next(clock)
        assert int(await rounds.ask("k", question)) > came

    await asyncio.gather(*(come() for _ in range(300)))
    assert asked < 200
    assert not rounds._asking
    assert not rounds._gathering


async def test_a_round_that_does_not_end_holds_up_nobody():
    rounds, release = Rounds(), asyncio.Event()

    async def never():
        await release.wait()
        return b"late"

    async def at_once():
        return b"now"

    first = asyncio.ensure_future(rounds.ask("k", never))
    await asyncio.sleep(0)
    assert await rounds.ask("other", at_once) == b"now"
    assert await rounds.ask("k", at_once) == b"now"
    assert not first.done()
    release.set()
    assert await first == b"late"


async def test_an_error_reaches_all_and_who_leaves_does_not_end_the_round():
    rounds, release = Rounds(), asyncio.Event()

    async def fail():
        await release.wait()
        raise UpstreamError("no")

    async def work():
        return b"well"

    tasks = [asyncio.ensure_future(rounds.ask("k", fail)) for _ in range(3)]
    await asyncio.sleep(0)
    tasks[0].cancel()
    await asyncio.sleep(0)
    release.set()
    found = await asyncio.gather(*tasks, return_exceptions=True)
    assert tasks[0].cancelled()
    assert [str(one) for one in found[1:]] == ["no", "no"]
    assert await rounds.ask("k", work) == b"well"


# ---- a start that fails


LOOKUPD = "--lookupd-http-address=127.0.0.1:4161"
REFUSED = [
    [],
    [LOOKUPD, "--nsqd-http-address=127.0.0.1:4151"],
    [LOOKUPD, "--http-client-tls-cert=x"],
    [LOOKUPD, "--http-client-tls-key=x"],
    [LOOKUPD, "--http-client-tls-key=/none/k", "--http-client-tls-cert=/none/c"],
    [LOOKUPD, "--http-client-tls-root-ca-file=/none/ca"],
    [LOOKUPD, "--http-client-tls-root-ca-file=/dev/null"],
    [LOOKUPD, "--lookupd-http-address=http://127.0.0.1:4161"],
    [LOOKUPD, "--lookupd-http-address=localhost"],
    [LOOKUPD, "--lookupd-http-address=127.0.0.1:abc"],
    [LOOKUPD, "--lookupd-http-address=127.0.0.1:99999"],
    [LOOKUPD, "--lookupd-http-address=::1:4"],
    [LOOKUPD, "--lookupd-http-address=[::1"],
    ["--nsqd-http-address=http://127.0.0.1"],
    [LOOKUPD, "--allow-config-from-cidr=x"],
    [LOOKUPD, "--http-address=TAKEN"],
    [LOOKUPD, "--http-address=nowhere"],
]


@pytest.mark.go
@pytest.mark.slow
@pytest.mark.parametrize("flags", REFUSED, ids=lambda flags: " ".join(flags[-2:]) or "none")
def test_a_start_is_refused_as_by_go(flags):
    """In the same words."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        given = ["--http-address=127.0.0.1:0", *(flag.replace("TAKEN", address) for flag in flags)]
        theirs = subprocess.run(
            [*program("nsqadmin", "go"), *given], stderr=subprocess.PIPE, timeout=20, check=False
        )
        ours = refusal(parse(given))
    assert theirs.returncode == 1
    line = theirs.stderr.decode().strip().splitlines()[-1]
    assert line.split(" ", 3)[3] == f"FATAL: {ours}"
