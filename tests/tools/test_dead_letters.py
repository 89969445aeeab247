"""What nsqd is told of messages that a utility cannot deliver."""

import json

import pytest

from support.destination import Destination, answer
from support.drain import address_of
from support.programs import publish
from support.server import start_nsqd
from support.tools import Tool, tool_command
from support.waiting import eventually
from support.web import get, post, request

POLICY = json.dumps({"topic": "^t$", "definition": {"max_failures": 1}}).encode()


@pytest.fixture
def broker(tmp_path):
    with start_nsqd("nsqfast", tmp_path) as server:
        yield server


def errors(broker):
    found = get(broker.http, "/topic/peek?topic=t.c.dead").json().get("messages", [])
    return [each["death"]["error"] for each in found if "death" in each]


def expect_errors(broker, text, name, *flags):
    """Three messages die, with that in their reason."""
    post(broker.http, "/topic/create?topic=t")
    post(broker.http, "/channel/create?topic=t&channel=c")
    assert request(broker.http, "PUT", "/policies/p", POLICY).status == 200
    publish(address_of(broker), "t", b"1" * 20, b"2" * 20, b"3" * 20)
    source = ("--topic=t", "--channel=c", f"--nsqd-tcp-address={address_of(broker)}")
    with Tool(tool_command(name, "nsqfast", *source, *flags)) as tool:
        eventually(lambda: len(errors(broker)) == 3)
        assert tool.end() == 0
    assert all(text in error for error in errors(broker)), errors(broker)


@pytest.mark.parametrize("flags", [(), ("--batch=3",)])
def test_nsq_to_http(broker, flags):
    with Destination(lambda *_: answer(500)) as server:
        expect_errors(broker, "500", "nsq_to_http", f"--post={server.url}", *flags)


def test_nsq_to_nsq(broker, tmp_path):
    (tmp_path / "small").mkdir()
    with start_nsqd("nsqfast", tmp_path / "small", "--max-msg-size=10") as small:
        where = address_of(small)
        destination = f"--destination-nsqd-tcp-address={where}"
        expect_errors(broker, f"{where}: it takes", "nsq_to_nsq", destination)
