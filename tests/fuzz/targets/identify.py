"""IDENTIFY's JSON: whatever comes is refused in NSQ's words or gives settings within the broker's limits."""

import json
import re
from types import SimpleNamespace

from fuzz.common import guarded
from nsqfast.errors import ProtocolError
from nsqfast.nsqd.options import Options
from nsqfast.wire.identify import identify

LIMITS = Options()
MS = 1_000_000
KEYS = [
    *("client_id", "hostname", "user_agent", "feature_negotiation", "heartbeat_interval"),
    *("output_buffer_size", "output_buffer_timeout", "sample_rate", "msg_timeout", "tls_v1"),
    *("snappy", "deflate", "deflate_level", "topology_region", "topology_zone"),
]
WORDS = [*(f'"{key}":'.encode() for key in KEYS), b"true", b"null", b"-1", b"9223372036854775808"]


def seeds():
    asked = {
        "client_id": "c",
        "hostname": "h",
        "user_agent": "fuzz/1",
        "feature_negotiation": True,
        "heartbeat_interval": 1000,
        "output_buffer_size": -1,
        "output_buffer_timeout": 250,
        "sample_rate": 99,
        "msg_timeout": 1000,
        "deflate": True,
        "deflate_level": 9,
    }
    return [
        json.dumps(asked).encode(),
        b'{"SNAPPY":true,"feature_negotiation":true,"snappy":null}',
        b'{"heartbeat_interval":-1,"x":[{"y":1e400}],"sample_rate":2147483648}',
        b'{"client_id":"\\ud800","hostname":"\xff"}',
        b"null",
    ]


@guarded
def check(data):
    try:
        got = identify(data, LIMITS)
    except ProtocolError as error:
        assert error.code in ("E_BAD_BODY", "E_IDENTIFY_FAILED")
        assert error.detail
        return
    assert (
        got.heartbeat_ns == 0 or 1000 * MS <= got.heartbeat_ns <= LIMITS.max_heartbeat_interval_ns
    )
    assert 0 <= got.output_buffer_timeout_ns <= LIMITS.max_output_buffer_timeout_ns
    assert (
        got.output_buffer_size == 1 or 64 <= got.output_buffer_size <= LIMITS.max_output_buffer_size
    )
    assert 0 <= got.sample_rate <= 99
    assert 1000 * MS <= got.msg_timeout_ns <= LIMITS.max_msg_timeout_ns
    assert 1 <= got.deflate_level <= LIMITS.max_deflate_level
    assert not (got.deflate and got.snappy)
    answer = got.answer(LIMITS)
    if got.feature_negotiation:
        assert json.loads(answer)["msg_timeout"] == got.msg_timeout_ns // MS
    else:
        assert answer == b"OK"
    check_against_go(data, got)


def check_against_go(data, got):
    """Go reads member after member: the last that is not null wins, under any case."""
    pairs = json.loads(data.decode("utf-8", "replace"), object_pairs_hook=Members)
    last = {}
    for key, value in pairs or []:
        if value is not None and key.lower() in KEYS:
            last[key.lower()] = value
    asked = SimpleNamespace(**dict.fromkeys(KEYS) | last)
    # Half a surrogate pair is no character.
    names = [
        re.sub("[\ud800-\udfff]", "\ufffd", n or "") for n in (asked.client_id, asked.hostname)
    ]
    assert [got.client_id, got.hostname] == names
    assert got.feature_negotiation is bool(asked.feature_negotiation)
    assert got.sample_rate == (asked.sample_rate or 0)
    if asked.msg_timeout:
        assert got.msg_timeout_ns == asked.msg_timeout * MS
    if asked.heartbeat_interval not in (None, 0, -1):
        assert got.heartbeat_ns == asked.heartbeat_interval * MS
    assert got.snappy is bool(asked.snappy and asked.feature_negotiation)


class Members(list):
    """An object's members in their order, doubles included."""
