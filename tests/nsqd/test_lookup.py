"""nsqlookupd slow, dead or wrong: nothing of the broker waits for it."""

import asyncio
import contextlib
import json
import socket
import struct
import time

import pytest
from nsqfast._ext.dev.probes import fix_parts

from nsqfast.nsqd import lookup
from nsqfast.nsqd.lookup import NAME_UNITS, LookupPeer, register
from support.lookupd import FakeLookupd, framed
from support.server import start_nsqd
from support.waiting import eventually
from support.web import post, request, topic_stats
from support.wire import Client

SECONDS_MAX = 50


@pytest.fixture
def lookupd():
    with FakeLookupd() as fake:
        yield fake


@pytest.fixture
def broker(lookupd, tmp_path):
    with start_nsqd("nsqfast", tmp_path, f"--lookupd-tcp-address={lookupd.address}") as server:
        lookupd.identity()
        # Until it has the answer, it tells nothing that is gone by then.
        server.wait_for_line("0 names to register")
        yield server


def test_names_are_told_in_their_order(broker, lookupd):
    expected = []
    for number in range(300):
        assert post(broker.http, f"/topic/create?topic=t{number}").status == 200
        assert post(broker.http, f"/channel/create?topic=t{number}&channel=c").status == 200
        assert post(broker.http, f"/topic/delete?topic=t{number}").status == 200
        names = b"t%d" % number
        expected += [b"REGISTER " + names, b"REGISTER " + names + b" c"]
        expected += [b"UNREGISTER " + names + b" c", b"UNREGISTER " + names]
    assert lookupd.commands(len(expected)) == expected


def test_a_lost_connection_is_made_again_without_being_asked(broker, lookupd):
    assert post(broker.http, "/topic/create?topic=t").status == 200
    assert lookupd.commands(1) == [b"REGISTER t"]
    for _ in range(3):
        lookupd.drop()
        assert lookupd.commands(1) == [None]
        lookupd.identity()
        assert lookupd.commands(1) == [b"REGISTER t"]


def test_who_hears_much_is_pinged_all_the_same(lookupd, monkeypatch):
    """nsqlookupd takes a node for dead that sends no PING."""
    monkeypatch.setattr(lookup, "PING_S", 0.2)

    async def talk():
        peer = LookupPeer(lookupd.address, dict, lambda: iter(()), 1 << 16)
        peer.start()
        await peer.was_tried.wait()
        deadline = time.monotonic() + SECONDS_MAX
        while lookupd.told.queue.count(b"PING") < 3:
            assert time.monotonic() < deadline
            peer.tell(register(("t", None)))
            await asyncio.sleep(0.02)
        await peer.stop()

    asyncio.run(talk())
    assert lookupd.told.queue.count(b"REGISTER t") > 3


def test_peers_that_are_no_nsqlookupd_are_tried_again(tmp_path):
    answers = [
        None,
        b"\xff\xff\xff\xff",
        struct.pack(">i", 1 << 30),
        framed(b"E_INVALID no"),
        framed(b"{}"),
        framed(b'{"broadcast_address":"a","http_port":-1}'),
        framed(b'{"broadcast_address":["a"],"http_port":1}'),
        framed(b"two\nlines"),
    ]
    with FakeLookupd() as right, contextlib.ExitStack() as stack:
        wrong = [stack.enter_context(FakeLookupd()) for _ in answers]
        for peer, answer in zip(wrong, answers, strict=True):
            peer.answer = lambda _line, answer=answer: answer
        flags = [f"--lookupd-tcp-address={peer.address}" for peer in (*wrong, right)]
        with start_nsqd("nsqfast", tmp_path, *flags) as broker:
            for peer in (right, *wrong):
                peer.identity()
            for peer in wrong:
                assert peer.commands(1) == [None]
                broker.wait_for_line(f"LOOKUPD({peer.address}): ")
            with Client(broker.tcp) as client:
                client.pub("t", b"x")
            assert right.commands(1) == [b"REGISTER t"]
            for peer in wrong:
                peer.identity()
            assert (tmp_path / "nsqd.dat").exists()


def test_a_silent_peer_delays_nobody(tmp_path):
    """Not even a stop: its listener never accepts."""
    with socket.create_server(("127.0.0.1", 0), backlog=0) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        flags = [f"--lookupd-tcp-address={address}"]
        with start_nsqd("nsqfast", tmp_path, *flags) as broker, Client(broker.tcp) as client:
            begun = time.monotonic()
            for number in range(200):
                client.pub(f"t{number}", b"x")
            assert time.monotonic() - begun < SECONDS_MAX / 2
            metadata = tmp_path / "nsqd.dat"
            eventually(lambda: len(json.loads(metadata.read_bytes())["topics"] or ()) >= 200)


