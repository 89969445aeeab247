"""One connection to a broker that misbehaves, byte by byte: framing, layers, heartbeats, deadlines."""

import asyncio
import json
import logging

import pytest

from nsqfast.client import Config, ConnectError, Consumer, OptionsError, RefusedError
from nsqfast.client.addresses import check_address, local_address
from nsqfast.client.connection import (
    dial,
    make_producer_connection,
    tls_context,
)
from nsqfast.errors import ProtocolError, WrongPeerError
from nsqfast.streams.deflate import Deflate
from nsqfast.streams.snappy import Snappy
from support.fake_nsqd import ANSWER, FakeNsqd
from support.waiting import until
from support.wire import MESSAGE, RESPONSE, encode_frame

SLOW = Config(max_in_flight=10, max_backoff_duration_s=0)


async def connect(address, config=None, closed=lambda _: None):
    config = config or Config()
    return await dial(address, config, tls_context(config), make_producer_connection(closed))


async def consume(address, count, config=SLOW):
    """The bodies of that many messages, finished."""
    async with Consumer("t", "c", nsqd=address, config=config) as consumer:
        bodies = []
        async for message in consumer:
            bodies.append(message.body)
            message.finish()
            if len(bodies) == count:
                break
    return bodies


async def test_what_is_said_of_oneself(loop_factory):
    said = asyncio.get_running_loop().create_future()

    async def script(peer):
        said.set_result(await peer.greet())
        await peer.read_to_end()

    async with FakeNsqd(script) as fake:
        connection, features = await connect(
            fake.address, Config(client_id="me", hostname="here.example")
        )
        connection.close()
        identity = await said
    assert features.max_rdy_count == 2500
    assert identity == {
        "client_id": "me",
        "hostname": "here.example",
        "short_id": "me",
        "long_id": "here.example",
        "user_agent": identity["user_agent"],
        "tls_v1": False,
        "deflate": False,
        "deflate_level": 6,
        "snappy": False,
        "feature_negotiation": True,
        "heartbeat_interval": 30000,
        "sample_rate": 0,
        "output_buffer_size": 16384,
        "output_buffer_timeout": 250,
        "msg_timeout": 0,
        "nsqfast_deferred_ids": True,
    }
    assert identity["user_agent"].startswith("nsqfast/")


@pytest.mark.parametrize("size", [1, 3, 7, 1000])
async def test_frames_in_pieces(loop_factory, size):
    bodies = [b"", b"x", b"y" * 500, b"z" * 200_000] if size == 1000 else [b"", b"x", b"y" * 500]

    async def script(peer):
        await peer.subscribe()
        await peer.expect("RDY")
        head = bytes(8) + b"\0\1"
        stream = b"".join(
            encode_frame(MESSAGE, head + b"%016x" % number + body)
            for number, body in enumerate(bodies)
        )
        for start in range(0, len(stream), size):
            peer.writer.write(stream[start : start + size])
            await peer.writer.drain()
            await asyncio.sleep(0)
        for number in range(len(bodies)):
            parameters, _ = await peer.expect("FIN")
            assert parameters == [f"{number:016x}"]
        await peer.part()

    async with FakeNsqd(script) as fake:
        assert await consume(fake.address, len(bodies)) == bodies


@pytest.mark.parametrize("layer", [Deflate(6), Snappy()], ids=["deflate", "snappy"])
async def test_a_packed_ok_in_the_same_read_as_the_answer(layer):
    """The broker need not wait between its JSON and what is packed."""
    name = type(layer).__name__.lower()
    answered = asyncio.Event()

    async def script(peer):
        assert await peer.reader.readexactly(4) == b"  V2"
        await peer.expect("IDENTIFY")
        answer = encode_frame(RESPONSE, json.dumps({**ANSWER, name: True}).encode())
        packed = layer.pack(encode_frame(RESPONSE, b"OK") + encode_frame(RESPONSE, b"_heartbeat_"))
        peer.writer.write(answer + packed)
        data = b""
        while data != b"NOP\n":
            data += b"".join(layer.unpack(await peer.reader.readexactly(1)))
        answered.set()
        await peer.read_to_end()

    async with FakeNsqd(script) as fake:
        connection, features = await connect(fake.address, Config(**{name: True}))
        assert getattr(features, name)
        assert connection.layer is not None
        connection.flush()
        await answered.wait()
        connection.close()


