"""What an auth server grants: against a naive model, and in linear time."""

import itertools
import json
import random
import re
import time

import pytest

from nsqfast.nsqd.auth import (
    DECISIONS_MAX,
    PATTERNS_MAX,
    AuthError,
    Grant,
    compile_pattern,
    read_grant,
)

# Such as Python's re reads like RE2, so that a naive model can be asked.
PATTERNS = ["", ".*", "a", "^a$", "b$", "^[ab]+$", "a.c", "^$", r"\Aa", "(a|b)c", "c{2}", "[^a]"]
NAMES = ["", *("".join(word) for n in (1, 2, 3) for word in itertools.product("abc", repeat=n))]
PERMISSIONS = ["publish", "subscribe"]


def model_allows(entries, topic, channel):
    wanted = "subscribe" if channel else "publish"
    return any(
        wanted in entry["permissions"]
        and re.search(entry["topic"], topic)
        and any(re.search(pattern, channel) for pattern in entry["channels"])
        for entry in entries
    )


def test_rules_against_a_model():
    seed = random.SystemRandom().getrandbits(32)
    print("seed", seed)
    source = random.Random(seed)
    outcomes = set()
    for _ in range(300):
        entries = [
            {
                "topic": source.choice(PATTERNS),
                "channels": source.sample(PATTERNS, source.randrange(4)),
                "permissions": source.sample(PERMISSIONS, source.randrange(3)),
            }
            for _ in range(source.randrange(4))
        ]
        grant = read_grant(json.dumps({"ttl": 1, "authorizations": entries}).encode())
        for _ in range(20):
            topic, channel = source.choice(NAMES[1:]), source.choice(NAMES)
            wanted = bool(model_allows(entries, topic, channel))
            # The second time from memory.
            assert grant.allows(topic, channel) is wanted, (entries, topic, channel)
            assert grant.allows(topic, channel) is wanted
            outcomes.add((wanted, bool(channel)))
    assert len(outcomes) == 4


def test_everything_is_meant_literally():
    def allows_everything(**changed):
        entry = {"topic": ".*", "channels": ["x", ".*"], "permissions": PERMISSIONS} | changed
        return read_grant(
            json.dumps({"ttl": 1, "authorizations": [{}, entry]}).encode()
        ).allows_everything()

    assert allows_everything()
    assert not allows_everything(topic="")
    assert not allows_everything(channels=["x"])
    assert not allows_everything(permissions=["publish"])


def test_what_is_remembered_is_bounded():
    body = {"ttl": 1, "authorizations": [{"channels": [""], "permissions": ["publish"]}]}
    grant = read_grant(json.dumps(body).encode())
    for number in range(3 * DECISIONS_MAX):
        assert grant.allows(f"t{number}", "")
        compile_pattern(f"^{number}$")
    assert len(grant._decisions) <= DECISIONS_MAX
    assert compile_pattern.cache_info().currsize <= PATTERNS_MAX


@pytest.mark.parametrize("pattern", ["(a+)+$", "(a|aa)+$", "(.*)*x", "(a*)*b", "(x+x+)+y"])
def test_patterns_take_linear_time(pattern):
    """With an engine that goes back and tries again these take longer than the universe will."""
    body = {"topic": pattern, "channels": [".*"], "permissions": ["publish"]}
    grant = read_grant(json.dumps({"ttl": 1, "authorizations": [body]}).encode())
    start = time.process_time()
    assert not grant.allows("a" * 60 + "!", "")
    assert not grant.allows("a" * 60_000 + "!", "")
    assert time.process_time() - start < 1


def test_ttl_is_bounded():
    grant = Grant((1 << 63) - 1, "", "", [])
    assert 0 < grant.ttl_ns < 1 << 62


@pytest.mark.parametrize("secret", ["swordfish"])
@pytest.mark.parametrize(
    "body",
    [
        "%s",
        '{"ttl":"%s"}',
        '{"ttl":1,"identity":["%s"]}',
        '{"ttl":1,"authorizations":[{"topic":"%s("}]}',
        '{"ttl":1,"authorizations":[{"permissions":["%s"]}]}',
    ],
)
def test_errors_repeat_nothing_of_the_answer(capfd, secret, body):
    with pytest.raises(AuthError) as caught:
        read_grant((body % secret).encode())
    assert secret not in str(caught.value)
    # The engine does not write to stderr by itself, either.
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("body", [b"[" * 100_000, b'{"ttl":' * 100_000, b"\xff\xfe", b"1e999999"])
def test_answers_that_break_parsers(body):
    with pytest.raises(AuthError):
        read_grant(body)


@pytest.mark.parametrize(
    ("body", "identity"),
    [
        (b'{"ttl": 1, "identity": "a", "IDENTITY": "b"}', "b"),
        (b'{"ttl": 1, "Identity": "a", "identity": "b", "Identity": "c"}', "c"),
        (b'{"TTL": 1, "identity": "a", "identity": null}', "a"),
    ],
)
def test_a_key_that_comes_twice(body, identity):
    """As Go's decoder: in any case, the last one that is not null."""
    assert read_grant(body).identity == identity
