"""TLS, snappy, deflate and AUTH with real brokers, alone and together."""

import pytest

from nsqfast.client import Config, Consumer, Producer, RefusedError
from support.authd import AuthServer, grant, permit
from support.drain import address_of
from support.server import start_nsqd

SECRET = "secret-of-joe"


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
async def test_round_trip(loop_factory, certificates, address, topic, packing, tls):
    settings = {"max_in_flight": 200}
    if tls != "plain":
        settings |= {"tls_v1": True, "tls_root_ca_file": certificates.path("ca.crt")}
        settings |= {"tls_min_version": tls}
    if packing:
        settings[packing] = True
    await round_trip(address, topic, Config(**settings))


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        ({"tls_root_ca_file": "other-ca.crt"}, "failed to verify certificate"),
        ({}, "failed to verify certificate"),
    ],
)
async def test_a_certificate_that_nobody_vouches_for(certificates, address, settings, error):
    settings = {key: certificates.path(value) for key, value in settings.items()}
    config = Config(tls_v1=True, **settings)
    with pytest.raises(RefusedError, match=error):
        async with Producer(address, config=config):
            pass


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
        run(main(address_of(server)))


@pytest.fixture(scope="module")
def guarded(implementation, tmp_path_factory):
    """The address of a broker whose authority knows a secret for topics that begin with 'mine'."""
    with AuthServer() as authority:
        authority.answers = {SECRET: grant(permit("^mine")), "wrong": grant()}
        flag = f"--auth-http-address={authority.address}"
        with start_nsqd(implementation, tmp_path_factory.mktemp("auth"), flag) as server:
            yield address_of(server)


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
async def test_auth_refused(guarded, secret, where, code):
    with pytest.raises(RefusedError) as refused:
        async with Consumer(where, "c", nsqd=guarded, config=Config(auth_secret=secret)):
            pass
    assert refused.value.code == code
