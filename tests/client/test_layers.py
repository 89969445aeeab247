"""TLS, snappy, deflate and AUTH with real brokers, alone and together."""

import asyncio
import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from nsqfast.client import Config, Consumer, Producer, RefusedError
from support.certificates import Certificates
from support.server import start_nsqd

SECRET = "secret-of-joe"


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def broker(implementation, certificates, tmp_path_factory):
    with start_nsqd(
        implementation,
        tmp_path_factory.mktemp(implementation),
        *certificates.flags(),
        listeners=("TCP", "HTTP", "HTTPS"),
    ) as server:
        yield server


async def round_trip(address, topic, config):
    """Bodies small and large, repetitive and not, there and back."""
    bodies = [b"x" * 100_000, *[b"%d" % n for n in range(500)], bytes(range(256)) * 1000]
    async with Producer(address, config=config) as producer:
        for body in bodies:
            producer.send(topic, body)
    async with Consumer(topic, "c", nsqd=address, config=config) as consumer:
        found = []
        async for message in consumer:
            found.append(message.body)
            message.finish()
            if len(found) == len(bodies):
                break
    assert found == bodies


@pytest.mark.parametrize("packing", ["", "snappy", "deflate"])
@pytest.mark.parametrize("tls", ["", "tls1.2", "plain"])
def test_round_trip(run_anywhere, certificates, address, topic, packing, tls):
    settings = {"max_in_flight": 200}
    if tls != "plain":
        settings |= {"tls_v1": True, "tls_root_ca_file": certificates.path("ca.crt")}
        settings |= {"tls_min_version": tls}
    if packing:
        settings[packing] = True
    run_anywhere(round_trip(address, topic, Config(**settings)))


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        ({"tls_root_ca_file": "other-ca.crt"}, "failed to verify certificate"),
        ({}, "failed to verify certificate"),
    ],
)
def test_a_certificate_that_nobody_vouches_for(run, certificates, address, settings, error):
    settings = {key: certificates.path(value) for key, value in settings.items()}
    config = Config(tls_v1=True, **settings)

    async def main():
        with pytest.raises(RefusedError, match=error):
            async with Producer(address, config=config):
                pass

    run(main())


def test_without_verification_and_with_a_certificate_of_ours(run, certificates, address, topic):
    config = Config(
        max_in_flight=100,
        tls_v1=True,
        tls_insecure_skip_verify=True,
        tls_cert=certificates.path("client.crt"),
        tls_key=certificates.path("client.key"),
    )
    run(round_trip(address, topic, config))


def test_no_tls_where_it_was_asked_for(run, implementation, tmp_path, certificates):
    """go-nsq goes on in plain text."""
    config = Config(tls_v1=True, tls_root_ca_file=certificates.path("ca.crt"))

    async def main(address):
        with pytest.raises(RefusedError, match="does not grant it"):
            async with Producer(address, config=config):
                pass

    with start_nsqd(implementation, tmp_path) as server:
        run(main("{}:{}".format(*server.tcp)))


class Authority(BaseHTTPRequestHandler):
    """Knows one secret; joe may publish and subscribe to topics that begin with 'mine'."""

    def do_GET(self):
        granted = f"secret={SECRET}" in self.path
        answer = {
            "ttl": 3600,
            "identity": "joe",
            "authorizations": [
                {"topic": "^mine", "channels": [".*"], "permissions": ["subscribe", "publish"]}
            ]
            if granted
            else [],
        }
        body = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


@pytest.fixture(scope="module")
def guarded(implementation, tmp_path_factory):
    """The address of a broker that asks an authority."""
    with HTTPServer(("127.0.0.1", 0), Authority) as authority:
        thread = threading.Thread(target=authority.serve_forever)
        thread.start()
        try:
            flag = "--auth-http-address={}:{}".format(*authority.server_address)
            with start_nsqd(implementation, tmp_path_factory.mktemp("auth"), flag) as server:
                yield "{}:{}".format(*server.tcp)
        finally:
            authority.shutdown()
            thread.join()


def test_auth(run, guarded, topic):
    run(round_trip(guarded, f"mine-{topic}", Config(auth_secret=SECRET, max_in_flight=100)))


@pytest.mark.parametrize(
    ("secret", "where", "code"),
    [
        ("", "mine", "E_AUTH_FIRST"),
        ("wrong", "mine", "E_UNAUTHORIZED"),
        (SECRET, "yours", "E_UNAUTHORIZED"),
    ],
)
def test_auth_refused(run, guarded, secret, where, code):
    async def main():
        with pytest.raises(RefusedError) as refused:
            async with Consumer(where, "c", nsqd=guarded, config=Config(auth_secret=secret)):
                pass
        assert refused.value.code == code

    run(main())


def test_many_at_once_under_tls(run, certificates, address, topic):
    """Publishing while consuming over the same kind of connection, with back pressure on both."""
    config = Config(
        max_in_flight=50, tls_v1=True, tls_root_ca_file=certificates.path("ca.crt"), snappy=True
    )

    async def main():
        async with (
            Producer(address, config=config, buffer_count_max=500) as producer,
            Consumer(topic, "c", nsqd=address, config=config) as consumer,
        ):

            async def publish():
                for number in range(3000):
                    if number % 250 == 0:
                        await producer.drain()
                    producer.send(topic, b"%d" % number * 50)

            publishing = asyncio.create_task(publish())
            async for message in consumer:
                message.finish()
                if consumer.stats().finished == 3000:
                    break
            await publishing

    run(main())
