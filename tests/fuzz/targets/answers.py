"""The JSON that others answer with: nsqd's to IDENTIFY, and nsqlookupd's to that and to /lookup.

The input is a byte that says which, and the answer. It is understood or refused in one line.
"""

import json

from fuzz.common import guarded
from nsqfast.client.addresses import check_address
from nsqfast.client.connection import read_features
from nsqfast.client.discovery import addresses_in
from nsqfast.errors import ConnectError, ProtocolError
from nsqfast.nsqd.lookup import LookupdError, read_identity

REFUSALS = (ConnectError, ProtocolError, LookupdError)
WORDS = [
    *(b'{"producers":[', b'"broadcast_address":', b'"tcp_port":', b'"http_port":', b'"data":'),
    *(b'"max_rdy_count":', b'"msg_timeout":', b'"tls_v1":', b'"snappy":', b"true", b"null", b"-1"),
    *(b'"127.0.0.1"', b'"::1"', b"65535", b"65536", b"1e5", b"\\u0000", b"[", b"{", b'"', b","),
]


def seeds():
    nodes = [{"broadcast_address": "127.0.0.1", "tcp_port": 4150}, {"broadcast_address": "::1"}]
    features = {"max_rdy_count": 2500, "msg_timeout": 60000, "tls_v1": False, "snappy": True}
    found = [
        json.dumps(features | {"deflate": None, "auth_required": False}),
        json.dumps({"producers": [nodes[0]], "channels": []}),
        json.dumps({"data": {"producers": nodes}, "status_code": 200}),
        json.dumps({"broadcast_address": "a", "http_port": 4161, "tcp_port": 4160}),
        "[" * 2000,
    ]
    return [bytes([i]) + text.encode() for text in found for i in range(4)]


def check_features(answer):
    found = read_features(answer)
    for count in (found.max_rdy_count, found.msg_timeout_ms):
        assert type(count) is int
        assert 0 < count < 1 << 31
    for switch in (found.tls_v1, found.deflate, found.snappy, found.auth_required):
        assert type(switch) is bool


def check_addresses(answer, *, is_bare):
    for address in addresses_in(answer, is_bare=is_bare):
        check_address(address)
        address.encode("utf-8")


def check_identity(answer):
    host, port = read_identity(answer)
    assert json.loads(answer)["broadcast_address"] == host
    assert 0 <= port < 1 << 16


CHECKS = (
    check_features,
    lambda answer: check_addresses(answer, is_bare=True),
    lambda answer: check_addresses(answer, is_bare=False),
    check_identity,
)


@guarded
def check(data):
    if not data:
        return
    try:
        CHECKS[data[0] % len(CHECKS)](data[1:])
    except REFUSALS as error:
        assert "\n" not in str(error), error
