"""The Python in docs/CLIENT.md: it compiles, and what can be run here runs."""

import ast
import asyncio
import importlib
import inspect
import json
import re
import signal
import subprocess
import sys

import prometheus_client
import pytest

from nsqfast.client import Config, Producer
from support.server import ROOT, start_nsqd
from support.waiting import until
from support.web import get, post, request, topic_stats

TEXT = (ROOT / "docs" / "CLIENT.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)


def block_with(words):
    (found,) = [block for block in BLOCKS if words in block]
    return found


def top_level(block):
    return compile(block, "block", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


@pytest.mark.parametrize("block", BLOCKS, ids=lambda value: value.partition("\n")[0])
def test_it_compiles_and_names_what_there_is(block):
    top_level(block)
    for module, imported in re.findall(r"from (nsqfast[\w.]*) import (.*)", block):
        assert all(hasattr(importlib.import_module(module), word) for word in imported.split(", "))


async def test_the_same_in_asyncio(address, topic):
    block = block_with("from nsqfast import Consumer, Producer")
    for before, after in (
        ('"127.0.0.1:4150"', f'"{address}"'),
        ('nsqlookupd="127.0.0.1:4161"', f'nsqd="{address}"'),
        ('"orders"', f'"{topic}"'),
    ):
        assert before in block
        block = block.replace(before, after)
    shipped = asyncio.get_running_loop().create_future()
    running = asyncio.create_task(eval(top_level(block), {"ship": shipped.set_result}))
    assert (await shipped).body == b"7"
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_publishing_as_documented(address):
    block = block_with("publish_later")
    block = block.replace('"127.0.0.1:4150", "10.0.0.2:4150"', f'"{address}"')
    work = eval(top_level(block), {})
    assert inspect.isawaitable(work)
    await work


@pytest.fixture(scope="module")
def ours(tmp_path_factory):
    """A nsqfast-nsqd: NSQ's own can do neither of these."""
    with start_nsqd("nsqfast", tmp_path_factory.mktemp("ours")) as server:
        yield server


async def test_delayed_jobs_as_documented(ours, topic):
    block = block_with("publish_delayed")
    block = block.replace("127.0.0.1:4150", "{}:{}".format(*ours.tcp)).replace("mails", topic)
    names = {}
    await eval(top_level(block), names)
    assert len(names["kept"]) == 3
    assert topic_stats(ours.http, topic)["depth"] == 1  # what was queued has no channel


async def test_messages_that_fail_as_documented(ours, topic):
    block = block_with("message.reject")
    block = block.replace("127.0.0.1:4150", "{}:{}".format(*ours.tcp)).replace("orders", topic)
    policy = {"topic": f"^{topic}$", "definition": {"max_failures": 1}}
    request(ours.http, "PUT", f"/policies/{topic}", json.dumps(policy).encode())
    for body in (b"{}", b"no JSON", b'{"user": "x"}'):
        post(ours.http, f"/pub?topic={topic}", body)

    async def ship(order):
        return {}[order["user"]]

    def errors():
        found = get(ours.http, f"/topic/peek?topic={topic}.shipping.dead").json()
        letters = found.get("messages", [])
        return {each["body"]: each["death"]["error"] for each in letters if "death" in each}

    running = asyncio.create_task(eval(top_level(block), {"ship": ship}))
    await until(lambda: len(errors()) == 3)
    assert errors() == {
        "{}": "no user",
        "no JSON": "JSONDecodeError: Expecting value: line 1 column 1 (char 0)",
        '{"user": "x"}': "no address: 'x'",
    }
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_administering_as_documented(ours, topic, capsys):
    http = "{}:{}".format(*ours.http)
    block = block_with("admin.stats")
    block = block.replace("127.0.0.1:4151", http).replace("orders", topic)
    await eval(top_level(block), {})
    assert capsys.readouterr().out == f"{http} 0\n{http} 0 []\n[]\n"
    assert topic_stats(ours.http, topic)["channels"]["billing"]["paused"]


def test_the_first_lines(address, topic):
    """What most programs need, run as it stands."""
    block = block_with("consumer.run(ship, concurrency=8)")
    block = block.replace("127.0.0.1:4150", address).replace('"orders"', f'"{topic}"')
    block = block.replace("print(message.body)", "print(message.body, flush=True)")
    with subprocess.Popen(
        [sys.executable, "-c", block],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as running:
        assert running.stdout.readline() == "b'7'\n"
        running.send_signal(signal.SIGINT)
        assert running.wait(30) == 0
        assert running.stderr.read() == ""


def test_the_configuration():
    block = block_with("Config.parse")
    names = {}
    exec(block, names)
    assert "Config(msg_timeout" in block
    assert Config(msg_timeout="2m").msg_timeout.total_seconds() == 120


async def test_metrics_for_prometheus(address, topic, monkeypatch):
    """With the page at a port that is free."""
    pages = []
    monkeypatch.setattr(prometheus_client, "start_http_server", pages.append)
    block = block_with("start_http_server")
    block = block.replace('"127.0.0.1:4150"', f'"{address}"').replace('"orders"', f'"{topic}"')
    shipped = asyncio.get_running_loop().create_future()
    running = asyncio.create_task(eval(top_level(block), {"ship": shipped.set_result}))
    async with Producer(address) as producer:
        await producer.publish(topic, b"7")
    assert (await shipped).body == b"7"
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert pages == [9102]
    labels = {"topic": topic, "channel": "mail"}
    name = "nsqfast_client_handler_duration_seconds_count"
    assert prometheus_client.REGISTRY.get_sample_value(name, labels) == 1


async def test_objects_as_documented(address, topic):
    block = block_with("encoder=encode_json")
    for before, after in (
        ('"127.0.0.1:4150"', f'"{address}"'),
        ('"orders"', f'"{topic}"'),
        ("-> None: ...", "-> None: shipped.set_result(order)"),
    ):
        assert before in block
        block = block.replace(before, after)
    shipped = asyncio.get_running_loop().create_future()
    running = asyncio.create_task(eval(top_level(block), {"shipped": shipped, "__name__": "block"}))
    order = await shipped
    assert (order.sku, order.count) == ("tea", 2)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
