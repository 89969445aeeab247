"""An auth server's answer: refused as such, or something that any name can be asked about."""

import json

from fuzz.common import guarded
from nsqfast.nsqd.auth import TTL_S_MAX, AuthError, read_grant

NAMES = ["t", "n" * 64, "t#ephemeral", ".*"]
WORDS = [
    *(
        b'"ttl":',
        b'"identity":',
        b'"authorizations":',
        b'"topic":',
        b'"channels":',
        b'"permissions":',
    ),
    *(b'"publish"', b'"subscribe"', b'".*"', b'"^(a|b)+$"', b"{1000}", b"\\\\pL", b"(?i)", b"null"),
]


def seeds():
    entry = {"topic": "^t", "channels": [".*"], "permissions": ["publish", "subscribe"]}
    whole = {"ttl": 60, "identity": "x", "identity_url": "http://x", "authorizations": [entry]}
    return [
        json.dumps(whole).encode(),
        json.dumps(
            whole | {"TTL": 2**63, "authorizations": [entry | {"topic": "(a*)*b"}]}
        ).encode(),
        json.dumps(whole | {"authorizations": [entry | {"topic": "x{1000}{1000}"}]}).encode(),
        b'{"ttl":1,"identity":"\\ud800\\n","authorizations":[{"topic":"\\u0000","channels":null}]}',
        b"null",
    ]


@guarded
def check(data):
    try:
        grant = read_grant(data)
    except AuthError as error:
        assert str(error).isprintable()
        return
    assert 0 < grant.ttl_ns <= TTL_S_MAX * 10**9
    for topic in NAMES:
        for channel in ("", "c"):
            allowed = grant.allows(topic, channel)
            assert allowed is grant.allows(topic, channel)
            assert allowed or not grant.allows_everything()
    assert json.loads(grant.answer())["permission_count"] == len(grant.authorizations)