def test_messages_wait_for_the_channels_and_nothing_else_does(broker, lookupd):
    lookupd.channels["slow"] = ["known"]
    lookupd.may_answer.clear()
    with Client(broker.tcp) as client, Client(broker.tcp) as early, Client(broker.tcp) as known:
        client.pub("slow", b"first")
        early.sub("slow", "early", 10)
        client.pub("slow", b"second")
        # Another topic asks as well, and another connection is served meanwhile.
        assert topic_stats(broker.http, "slow")["depth"] == 2
        lookupd.may_answer.set()
        assert [message.body for message in early.read_messages(2)] == [b"first", b"second"]
        known.sub("slow", "known", 10)
        assert [message.body for message in known.read_messages(2)] == [b"first", b"second"]


@pytest.mark.parametrize("was_there", [True, False])
def test_a_channel_deleted_while_the_answer_is_on_its_way(broker, lookupd, was_there):
    """It does not come back with the answer."""
    lookupd.channels["t"] = ["deleted", "known"]
    lookupd.may_answer.clear()
    with Client(broker.tcp) as client:
        client.pub("t", b"x")
        assert lookupd.asked.get(timeout=SECONDS_MAX)
        if was_there:
            assert post(broker.http, "/channel/create?topic=t&channel=deleted").status == 200
        answer = post(broker.http, "/channel/delete?topic=t&channel=deleted")
        assert answer.status == (200 if was_there else 404)
        lookupd.may_answer.set()
        told = lookupd.commands(2 + 2 * was_there)
        assert told[-1] == b"REGISTER t known"
        assert topic_stats(broker.http, "t")["channels"].keys() == {"known"}
        # Nothing of that is remembered: who wants the channel later gets it.
        client.sub("t", "deleted", 1)
        assert topic_stats(broker.http, "t")["channels"].keys() == {"known", "deleted"}


def test_no_more_channels_are_made_than_there_may_be(tmp_path, lookupd):
    lookupd.channels["t"] = ["a", "b", "c"]
    flags = [f"--lookupd-tcp-address={lookupd.address}", "--max-channels-per-topic=2"]
    with start_nsqd("nsqfast", tmp_path, *flags) as broker:
        lookupd.identity()
        with Client(broker.tcp) as client:
            client.pub("t", b"x")
        broker.wait_for_line("channel t:c not created, --max-channels-per-topic=2 is reached")
        assert topic_stats(broker.http, "t")["channels"].keys() == {"a", "b"}


def test_a_redirect_is_not_followed(broker, lookupd):
    with FakeLookupd() as elsewhere:
        elsewhere.channels["t"] = ["c"]
        port = elsewhere._http.server_address[1]
        lookupd.redirect = f"http://127.0.0.1:{port}/channels?topic=t"
        with Client(broker.tcp) as client:
            client.pub("t", b"x")
        broker.wait_for_line("no channels of topic t - answered with 302")
        assert elsewhere.asked.empty()


def test_a_topic_goes_on_without_an_answer(tmp_path, lookupd):
    lookupd.may_answer.clear()
    flags = [f"--lookupd-tcp-address={lookupd.address}", "--http-client-request-timeout=200ms"]
    with start_nsqd("nsqfast", tmp_path, *flags) as broker, Client(broker.tcp) as client:
        lookupd.identity()
        client.pub("t", b"x")
        client.sub("t", "c", 1)
        assert client.read_message().body == b"x"
        broker.wait_for_line("no channels of topic t - ")


def test_a_topic_that_is_deleted_while_it_waits(broker, lookupd):
    lookupd.channels["t"] = ["c"]
    lookupd.may_answer.clear()
    with Client(broker.tcp) as client:
        client.pub("t", b"old")
        assert lookupd.asked.get(timeout=SECONDS_MAX)
        assert post(broker.http, "/topic/delete?topic=t").status == 200
        client.pub("t", b"new")
        lookupd.may_answer.set()
        client.sub("t", "c", 2)
        assert client.read_message().body == b"new"
        assert topic_stats(broker.http, "t")["message_count"] == 1


def test_names_that_are_no_names_are_not_made(broker, lookupd):
    lookupd.channels["t"] = ["good", "bad!name", "", "x" * 65, "some#ephemeral"]
    with Client(broker.tcp) as client:
        client.pub("t", b"x")
    assert set(lookupd.commands(2)) == {b"REGISTER t", b"REGISTER t good"}
    assert topic_stats(broker.http, "t")["channels"].keys() == {"good"}


