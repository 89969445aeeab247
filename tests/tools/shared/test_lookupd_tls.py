"""A consumer and tools with an nsqlookupd that serves certificates of its authority alone."""

import asyncio
import json

import pytest

from nsqfast.client import Config, ConnectError, Consumer, OptionsError, Producer
from nsqfast.client.discovery import Discovery
from nsqfast.tools.nsq_to_file.options import parse
from nsqfast.tools.shared.discovery import list_topics
from nsqfast.tools.shared.topics import Topics
from support.certificates import Certificates
from support.server import start_nsqd, start_nsqlookupd
from support.tools import run_tool


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def lookupd(certificates):
    flags = {"cert": "server.crt", "key": "server.key", "client-ca": "ca.crt"}
    words = [f"--tls-{flag}={certificates.path(name)}" for flag, name in flags.items()]
    with start_nsqlookupd("nsqfast", *words) as server:
        yield server


@pytest.fixture(scope="module")
def nsqd(certificates, lookupd, tmp_path_factory):
    files = {"root-ca-file": "ca.crt", "cert": "client.crt", "key": "client.key"}
    words = [f"--lookupd-tls-{flag}={certificates.path(name)}" for flag, name in files.items()]
    address = f"--lookupd-tcp-address={lookupd.tcp[0]}:{lookupd.tcp[1]}"
    folder = tmp_path_factory.mktemp("data")
    with start_nsqd("nsqfast", folder, address, "--lookupd-tls", *words) as server:
        yield server


def url(lookupd):
    return f"https://{lookupd.http[0]}:{lookupd.http[1]}"


def settings(certificates, name="client", authority="ca.crt"):
    return {
        "tls_root_ca_file": certificates.path(authority),
        "tls_cert": certificates.path(f"{name}.crt"),
        "tls_key": certificates.path(f"{name}.key"),
    }


async def ask(lookupd, config):
    discovery = Discovery([url(lookupd)], "t", config)
    try:
        [answer] = [answer async for answer in discovery.poll()]
        return answer
    finally:
        await discovery.close()


async def test_a_consumer_finds_its_nsqd(certificates, lookupd, nsqd):
    config = Config(**settings(certificates))
    async with Producer(f"{nsqd.tcp[0]}:{nsqd.tcp[1]}") as producer:
        await producer.publish("t", b"x")
    async with Consumer("t", "c", nsqlookupd=url(lookupd), config=config) as consumer:
        async for message in consumer:
            assert message.body == b"x"
            break
    assert (await ask(lookupd, config)).addresses == {f"{nsqd.tcp[0]}:{nsqd.tcp[1]}"}


@pytest.mark.parametrize(
    "changed",
    [
        {"authority": "other-ca.crt"},
        {"name": "stranger"},
    ],
)
async def test_who_is_not_known_or_does_not_know(certificates, lookupd, changed):
    answer = await ask(lookupd, Config(**settings(certificates, **changed)))
    assert isinstance(answer.error, ConnectError)
    assert isinstance((await ask(lookupd, Config())).error, ConnectError)


def test_a_certificate_that_is_none(certificates, lookupd):
    config = Config(tls_root_ca_file=certificates.path("server.key"))
    with pytest.raises(OptionsError, match="certificate"):
        Discovery([url(lookupd)], "t", config)
    Discovery(["127.0.0.1:4161"], "t", config)


async def test_a_tool_lists_topics(certificates, lookupd, nsqd, tmp_path):
    async with Producer(f"{nsqd.tcp[0]}:{nsqd.tcp[1]}") as producer:
        await producer.publish("listed", b"x")
    flags = [f"--consumer-opt={key},{value}" for key, value in settings(certificates).items()]
    source = [f"--lookupd-http-address={url(lookupd)}", "--topic-pattern=.*"]
    options = parse([*flags, *source, f"--output-dir={tmp_path}"])
    async with Topics(options, "archived", "", print).make_client() as client:

        async def is_listed():
            topics, errors = await list_topics(client, [url(lookupd)])
            assert errors == []
            return "listed" in topics

        while not await is_listed():
            pass


def stat(lookupd, certificates, name):
    flags = {"root-ca-file": "ca.crt", "cert": f"{name}.crt", "key": f"{name}.key"}
    words = [f"--http-client-tls-{flag}={certificates.path(file)}" for flag, file in flags.items()]
    source = f"--lookupd-http-address={url(lookupd)}"
    return run_tool("nsq_stat", "nsqfast", source, *words, "--json", "--count=1")


async def test_nsq_stat(certificates, lookupd, nsqd):
    async with Producer(f"{nsqd.tcp[0]}:{nsqd.tcp[1]}") as producer:
        await producer.publish("counted", b"x")
    while (await ask(lookupd, Config(**settings(certificates)))).error is not None:
        pass
    done = await asyncio.to_thread(stat, lookupd, certificates, "client")
    assert (done.returncode, done.stderr) == (0, b"")
    assert json.loads(done.stdout)["nsqd_count"] == 1
    done = await asyncio.to_thread(stat, lookupd, certificates, "stranger")
    assert done.returncode == 1
    assert b"Traceback" not in done.stderr