async def test_a_broker_that_negotiates_nothing():
    async def script(peer):
        assert await peer.reader.readexactly(4) == b"  V2"
        await peer.expect("IDENTIFY")
        peer.respond(b"OK")
        await peer.read_to_end()

    async with FakeNsqd(script) as fake:
        connection, features = await connect(fake.address, Config(snappy=True))
        assert features.max_rdy_count == 2500
        assert connection.layer is None
        connection.close()
        with pytest.raises(RefusedError, match="TLS is asked for"):
            await connect(fake.address, Config(tls_v1=True))


@pytest.mark.parametrize(
    ("reply", "kind", "error"),
    [
        (
            b"HTTP/1.1 400 Bad Request\r\n\r\n",
            WrongPeerError,
            "this is an HTTP port; give the TCP port",
        ),
        (b"\0\0\0\x0eE_BAD_PROTOCOL", WrongPeerError, "this is the TCP port of an nsqlookupd"),
        (b"NOSQ/1.1", ProtocolError, "is this the TCP port"),
        (b"\0\0\0\3abc", ProtocolError, "a frame of 3 bytes"),
        (encode_frame(9, b"?"), ProtocolError, "a frame of type 9"),
        (encode_frame(2, b"short"), ProtocolError, "a frame of type 2 with 5 bytes"),
        (encode_frame(2, bytes(26)), ProtocolError, "a message without a subscription"),
        (encode_frame(1, b"E_BAD_BODY IDENTIFY no"), RefusedError, "E_BAD_BODY IDENTIFY no"),
        (encode_frame(0, b"{"), ProtocolError, "not JSON"),
        (encode_frame(0, b'{"max_rdy_count":"1"}'), ProtocolError, "max_rdy_count"),
        (encode_frame(0, b'{"max_rdy_count":-1}'), ProtocolError, "max_rdy_count"),
        (encode_frame(0, b'{"msg_timeout":1.5}'), ProtocolError, "msg_timeout"),
        (encode_frame(0, b'{"snappy":"yes"}'), ProtocolError, "snappy"),
        (b"", ConnectError, "nsqd closed the connection"),
    ],
)
async def test_bad_answers(reply, kind, error):
    async def script(peer):
        await peer.reader.readexactly(4)
        await peer.expect("IDENTIFY")
        peer.writer.write(reply)
        await peer.writer.drain()

    async with FakeNsqd(script) as fake:
        with pytest.raises(kind, match=error):
            await connect(fake.address)


async def test_nobody_listens(dead):
    with pytest.raises(ConnectError, match="refused"):
        await connect(dead)
    with pytest.raises(ConnectError):
        await connect("/nowhere/nsqd.sock")


async def test_silence_instead_of_an_answer(monkeypatch):
    monkeypatch.setattr("nsqfast.client.connection.HANDSHAKE_TIMEOUT_S", 0.02)
    async with FakeNsqd(lambda peer: peer.read_to_end()) as fake:
        with pytest.raises(ConnectError, match="no answer to IDENTIFY"):
            await connect(fake.address)


async def test_silence_later():
    """Nothing for read_timeout, not even a heartbeat."""

    async def script(peer):
        await peer.greet()
        await peer.read_to_end()

    closed = asyncio.get_running_loop().create_future()
    config = Config(read_timeout="100ms", heartbeat_interval="100ms")
    async with FakeNsqd(script) as fake:
        connection, _ = await connect(fake.address, config, closed.set_result)
        assert await closed is connection
    assert str(connection.error) == "nothing came for 0.1 s"


