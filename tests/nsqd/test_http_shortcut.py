"""Publishes that take the shortcut: nobody can tell, from answers, topics or counts, that the full path was not asked.

Every stream of bytes goes to two brokers without sockets, one of which has no shortcut, and they have to agree.
"""

import asyncio
import random
import re
import resource

import pytest
from nsqfast._ext.dev.probes import fix_parts

from nsqfast.nsqd.http_publish import reply
from nsqfast.nsqd.metrics import answered
from nsqfast.nsqd.options import TLS_REQUIRED
from support.core import NEVER
from support.http import BODY_SIZE_MAX, DATE, MESSAGE_SIZE_MAX, HttpBroker, post


@pytest.fixture(autouse=True)
def endless_parts():
    """A loaded machine changes no answer."""
    fix_parts(NEVER)
    yield
    fix_parts(0)


def compare(folder, talk, **changed):
    """Runs `talk(broker)` on both; returns the one with a shortcut, in which topic `t` exists beforehand."""
    results, brokers = [], []
    for has_shortcut in (True, False):
        broker = HttpBroker(folder / str(has_shortcut), has_shortcut, **changed)
        broker.registry.topics.ensure("t")
        brokers.append(broker)
        before = answered()
        results.append((asyncio.run(talk(broker)), broker.topics(), answered() - before))
        broker.registry.topics.close()
    for one, other in zip(*results, strict=True):
        assert one == other
    return brokers[0]


