"""nsqlookupd: what is asked, how answers are read, and what a consumer makes of them."""

import asyncio
import contextlib
import gzip
import json
import logging

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from nsqfast.client import Config, ConnectError, Consumer, OptionsError, Producer
from nsqfast.client.discovery import (
    ANSWER_SIZE_MAX,
    Discovery,
    addresses_in,
    lookup_url,
    poll_pause_s,
)
from support.fake_lookup import Lookupd
from support.fake_nsqd import FakeNsqd
from support.server import start_nsqd, start_nsqlookupd
from support.waiting import until


async def answers(addresses, topic="t", config=None):
    discovery = Discovery(addresses, topic, config or Config())
    try:
        return [answer async for answer in discovery.poll()]
    finally:
        await discovery.close()


@pytest.mark.parametrize(
    ("address", "url"),
    [
        ("host:4161", "http://host:4161/lookup?topic=t%23ephemeral"),
        ("http://host:4161", "http://host:4161/lookup?topic=t%23ephemeral"),
        ("https://host:4161/", "https://host:4161/lookup?topic=t%23ephemeral"),
        ("http://host:1/other?a=b", "http://host:1/other?a=b&topic=t%23ephemeral"),
        ("[::1]:4161", "http://[::1]:4161/lookup?topic=t%23ephemeral"),
    ],
)
def test_urls(address, url):
    assert lookup_url(address, "t#ephemeral") == url


@pytest.mark.parametrize("address", ["host", "http://host", "host:port", ":1", ""])
def test_no_urls(address):
    with pytest.raises(OptionsError, match="missing port"):
        lookup_url(address, "t")


@pytest.mark.slow
async def test_an_answer_that_is_too_large_is_not_read_to_its_end():
    sent_size = 0

    async def answer(request):
        nonlocal sent_size
        response = web.StreamResponse()
        await response.prepare(request)
        piece = b" " * (1 << 20)
        with contextlib.suppress(ConnectionError):
            while True:
                await response.write(piece)
                sent_size += len(piece)
        return response

    app = web.Application()
    app.router.add_get("/lookup", answer)
    async with TestServer(app, host="127.0.0.1") as server:
        (found,) = await answers([f"127.0.0.1:{server.port}"])
    assert "more than 16777216 bytes" in str(found.error)
    assert sent_size < 4 * ANSWER_SIZE_MAX


async def test_a_packed_answer_is_not_unpacked():
    async with Lookupd() as lookupd:
        lookupd.answer = lambda: web.Response(
            body=gzip.compress(listed("a", 4150)), headers={"Content-Encoding": "gzip"}
        )
        (found,) = await answers([lookupd.address])
        (request,) = lookupd.requests
    assert request.headers["Accept-Encoding"] == "identity"
    assert (found.addresses, "packed ('gzip')" in str(found.error)) == (frozenset(), True)


def listed(host, port):
    return json.dumps({"producers": [{"broadcast_address": host, "tcp_port": port}]}).encode()


@pytest.mark.parametrize(
    "reply",
    [
        *(b"", b"{", b"[]", b'{"producers": [{}]}', b'{"producers": 3}', b'{"producers": "abc"}'),
        *(listed(host, 4150) for host in ([], {}, None, 1)),
        *(listed("a", port) for port in ("4150", 1.5, None, True)),
    ],
)
def test_no_answers(reply):
    with pytest.raises(ConnectError, match="not an answer of nsqlookupd"):
        addresses_in(reply, is_bare=True)


@pytest.mark.parametrize(
    ("host", "port"),
    [
        *((host, 4150) for host in ("", "a b", "a/b", "[::1]", "a\n", "\0")),
        *(("a", port) for port in (0, -1, 65536)),
    ],
)
def test_nodes_that_cannot_be_reached_are_left_out(host, port, caplog):
    """An nsqd that listens on a Unix socket says that its port is -1; the others count."""
    nodes = json.loads(listed("b", 4150))["producers"] + json.loads(listed(host, port))["producers"]
    assert addresses_in(json.dumps({"producers": nodes}).encode(), is_bare=True) == {"b:4150"}
    assert "is left out" in caplog.text


