"""The Python in README.md and docs/CLIENT.md: it compiles, and what can be run here runs."""

import ast
import asyncio
import inspect
import re
import subprocess
import sys

import pytest

import nsqfast.client
from support.server import ROOT

TEXTS = {
    name: (ROOT / name).read_text(encoding="utf-8") for name in ("README.md", "docs/CLIENT.md")
}
BLOCKS = [
    (name, block)
    for name, text in TEXTS.items()
    for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL)
]


def block_with(name, words):
    (found,) = [block for where, block in BLOCKS if where == name and words in block]
    return found


def top_level(block):
    return compile(block, "block", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


@pytest.mark.parametrize(("name", "block"), BLOCKS, ids=lambda value: value.partition("\n")[0])
def test_it_compiles_and_names_what_there_is(name, block):
    top_level(block)
    for imported in re.findall(r"from nsqfast\.client import (.*)", block):
        assert all(hasattr(nsqfast.client, word) for word in imported.split(", "))


@pytest.mark.slow
def test_the_synchronous_part_of_the_readme(address, topic):
    block = block_with("README.md", "client.sync").replace("127.0.0.1:4150", address)
    block = block.replace('"test"', f'"{topic}"').replace(
        "print(message.body)", "print(message.body, flush=True)"
    )
    program = [sys.executable, "-c", block]
    with subprocess.Popen(program, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout.readline() == "b'hello'\n"
        running.kill()


def test_the_asynchronous_part_of_the_readme(run, address, topic):
    block = block_with("README.md", "async def main")
    for before, after in (
        ('"10.0.0.1:4150", "10.0.0.2:4150"', f'"{address}"'),
        ('nsqlookupd="10.0.0.3:4161"', f'nsqd="{address}"'),
        ('"test"', f'"{topic}"'),
    ):
        assert before in block
        block = block.replace(before, after)
    names = {}
    exec(block, names)

    async def main():
        handled = asyncio.get_running_loop().create_future()
        names["handle"] = handled.set_result
        running = asyncio.create_task(names["main"]())
        assert (await handled).body == b"hello"
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    run(main())


def test_publishing_as_documented(run, address):
    block = block_with("docs/CLIENT.md", "publish_later")
    block = block.replace('"127.0.0.1:4150", "10.0.0.2:4150"', f'"{address}"')

    async def main():
        work = eval(top_level(block), {})
        assert inspect.isawaitable(work)
        await work

    run(main())


def test_the_tables_name_what_there_is():
    """What stands in the column 'here' of the table for newcomers are members of ours."""
    table = TEXTS["docs/CLIENT.md"].partition("| | pynsq | go-nsq | here |")[2].partition("\n\n")[0]
    kinds = (nsqfast.client.Producer, nsqfast.client.Consumer)
    members = {name for kind in kinds for name in [*dir(kind), *inspect.signature(kind).parameters]}
    members |= {*dir(nsqfast.client.Message), "max_in_flight"}
    named = {
        word
        for line in table.splitlines()
        for word in re.findall(
            r"`(?:await |message\.)?([a-z_]+)(?=[(=`])", line.rpartition("| ")[2] or line
        )
    }
    assert {"publish", "send", "run", "keep", "request_stop"} <= named
    assert named <= members