BINARY = b"\0\0\0\2\0\0\0\1a\0\0\0\3bcd"
PLAIN = [
    post("/pub?topic=t", b"hello"),
    post("/pub?topic=t", b"\r\n\r\n", "User-Agent: wrk\r\nConnection: Keep-Alive\r\nX:y\r\n"),
    post("/pub?topic=t&defer=3600000", b"later"),
    post("/pub?topic=t", b"m" * MESSAGE_SIZE_MAX),
    post("/mpub?topic=t", b"one\n\ntwo\r\nthree"),
    post("/mpub?topic=t&binary=0", b"\n\n"),
    post("/mpub?topic=t&binary=true", BINARY),
    post("/mpub?topic=t&binary=1", BINARY + b"behind"),
    b"POST /pub?topic=t HTTP/1.1\r\nhOST:   x\r\ncontent-LENGTH:1\r\n\r\nx",
]
CREATING = [
    post("/pub?topic=new#ephemeral", b"x"),
    post("/topic/create?topic=u", b""),
    post("/pub?topic=u", b"u"),
]
OTHER = [
    post("/pub?topic=t", b""),
    post("/pub?topic=t", b"m" * (MESSAGE_SIZE_MAX + 1)),
    post("/pub?topic=t", b"x", "Expect: 100-continue\r\n"),
    post("/pub?topic=t", b"x", "Connection: close\r\n"),
    post("/pub?topic=t", b"x", "Connection: Upgrade\r\nUpgrade: h2c\r\n"),
    post("/pub?topic=t", b"x", "Proxy-Connection: close\r\n"),
    post("/pub?topic=t", b"x", "Content-Length: 1\r\n"),
    post("/pub?topic=t", b"x", "Transfer-Encoding: chunked\r\n"),
    post("/pub?topic=t", b"x", "Transfer-Encoding: identity\r\n"),
    post("/pub?topic=t", b"x", "Host: y\r\n"),
    post("/pub?topic=t", b"x", host=""),
    post("/pub?topic=t", b"x", "X: y\r\n z\r\n"),
    post("/pub?topic=t", b"x", "X:\r\n"),
    post("/pub?topic=t", b"x", "X: \r\n"),
    post("/pub?topic=t", b"x", "X: é\r\n"),
    post("/pub?topic=t", b"x", "X: \t\r\n"),
    post("/pub?topic=t", b"x", "X y\r\n"),
    post("/pub?topic=t", b"x", "X : y\r\n"),
    post("/pub?topic=t", b"x", "X: " + "y" * 9000 + "\r\n"),
    post("/pub?topic=t", b"x", "X: y\n"),
    post("/pub?topic=t", b"x").replace(b"Length: 1", b"Length: +1"),
    post("/pub?topic=t", b"x").replace(b"Length: 1", b"Length: 01"),
    post("/pub?topic=t", b"x").replace(b"Length: 1", b"Length: 1 "),
    post("/pub?topic=t", b"x").replace(b"Length: 1", b"Length: 18446744073709551617"),
    post("/pub?topic=t", b"x").replace(b"Content-Length: 1", b"X: 1"),
    post("/pub?topic=t", b"x").replace(b"1.1", b"1.0"),
    post("/pub?topic=t", b"x").replace(b"1.1", b"1.2"),
    post("/pub?topic=t", b"x").replace(b"POST /pub", b"POST  /pub"),
    post("/pub?topic=t", b"x").replace(b"POST", b"PUT"),
    b"\r\n" + post("/pub?topic=t", b"x"),
    b"POST /pub?topic=t HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n",
    *(
        post(f"/pub?{query}", b"x")
        for query in (
            *(
                "",
                "topic",
                "topic=",
                "topic=%74",
                "topic=%zz",
                "topic=t;",
                "topic=bad!",
                "topic=t+",
            ),
            *("topic=t&topic=u", "defer=1&topic=t", "topic=t&x=y", "topic=t&", "&topic=t"),
            *("topic=t&defer=", "topic=t&defer=+5", "topic=t&defer=-1", "topic=t&defer=3600001"),
            *("topic=t&defer=1.5", "topic=t&defer=1&defer=2", "topic=t&defer=99999999999999999999"),
            "topic=" + "n" * 65,
        )
    ),
    post("http://h/pub?topic=t", b"x"),
    post("/PUB?topic=t", b"x"),
    post("//pub?topic=t", b"x"),
    post("/pub/?topic=t", b"x"),
    post("/mpub?topic=t", b""),
    post("/mpub?topic=t", b"m" * (MESSAGE_SIZE_MAX + 1)),
    post("/mpub?topic=t", b"m\n" * (BODY_SIZE_MAX // 2 + 1)),
    post("/mpub?topic=t&binary=", BINARY),
    post("/mpub?topic=t&binary=TRUE", BINARY),
    post("/mpub?topic=t&binary=true", BINARY[:-1]),
    post("/mpub?topic=t&binary=true", b"\0\0\0\0"),
    post("/mpub?topic=t&binary=truex", BINARY),
    b"GET /ping HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"GET /pub?topic=t HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"garbage\r\n",
]


def shown(sent):
    return f"{sent[:60]!r}"


@pytest.mark.parametrize("sent", PLAIN, ids=shown)
def test_plain_publish_is_not_handled(tmp_path, sent):
    """In one piece, and in two if the first of them holds the head."""
    head_size = sent.index(b"\r\n\r\n") + 4

    async def talk(broker):
        pieces = [[sent]] + [[sent[:cut], sent[cut:]] for cut in range(head_size, len(sent))]
        return [await broker.hear(piece) for piece in [*pieces, [sent * 3 + sent[:head_size]]]]

    assert compare(tmp_path, talk).asked == []


@pytest.mark.parametrize("sent", PLAIN + CREATING + OTHER, ids=shown)
def test_whole_byte_by_byte_and_with_bytes_behind(tmp_path, sent):
    async def talk(broker):
        return [
            await broker.hear([sent]),
            await broker.hear([sent[i : i + 1] for i in range(len(sent))]),
            await broker.hear([PLAIN[0] + sent + PLAIN[0] + sent[:-1]]),
            await broker.hear([PLAIN[0] + sent + PLAIN[0][:-1], PLAIN[0][-1:] + PLAIN[4]]),
        ]

    compare(tmp_path, talk)


@pytest.mark.parametrize("sent", PLAIN + OTHER[:16], ids=shown)
def test_split_anywhere(tmp_path, sent):
    stream = PLAIN[0] + sent + PLAIN[4]

    async def talk(broker):
        answers = []
        for cut in range(1, len(stream)):
            answers.append(await broker.hear([stream[:cut], stream[cut:]]))
            answers.append(
                await broker.hear([stream[:cut], stream[cut : cut + 1], stream[cut + 1 :]])
            )
        return answers

    compare(tmp_path, talk)


def damage(rng, sent):
    """One byte added, left out or changed; often in the head, where it matters."""
    place = rng.randrange(len(sent))
    byte = rng.choice([b"\r", b"\n", b" ", b"\t", b":", b"\0", b"\xff", b"1", b"&", b"%", b";"])
    return rng.choice(
        [sent[:place] + byte + sent[place:], sent[:place] + sent[place + 1 :]]
        + [sent[:place] + byte + sent[place + 1 :]] * 2
    )


def mix(rng):
    """Some requests, most of them plain, in pieces."""
    requests = rng.choices(PLAIN, k=rng.randrange(1, 6))
    if rng.random() < 0.5:
        requests.insert(rng.randrange(len(requests) + 1), rng.choice(CREATING + OTHER))
    if rng.random() < 0.5:
        place = rng.randrange(len(requests))
        requests[place] = damage(rng, requests[place])
    stream = b"".join(requests)
    cuts = sorted(rng.randrange(len(stream)) for _ in range(rng.choice([0, 0, 1, 2, 5])))
    return [stream[start:end] for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True)]


@pytest.mark.slow
def test_random_mixes(tmp_path):
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")

    async def talk(broker):
        rng = random.Random(seed)
        return [
            (pieces, await broker.hear(filter(None, pieces))) for pieces in map(mix, [rng] * 2000)
        ]

    broker = compare(tmp_path, talk, mem_queue_size=100_000)
    # The shortcut had its share: about three of four messages never saw a handler.
    assert broker.registry.topics.find("t").message_count > len(broker.asked) > 0


def test_exiting_broker_refuses(tmp_path):
    async def talk(broker):
        first = await broker.hear([PLAIN[0]])
        protocol, wire = broker.connect()
        protocol.data_received(PLAIN[0])
        broker.registry.topics.close()
        protocol.data_received(PLAIN[0] + PLAIN[4])
        return first, DATE.sub(b"", wire.written)

    broker = compare(tmp_path, talk)
    assert broker.asked == []


def test_disk_that_cannot_be_written(tmp_path):
    async def talk(broker):
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
        try:
            answers = await broker.hear([PLAIN[0] + PLAIN[4]])
            assert answers[0].count(b'{"message":"DISK_FULL","reason":"write ') == 2
            return re.sub(rb"write \S+|Content-Length: \d+", b"", answers[0]), answers[1:]
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))

    broker = compare(tmp_path, talk, mem_queue_size=0)
    assert broker.asked == []
    assert "NOK" in broker.registry.durability.health()
    assert broker.registry.topics.find("t").depth == 0