def test_pauses_are_never_longer_than_the_interval():
    config = Config(lookupd_poll_interval="10s", lookupd_poll_jitter=0.3)
    assert poll_pause_s(config, lambda: 0.0) == 10
    assert poll_pause_s(config, lambda: 0.999) == pytest.approx(7, abs=0.01)
    assert poll_pause_s(Config(lookupd_poll_jitter=0), lambda: 0.5) == 60


@pytest.mark.parametrize("old", [False, True])
async def test_the_request_and_both_kinds_of_answer(old):
    async with Lookupd("10.0.0.1:4150", "::1:4151", old=old) as lookupd:
        (answer,) = await answers([lookupd.address])
        assert answer.addresses == {"10.0.0.1:4150", "[::1]:4151"}
        (request,) = lookupd.requests
        assert request.path == "/lookup"
        assert request.query == {"topic": "t"}
        assert request.headers["Accept"] == "application/vnd.nsq; version=1.0"
        assert "Authorization" not in request.headers


@pytest.mark.parametrize("sent", [True, False])
async def test_the_secret(sent):
    """The option's name says the opposite of what it does, in go-nsq as here."""
    config = Config(auth_secret="x", skip_lookupd_authorization=sent)
    async with Lookupd() as lookupd:
        await answers([lookupd.address], config=config)
        assert lookupd.requests[0].headers.get("Authorization") == ("Bearer x" if sent else None)


async def test_all_are_asked_and_one_that_fails_costs_nothing():
    async with Lookupd("a:1") as one, Lookupd("b:2") as two, Lookupd() as bad, Lookupd() as new:
        bad.answer = lambda: web.Response(status=500, text="oops")
        new.answer = lambda: web.json_response({"message": "TOPIC_NOT_FOUND"}, status=404)
        found = await answers([one.address, bad.address, "127.0.0.1:1", two.address, new.address])
    listed = [answer.addresses for answer in found if answer.error is None]
    assert sorted(map(sorted, listed)) == [[], ["a:1"], ["b:2"]]
    assert [answer.is_known for answer in found].count(False) == 1
    errors = [str(answer.error) for answer in found if answer.error is not None]
    assert len(errors) == 2
    assert any("500" in error and "oops" in error for error in errors)
    assert any("127.0.0.1:1/lookup" in error for error in errors)


async def test_a_slow_one_delays_nothing(address, topic):
    """A consumer works with what the others say."""
    async with Producer(address) as producer:
        await producer.publish(topic, b"x")
    async with Lookupd(address) as quick, Lookupd() as slow:
        slow.release = asyncio.Event()
        config = Config(dial_timeout="100ms")
        where = [slow.address, quick.address]
        async with Consumer(topic, "c", nsqlookupd=where, config=config) as consumer:
            (await anext(aiter(consumer))).finish()
            slow.release.set()


async def test_new_nodes_are_taken_up_and_old_ones_kept():
    """What vanishes from the list keeps its connection, and is forgotten when that is lost."""

    async def subscriber(peer):
        await peer.subscribe()
        await peer.part()

    is_over = asyncio.Event()

    async def hang_up(peer):
        await peer.subscribe()
        await is_over.wait()

    async with FakeNsqd(subscriber) as first, Lookupd(first.address) as lookupd:
        config = Config(lookupd_poll_interval="20ms", max_in_flight=10)
        async with Consumer("t", "c", nsqlookupd=lookupd.address, config=config) as consumer:
            assert set(consumer.stats().connections) == {first.address}
            async with FakeNsqd(hang_up) as second:
                lookupd.addresses = [second.address]
                await until(lambda: second.address in consumer.stats().connections)
                await until(lambda: consumer.stats().connections[second.address].is_connected)
                polls = len(lookupd.requests)
                await until(lambda: len(lookupd.requests) > polls + 2)
                assert consumer.stats().connections[first.address].is_connected
                lookupd.addresses = [first.address]
                is_over.set()
            await until(lambda: set(consumer.stats().connections) == {first.address})


