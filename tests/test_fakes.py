"""The servers that say what a test wants fail that test when it did not happen."""

import asyncio

import pytest

from support import fake_nsqd
from support.fake_nsqd import FakeNsqd
from support.waiting import until


async def talk(script, said):
    """A client that says this and hangs up; or none."""
    async with FakeNsqd(script) as fake:
        if said is not None:
            _, writer = await asyncio.open_connection(*fake.address.split(":"))
            writer.write(said)
            await until(lambda: fake.connections)
            writer.close()
            await writer.wait_closed()


async def expect_two(peer):
    await peer.expect("RDY")
    await peer.expect("FIN")


HANGS_UP = "connection 1 was not finished: the client hung up"


@pytest.mark.parametrize(
    ("script", "said", "complaint"),
    [
        (expect_two, b"", HANGS_UP),
        (expect_two, b"RDY 1\n", HANGS_UP),
        (expect_two, b"RDY 1\nFIN", HANGS_UP),
        (expect_two, b"RDY 1\nCLS\n", "CLS"),
        (expect_two, None, "nobody connected"),
        (None, b"", "somebody connected"),
    ],
)
def test_what_is_not_as_the_script_says(monkeypatch, script, said, complaint):
    monkeypatch.setattr(fake_nsqd, "FINISH_SECONDS_MAX", 0.05)
    with pytest.raises(AssertionError, match=complaint):
        asyncio.run(talk(script, said))


def test_nobody_connects_where_nobody_should():
    asyncio.run(talk(None, None))
