"""Addresses as people type them: one or several, with a scheme, without a port, or those of another service."""

import asyncio
import logging

import pytest

from nsqfast.client import Config, Consumer, OptionsError, Producer, WrongPeerError
from nsqfast.client import sync as threaded
from support.fake_nsqd import FakeNsqd
from support.server import start_nsqlookupd
from support.waiting import until


@pytest.fixture(scope="module")
def lookupd(implementation):
    server = start_nsqlookupd(implementation)
    yield server
    server.kill()


def place(address):
    return "{}:{}".format(*address)


@pytest.mark.parametrize("form", [lambda a: (a,), lambda a: ([a],), lambda a: ((a,), a)])
def test_one_or_several(run, address, topic, form):
    async def main():
        async with Producer(*form(address)) as producer:
            await producer.publish(topic, b"x")
            assert list(producer.stats().connections) == [address]
        for nsqd in (address, [address], (address, address), {address}, iter([address])):
            async with Consumer(topic, "c", nsqd=nsqd) as consumer:
                assert list(consumer.stats().connections) == [address]

    run(main())
    with threaded.Producer(*form(address)) as producer:
        producer.publish(topic, b"x")


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("tcp://127.0.0.1:4150", "without tcp://; say '127.0.0.1:4150'"),
        ("http://127.0.0.1:4151", "without http://; say nsqd's TCP port, 4150 as a rule"),
        ("127.0.0.1", "the port is missing (4150 as a rule)"),
        ("nsqd.example", "the port is missing (4150 as a rule)"),
        ("127.0.0.1:", "an address of nsqd is host:port, or a path"),
        ("127.0.0.1:x", "an address of nsqd is host:port, or a path"),
        (":4150", "an address of nsqd is host:port, or a path"),
        (4150, "an address is a text, host:port"),
        (None, "an address is a text, host:port"),
    ],
)
def test_no_addresses_of_nsqd(text, error):
    for make in (
        lambda: Producer(text),
        lambda: Consumer("t", "c", nsqd=text),
        lambda: Producer([text]),
        lambda: Consumer("t", "c", nsqd=[text]),
        lambda: threaded.Producer([text]),
        lambda: threaded.Consumer("t", "c", nsqd=[text]),
    ):
        with pytest.raises(OptionsError) as refused:
            make()
        assert str(refused.value).startswith(f"{text!r}: ")
        assert error in str(refused.value)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("tcp://127.0.0.1:4160", "asked over HTTP; say host:port (4161 as a rule), without tcp://"),
        ("127.0.0.1", "missing port (its HTTP port is 4161 as a rule)"),
        ("http://127.0.0.1", "missing port (its HTTP port is 4161 as a rule)"),
    ],
)
def test_no_addresses_of_nsqlookupd(text, error):
    with pytest.raises(OptionsError) as refused:
        Consumer("t", "c", nsqlookupd=text)
    assert error in str(refused.value)


def wrong_peer(run, make):
    """What a start says, and that it says it at once."""

    async def main():
        with pytest.raises(WrongPeerError) as wrong:
            async with asyncio.timeout(20), make():
                pass
        return str(wrong.value)

    return run(main())


def test_the_http_port_of_an_nsqd_as_nsqlookupd(run, broker, topic):
    said = wrong_peer(run, lambda: Consumer(topic, "c", nsqlookupd=place(broker.http)))
    assert "this is the HTTP port of an nsqd, not an nsqlookupd" in said
    assert place(broker.http) in said


def test_an_nsqd_as_nsqlookupd(run, address, topic):
    said = wrong_peer(run, lambda: Consumer(topic, "c", nsqlookupd=address))
    assert "this is the TCP port of an nsqd; give it as nsqd=, or nsqlookupd's HTTP port" in said


def test_the_tcp_port_of_an_nsqlookupd(run, lookupd, topic):
    said = wrong_peer(run, lambda: Consumer(topic, "c", nsqlookupd=place(lookupd.tcp)))
    assert "this is nsqlookupd's TCP port; give its HTTP port" in said


def test_an_nsqlookupd_as_nsqd(run, lookupd, topic):
    for make in (
        lambda: Consumer(topic, "c", nsqd=place(lookupd.tcp)),
        lambda: Producer(place(lookupd.tcp)),
    ):
        assert "this is the TCP port of an nsqlookupd" in wrong_peer(run, make)


def test_http_ports_as_nsqd(run, broker, lookupd, topic):
    for address in (broker.http, lookupd.http):
        for make in (
            lambda address=address: Consumer(topic, "c", nsqd=place(address)),
            lambda address=address: Producer(place(address)),
        ):
            assert wrong_peer(run, make) == (
                f"{place(address)}: this is an HTTP port; give the TCP port of an nsqd (4150 as a rule)"
            )


def test_one_that_is_wrong_beside_one_that_is_right(run, broker, address, lookupd, topic, caplog):
    """The right one works; the wrong one is a warning, said once and not at each poll."""

    polls = []

    async def main():
        config = Config(lookupd_poll_interval="20ms")
        where = {"nsqlookupd": [place(broker.http), place(lookupd.http)], "config": config}
        async with (
            Producer(address) as producer,
            Consumer(topic, "c", nsqd=address, choose_nodes=note_poll, **where) as consumer,
        ):
            await producer.publish(topic, b"x")
            (await anext(aiter(consumer))).finish()
            await until(lambda: "this is the HTTP port of an nsqd" in caplog.text)
            count = len(polls)
            await until(lambda: len(polls) > count + 5)

    def note_poll(listed):
        polls.append(listed)
        return listed

    with caplog.at_level(logging.WARNING):
        run(main())
    assert caplog.text.count("this is the HTTP port of an nsqd") == 1


async def test_an_nsqd_whose_refusal_comes_in_pieces(topic):
    """As Go's does now and then. The first connection ends with the first piece, which is no HTTP."""

    async def refuse(peer):
        await peer.reader.readexactly(4)
        peer.writer.write(b"\0\0\0\x12")
        if fake.connections == 1:
            await peer.read_to_end()
            return
        for piece in (b"\0\0\0\1E_BAD", b"_PROTOCOL"):
            # So that they are pieces; nothing says when the client has read one.
            await asyncio.sleep(0.01)
            peer.writer.write(piece)

    async with FakeNsqd(refuse) as fake:
        with pytest.raises(WrongPeerError, match="this is the TCP port of an nsqd"):
            await Consumer(topic, "c", nsqlookupd=fake.address).start()
