"""The servers that say what a test wants fail that test when it did not happen."""

import asyncio
import socket

import pytest

from support import fake_nsqd
from support.fake_nsqd import FakeNsqd, until
from support.ports import hold_port, hold_ports_left


@pytest.fixture(autouse=True)
def short(monkeypatch):
    monkeypatch.setattr(fake_nsqd, "FINISH_SECONDS_MAX", 0.05)


async def talk(script, said, stays=False):
    """A client that says this and hangs up; or stays until the fake does."""
    try:
        async with FakeNsqd(script) as fake:
            host, port = fake.address.split(":")
            _, writer = await asyncio.open_connection(host, port)
            writer.write(said)
            await until(lambda: fake.connections)
            if not stays:
                writer.close()
    finally:
        writer.close()
        await writer.wait_closed()


async def expect_two(peer):
    await peer.expect("RDY")
    await peer.expect("FIN")


@pytest.mark.parametrize("said", [b"", b"RDY 1\n", b"RDY 1\nFIN"])
def test_steps_left_over_when_the_client_is_gone(said):
    with pytest.raises(AssertionError, match="connection 1 was not finished: the client hung up"):
        asyncio.run(talk(expect_two, said))


def test_a_step_that_is_another_one():
    with pytest.raises(AssertionError, match="CLS"):
        asyncio.run(talk(expect_two, b"RDY 1\nCLS\n"))


def test_nobody_connects():
    async def main(script):
        async with FakeNsqd(script):
            pass

    with pytest.raises(AssertionError, match="nobody connected"):
        asyncio.run(main(expect_two))
    asyncio.run(main(None))
    with pytest.raises(AssertionError, match="somebody connected"):
        asyncio.run(talk(None, b"", stays=True))


def test_a_held_port_refuses_until_a_server_takes_it():
    port = hold_port()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port))
    with socket.socket() as other, pytest.raises(OSError, match="in use"):
        other.bind(("127.0.0.1", port))
    for _ in range(2):
        with (
            socket.create_server(("127.0.0.1", port)) as listener,
            socket.create_connection(("127.0.0.1", port)),
        ):
            listener.accept()[0].close()
            hold_ports_left([port])  # it has a listener
        hold_ports_left([port])