def test_topic_that_is_deleted_in_between(tmp_path):
    async def talk(broker):
        protocol, wire = broker.connect()
        protocol.data_received(PLAIN[0])
        broker.registry.topics.delete("t")
        protocol.data_received(PLAIN[0][:-1])
        protocol.data_received(PLAIN[0][-1:])
        protocol.data_received(PLAIN[0])
        return DATE.sub(b"", wire.written)

    broker = compare(tmp_path, talk)
    assert broker.asked == [b"/pub?topic=t"]  # which made it anew
    assert broker.registry.topics.find("t").message_count == 2


def test_peer_that_does_not_read_gets_no_more_answers(tmp_path):
    async def talk(broker):
        protocol, wire = broker.connect()
        wire.room = 2
        protocol.data_received(PLAIN[0])
        assert wire.is_reading
        protocol.data_received(PLAIN[0] * 1500)
        assert not wire.is_reading
        answered = wire.written.count(b"200 OK")
        assert answered < 1501
        protocol.data_received(PLAIN[0])  # was on its way
        assert wire.written.count(b"200 OK") == answered
        wire.room = None
        protocol.resume_writing()
        await asyncio.sleep(0)
        assert wire.is_reading
        asked = len(broker.asked)
        protocol.data_received(PLAIN[0])
        return asked == len(broker.asked), wire.written.count(b"200 OK")

    broker = HttpBroker(tmp_path / "one", has_shortcut=True)
    broker.registry.topics.ensure("t")
    assert asyncio.run(talk(broker)) == (True, 1503)
    broker.registry.topics.close()


def test_where_everyone_must_use_tls_there_is_no_shortcut(tmp_path):
    broker = HttpBroker(tmp_path / "one", has_shortcut=True, tls_required=TLS_REQUIRED)
    assert broker.shortcut is None
    broker.registry.topics.close()


def test_what_goes_wrong_inside_is_logged(caplog):
    assert reply(MemoryError()).startswith(b"HTTP/1.1 500 Internal Server Error\r\n")
    assert [record.exc_info[0] for record in caplog.records] == [MemoryError]