async def test_who_consumes_chooses_nodes(caplog):
    """Fewer than are listed, or others; what its choice raises leaves everything as it was."""

    async def subscriber(peer):
        await peer.subscribe()
        await peer.part()

    def choose(listed):
        asked.append(listed)
        return choices[0](listed)

    asked, choices = [], [lambda listed: listed[1:]]
    async with FakeNsqd(subscriber) as first, FakeNsqd(subscriber) as second:
        addresses = sorted([first.address, second.address])
        async with Lookupd(*reversed(addresses)) as lookupd:
            config = Config(lookupd_poll_interval="20ms", max_in_flight=10)
            where = {"nsqlookupd": lookupd.address, "config": config}
            async with Consumer("t", "c", **where, choose_nodes=choose) as consumer:
                assert set(consumer.stats().connections) == {addresses[1]}
                assert asked[0] == addresses
                choices[0] = lambda _listed: 1 / 0
                polls = len(asked)
                await until(lambda: len(asked) > polls + 1)
                assert set(consumer.stats().connections) == {addresses[1]}
                choices[0] = lambda _listed: (address for address in addresses[:1])
                await until(lambda: addresses[0] in consumer.stats().connections)
                await until(lambda: consumer.stats().connections[addresses[0]].is_connected)
    assert "choose_nodes failed" in caplog.text


async def test_a_topic_that_comes_later(address, topic, caplog):
    caplog.set_level(logging.WARNING)
    async with Lookupd() as lookupd:
        lookupd.answer = lambda: web.json_response({"message": "TOPIC_NOT_FOUND"}, status=404)
        config = Config(lookupd_poll_interval="20ms")
        async with Consumer(topic, "c", nsqlookupd=lookupd.address, config=config) as consumer:
            await until(lambda: len(lookupd.requests) > 2)
            async with Producer(address) as producer:
                await producer.publish(topic, b"x")
            lookupd.addresses, lookupd.answer = [address], None
            assert (await anext(aiter(consumer))).finish()
    assert "404" not in caplog.text


async def test_a_broken_connection_asks_at_once():
    """The node may be somewhere else by now; an hour's interval is not waited for."""

    async def stay(peer):
        await peer.subscribe()
        await peer.part()

    async with FakeNsqd(stay) as new, Lookupd() as lookupd:

        async def move(peer):
            await peer.subscribe()
            await peer.expect("RDY")
            lookupd.addresses = [new.address]
            old.stop_listening()

        async with FakeNsqd(move) as old:
            lookupd.addresses = [old.address]
            config = Config(lookupd_poll_interval="5m", lookupd_poll_jitter=0)
            async with Consumer("t", "c", nsqlookupd=lookupd.address, config=config) as consumer:
                await until(lambda: new.address in consumer.stats().connections)
                await until(lambda: consumer.stats().connections[new.address].is_connected)


async def test_a_cluster(implementation, topic, tmp_path_factory):
    """Two real nsqlookupd, a node that dies, one that comes later; all is consumed, one nsqlookupd dead at the end."""

    async def take(consumer, count):
        async for message in consumer:
            message.finish()
            count -= 1
            if not count:
                break

    lookupds = [start_nsqlookupd(implementation) for _ in range(2)]
    flags = ["--lookupd-tcp-address={}:{}".format(*lookupd.tcp) for lookupd in lookupds]
    nodes = []

    def start_node():
        nodes.append(start_nsqd(implementation, tmp_path_factory.mktemp("n"), *flags))
        return "{}:{}".format(*nodes[-1].tcp)

    try:
        addresses = [start_node(), start_node()]
        for address in addresses:
            async with Producer(address) as producer:
                await producer.publish_many(topic, [address.encode()] * 50)
        where = ["{}:{}".format(*lookupd.http) for lookupd in lookupds]
        config = Config(max_in_flight=20, lookupd_poll_interval="50ms")
        async with Consumer(topic, "c", nsqlookupd=where, config=config) as consumer:
            await take(consumer, 100)
            assert set(consumer.stats().connections) == set(addresses)
            nodes[0].kill()
            lookupds[0].kill()
            addresses.append(await asyncio.to_thread(start_node))
            async with Producer(addresses[1], addresses[2]) as producer:
                await until(lambda: all(producer.stats().connections.values()))
                for number in range(40):
                    await producer.publish(topic, b"%d" % number)
            await take(consumer, 40)
            connections = consumer.stats().connections
            assert [connections[address].is_connected for address in addresses[1:]] == [
                True,
                True,
            ]
    finally:
        for server in [*nodes, *lookupds]:
            server.kill()
