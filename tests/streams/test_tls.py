"""TlsStream by itself: bytes in pieces of any size, and the names of things."""

import contextlib
import random
import ssl

import pytest

from nsqfast.net.tls import ServerTls
from nsqfast.streams import upgrades
from nsqfast.streams.adapter import Stacked, StreamError
from nsqfast.streams.snappy import Snappy
from nsqfast.streams.tls import NOT_TLS, TlsStream, common_name, reason, registered_name


@pytest.fixture(params=["", "require"])
def stream(request, certificates):
    """The usual one, and that of pyOpenSSL."""
    return TlsStream(context_of(certificates, request.param))


def context_of(certificates, policy, version_min=0x303):
    path = certificates.path
    return ServerTls(
        path("server.crt"), path("server.key"), policy, path("ca.crt"), version_min
    ).context()


class Client:
    """The other end, without a socket."""

    def __init__(self, context):
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self.tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname="127.0.0.1")

    def step(self, data):
        """What it answers to these bytes of the handshake."""
        self._incoming.write(data)
        with contextlib.suppress(ssl.SSLWantReadError):
            self.tls.do_handshake()
        return self._outgoing.read()

    def pack(self, data):
        self.tls.write(data)
        return self._outgoing.read()

    def unpack(self, data):
        self._incoming.write(data)
        plain = b""
        while True:
            try:
                plain += self.tls.read(65536)
            except ssl.SSLWantReadError:
                return plain


def shake_hands(stream, client, size):
    """The handshake, the client's bytes in pieces of that size."""
    said = client.step(b"")
    while not stream.is_ready:
        for start in range(0, len(said), size):
            assert list(stream.unpack(said[start : start + size])) == []
        said = client.step(stream.reply())
    assert list(stream.unpack(said)) == []


@pytest.mark.parametrize("size", [1, 7, 100_000])
@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_both_ways_in_pieces(stream, certificates, version, size):
    seed = random.SystemRandom().getrandbits(32)
    print("seed", seed)
    dice = random.Random(seed)
    client = Client(certificates.client_context("client", version))
    shake_hands(stream, client, size)
    assert stream.version == version.name.replace("v", "").replace("_", ".")
    for _ in range(5):
        plain = dice.randbytes(dice.randrange(1, 50_000))
        packed = client.pack(plain)
        pieces = [packed[start : start + size] for start in range(0, len(packed), size)]
        assert b"".join(one for piece in pieces for one in stream.unpack(piece)) == plain
        assert client.unpack(stream.pack(plain)) == plain
    assert not stream.at_end


@pytest.mark.parametrize(
    ("policy", "who", "name"),
    [("require-verify", "client", "joe"), ("require", "client", ""), ("require", "stranger", "")],
)
def test_the_name_of_the_client_is_known_only_if_it_was_verified(certificates, policy, who, name):
    stream = TlsStream(context_of(certificates, policy))
    shake_hands(stream, Client(certificates.client_context(who)), 1000)
    assert stream.is_ready
    assert stream.common_name == name


def test_a_first_byte_that_is_no_record(stream):
    with pytest.raises(StreamError, match=NOT_TLS):
        list(stream.unpack(b"G"))
    assert stream.reply() == b""


def test_no_shared_version(certificates):
    stream = TlsStream(context_of(certificates, "", 0x304))
    client = Client(certificates.client_context(version=ssl.TLSVersion.TLSv1_2))
    with pytest.raises(StreamError, match="tls: client offered only unsupported versions"):
        list(stream.unpack(client.step(b"")))
    with pytest.raises(ssl.SSLError, match="PROTOCOL_VERSION"):
        client.step(stream.reply())


def test_nonsense_in_the_handshake_never_hangs_or_leaks(certificates):
    seed = random.SystemRandom().getrandbits(32)
    print("seed", seed)
    dice = random.Random(seed)
    context = context_of(certificates, "")
    hello = Client(certificates.client_context()).step(b"")
    for _ in range(300):
        damaged = bytearray(hello)
        for _ in range(dice.randrange(1, 10)):
            damaged[dice.randrange(1, len(damaged))] = dice.randrange(256)
        stream = TlsStream(context)
        with contextlib.suppress(StreamError):
            assert list(stream.unpack(bytes(damaged) + dice.randbytes(50))) == []
        assert not stream.is_ready


def test_snappy_within_tls(stream, certificates):
    client = Client(certificates.client_context("client"))
    shake_hands(stream, client, 1000)
    ours, theirs = Stacked(stream, Snappy()), Snappy()
    assert b"".join(theirs.unpack(client.unpack(ours.pack(b"down" * 1000)))) == b"down" * 1000
    assert b"".join(ours.unpack(client.pack(theirs.pack(b"up" * 1000)))) == b"up" * 1000
    assert ours.is_ready
    assert not ours.at_end


class Granted:
    tls = True
    deflate = False
    deflate_level = 6
    snappy = True


def test_the_order_of_upgrades(certificates):
    tls, snappy = upgrades(Granted(), context_of(certificates, ""))
    assert isinstance(tls, TlsStream)
    assert isinstance(snappy, Snappy)


@pytest.mark.parametrize(
    ("name", "registered"),
    [
        ("TLS_AES_128_GCM_SHA256", "TLS_AES_128_GCM_SHA256"),
        ("ECDHE-RSA-AES128-GCM-SHA256", "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"),
        ("ECDHE-ECDSA-AES256-SHA", "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA"),
        ("ECDHE-RSA-CHACHA20-POLY1305", "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256"),
        ("DHE-RSA-AES256-SHA256", "TLS_DHE_RSA_WITH_AES_256_CBC_SHA256"),
        ("AES256-GCM-SHA384", "TLS_RSA_WITH_AES_256_GCM_SHA384"),
        ("PSK-NULL-SHA", "PSK-NULL-SHA"),
    ],
)
def test_registered_names(name, registered):
    assert registered_name(name) == registered


def test_reasons():
    error = ssl.SSLError(1, "text")
    error.reason = "TLSV1_ALERT_UNKNOWN_CA"
    assert reason(error) == "remote error: tls: unknown ca"
    error.reason = "BAD_PACKET_LENGTH"
    assert reason(error) == "tls: bad packet length"


def test_common_names():
    assert common_name({}) == ""
    assert common_name({"subject": ((("commonName", "a"), ("commonName", "b")),)}) == "b"