def test_a_stop_while_topics_wait_loses_nothing(tmp_path, lookupd):
    lookupd.channels["t"] = ["c"]
    lookupd.may_answer.clear()
    flags = [f"--lookupd-tcp-address={lookupd.address}"]
    with start_nsqd("nsqfast", tmp_path, *flags) as broker:
        lookupd.identity()
        with Client(broker.tcp) as client:
            client.pub("t", b"kept")
            assert lookupd.asked.get(timeout=SECONDS_MAX)
    with start_nsqd("nsqfast", tmp_path) as broker, Client(broker.tcp) as client:
        client.sub("t", "c", 1)
        assert client.read_message().body == b"kept"


@pytest.mark.parametrize("address", ["nowhere", "127.0.0.1", "127.0.0.1:1", "[::1]:1"])
def test_addresses_that_lead_nowhere(broker, lookupd, address):
    addresses = json.dumps([address, lookupd.address]).encode()
    answer = request(broker.http, "PUT", "/config/nsqlookupd_tcp_addresses", addresses)
    assert answer.status == 200
    broker.wait_for_line(f"LOOKUPD({address}): ")
    assert post(broker.http, "/topic/create?topic=t").status == 200
    assert lookupd.commands(1) == [b"REGISTER t"]


def test_a_topic_does_not_wait_for_a_peer_that_is_no_peer_any_more(tmp_path, lookupd):
    """It is removed before it was known whether it answers."""
    lookupd.answer = lambda _line: None
    flags = [f"--lookupd-tcp-address={lookupd.address}"]
    with start_nsqd("nsqfast", tmp_path, *flags) as broker, Client(broker.tcp) as client:
        client.pub("t", b"x")
        lookupd.identity()
        assert request(broker.http, "PUT", "/config/nsqlookupd_tcp_addresses", b"[]").status == 200
        client.sub("t", "c", 1)
        assert client.read_message().body == b"x"


def test_an_answer_that_comes_in_many_pieces(broker, lookupd):
    lookupd.channels["t"] = ["good", *["!" * 1000] * 3000]
    with Client(broker.tcp) as client:
        client.pub("t", b"x")
    assert set(lookupd.commands(2)) == {b"REGISTER t", b"REGISTER t good"}


def test_an_answer_without_end(broker, lookupd):
    lookupd.channels["t"] = ["good", *["!" * 1000] * 17000]
    with Client(broker.tcp) as client:
        client.pub("t", b"x")
        broker.wait_for_line("no channels of topic t - an answer of more than")
        client.sub("t", "c", 1)
        assert client.read_message().body == b"x"


def test_an_answer_that_is_packed_is_not_unpacked(broker, lookupd):
    """So it cannot expand."""
    lookupd.is_packed = True
    with Client(broker.tcp) as client:
        client.pub("t", b"x")
        broker.wait_for_line("no channels of topic t - ")
        client.sub("t", "c", 1)
        assert client.read_message().body == b"x"


def test_names_are_gathered_in_parts(lookupd):
    """The loop turns between each ten of them."""
    turns = 0
    seen = []

    def names():
        for number in range(100):
            seen.append(turns)
            yield f"t{number}", None

    async def talk():
        nonlocal turns
        peer = LookupPeer(lookupd.address, dict, names, 1 << 16)
        peer.start()
        while len(seen) < 100:
            await asyncio.sleep(0)
            turns += 1
        told = await asyncio.to_thread(lookupd.commands, 100)
        await peer.stop()
        return told

    fix_parts(10 * NAME_UNITS)
    try:
        told = asyncio.run(talk())
    finally:
        fix_parts(0)
    # The first thing it hears is who the broker is.
    assert [line for line in told if line[0] != "IDENTIFY"][:99] == [
        b"REGISTER t%d" % number for number in range(99)
    ]
    assert max(map(seen.count, seen)) <= 10


@pytest.mark.parametrize("turns", range(5))
async def test_it_stops_together_with_a_change_of_names(turns):
    """While it waits to connect again; asyncio.wait_for of Python 3.11 lost the cancellation."""
    with socket.create_server(("127.0.0.1", 0)) as held:
        address = f"127.0.0.1:{held.getsockname()[1]}"
    peer = LookupPeer(address, dict, lambda: iter(()), 1 << 20)  # nobody listens there any more
    peer.start()
    await peer.was_tried.wait()
    for _ in range(10):  # until it waits
        await asyncio.sleep(0)
    peer.tell(b"")
    for _ in range(turns):
        await asyncio.sleep(0)
    async with asyncio.timeout(SECONDS_MAX):
        await peer.stop()