async def test_a_peer_that_does_not_read():
    """Writing makes no progress for write_timeout; while there is some, it may take as long as it likes."""
    closed = asyncio.get_running_loop().create_future()

    async def script(peer):
        await peer.greet()
        peer.writer.transport.pause_reading()
        await asyncio.wait([closed])

    async with FakeNsqd(script) as fake:
        connection, _ = await connect(
            fake.address, Config(write_timeout="100ms"), closed.set_result
        )
        connection.tell(b"x" * (64 << 20))
        await closed
    assert str(connection.error) == "nothing could be written for 0.1 s"


async def test_heartbeats_are_answered_while_handlers_are_busy(loop_factory):
    """go-nsq's reader waits for a free handler, and its NOP comes late."""
    answered = asyncio.Event()

    async def script(peer):
        await peer.subscribe()
        await peer.expect("RDY")
        for number in range(10):
            peer.deliver(number)
        peer.respond(b"_heartbeat_")
        await peer.expect("NOP")
        answered.set()
        for _ in range(10):
            await peer.expect("FIN")
        consumer.request_stop()
        await peer.part()

    async with FakeNsqd(script) as fake:
        consumer = Consumer("t", "c", nsqd=fake.address, config=SLOW)
        await consumer.run(lambda _: answered.wait())


async def test_a_loop_over_messages_lets_the_event_loop_have_its_turn():
    """Messages that are all there already must not keep heartbeats waiting while each takes some time."""
    turns = 0

    async def script(peer):
        await peer.subscribe()
        await peer.expect("RDY")
        for number in range(20):
            peer.deliver(number)
        await peer.part()

    def count():
        nonlocal turns
        turns += 1
        asyncio.get_running_loop().call_soon(count) if turns < 1000 else None

    async with (
        FakeNsqd(script) as fake,
        Consumer("t", "c", nsqd=fake.address, config=SLOW) as consumer,
    ):
        await until(lambda: consumer.stats().waiting == 20)
        count()
        before, seen = turns, 0
        async for _ in consumer:
            spin_ms(6)
            seen += 1
            if seen == 5:
                break
        assert turns - before >= 4


def spin_ms(duration_ms):
    """Work that does not await."""
    import time

    end = time.perf_counter() + duration_ms / 1000
    while time.perf_counter() < end:
        pass


async def test_from_where():
    seen = asyncio.get_running_loop().create_future()

    async def script(peer):
        seen.set_result(peer.writer.get_extra_info("peername")[0])
        await peer.greet()
        await peer.read_to_end()

    async with FakeNsqd(script) as fake:
        connection, _ = await connect(fake.address, Config(local_addr="127.0.0.3:0"))
        assert await seen == "127.0.0.3"
        connection.close()
    assert local_address("::1") == ("::1", 0)
    assert local_address("[::1]:5") == ("::1", 5)
    with pytest.raises(OptionsError, match="local_addr: '10.0.0.1:x' is not ip:port"):
        Consumer("t", "c", nsqd="h:1", config=Config(local_addr="10.0.0.1:x"))


@pytest.mark.parametrize(
    "text",
    ["", "h:65536", "h:0", "h:²", "h:+1", "h:" + "9" * 5000],
)
def test_addresses_that_are_none(text):
    with pytest.raises(OptionsError, match="host:port"):
        check_address(text)


async def test_unix_socket(tmp_path):
    async def serve(reader, writer):
        from support.fake_nsqd import Peer

        await Peer(reader, writer).greet()
        await reader.read()
        writer.close()

    server = await asyncio.start_unix_server(serve, tmp_path / "nsqd.sock")
    connection, _ = await connect(str(tmp_path / "nsqd.sock"))
    assert connection.is_open
    connection.close()
    await until(lambda: len(asyncio.all_tasks()) == 1)
    server.close()


def test_certificates_without_tls_are_warned_of(run, caplog, tmp_path):
    with caplog.at_level(logging.WARNING, "nsqfast.client"):
        assert tls_context(Config(tls_root_ca_file=str(tmp_path / "ca.pem"))) is None
    assert "tls_v1 is not" in caplog.text
    with pytest.raises(OptionsError, match="no such file"):
        tls_context(Config(tls_v1=True, tls_root_ca_file=str(tmp_path / "ca.pem")))
