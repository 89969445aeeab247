"""What a body has to hold: texts, and fields of its JSON."""

import json
import random

import pytest
from nsqfast._ext.core.body_search import TERMS_MAX, BodySearch

from nsqfast.wire import search
from support.seeds import seeds

ORDER = b"""
{"status": "failed", "user": {"id": 17, "name": "Ren\\u00e9 \\"R\\"", "tags": ["new", {"kind": "vip"}, [1.50]]},
 "ok": true, "none": null, "a.b": -1e3, "": {"": "x"}, "emoji": "\\ud83d\\ude00", "half": "\\ud83d\\u0041"}
"""


def is_met(text, body):
    return BodySearch(b"", search.parse_search(text)).is_met(body)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "status:failed",
        "status:failed user.id:17",
        'user.id:"17"',
        '"status":failed',
        'user.name:"René \\"R\\""',
        "user.tags:new user.tags.kind:vip user.tags:1.50",
        "ok:true none:null a.b:-1e3",
        "emoji:😀",
        "failed",
        'failed "user"',
        '"\\"id\\": 17"',
        "status:failed vip",
    ],
)
def test_what_is_met(text):
    assert is_met(text, ORDER)
    assert is_met(text, b"[%b]" % ORDER)


@pytest.mark.parametrize(
    "text",
    [
        "status:Failed",
        "status:fail",
        "status:failedx",
        "user.id:170",
        "user.id:17.0",
        "id:17",
        "user:17",
        "user.id.x:17",
        "user.tags:1.5",
        "ok:1",
        "status:failed user.id:18",
        "status:failed nowhere",
        "nowhere",
    ],
)
def test_what_is_not_met(text):
    assert not is_met(text, ORDER)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"a:1",
        b'{"a": 1',
        b'{"a": 1}}',
        b'{"a": 1,}',
        b'{"a": 1} x',
        b'{"a": 1, "b": 01}',
        b'{"a": 1, "b": +1}',
        b'{"a": 1, "b": 1.}',
        b'{"a": 1, "b": 1e}',
        b'{"a": 1, "b": -}',
        b'{"a": 1, "b": NaN}',
        b'{"a": 1, "b": tru}',
        b'{"a": 1, "b": "\\x"}',
        b'{"a": 1, "b": "\\u12g4"}',
        b'{"a": 1, "b": "\\ud83d\\u1"}',
        b'{"a": 1, "b": "\n"}',
        b'{"a": 1, "b": "',
        b'{"a": 1, "b": "\\',
        b'{"a": 1, "b"}',
        b'{"a": 1, b: 1}',
        b'{"a": 1, "b": [1,]}',
        b'{"a": 1, "b": [,1]}',
        b'{"a": 1 "b": 1}',
        b'{"a": 1, "b": [1}]',
        b'{"a": 1, "b": ' + b"[" * 200 + b"]" * 200 + b"}",
        b'{"a": 1, "b": "' + bytes(1 << 20).replace(b"\0", b"b") + b'"}',
    ],
)
def test_what_is_no_json_has_no_fields(body):
    assert not is_met("a:1", body)
    assert is_met("a", body) == (b"a" in body)


def test_long_keys_and_values():
    key, value = b"k" * 600, b"v" * 1024
    body = b'{"%b": {"%b": {"a": 1}, "b": 2}, "c": "%b", "d": "%bx"}' % (key, key, value, value)
    met = BodySearch(b"", ((key + b".b", b"2"), (b"c", value))).is_met
    assert met(body)
    assert not BodySearch(b"", ((b"d", value),)).is_met(body)
    assert not BodySearch(b"", ((key + b"." + key[:423], b"1"),)).is_met(body)


def test_all_terms_at_once():
    terms = search.parse_search(" ".join(f"k{i}:{i}" for i in range(search.TERMS_MAX)))
    body = json.dumps({f"k{i}": i for i in range(search.TERMS_MAX)}).encode()
    assert len(terms) == TERMS_MAX - 1
    assert BodySearch(b"k0", terms).is_met(body)
    assert not BodySearch(b"nowhere", terms).is_met(body)
    assert not BodySearch(b"k0", terms).is_met(body.replace(b"6}", b"7}"))


@pytest.mark.parametrize(
    "text",
    [
        ":",
        "a:",
        ":1",
        'a:"',
        '"a',
        '""',
        '"":1',
        "http://x:1 :",
        '{"id":17}',
        'a"b',
        '"a"b',
        'a:"b"c',
        'a:b"c',
    ],
)
def test_what_is_no_search(text):
    with pytest.raises(ValueError, match="quote|path|body") as caught:
        search.parse_search(text)
    assert "\n" not in str(caught.value)


def test_a_search_is_bounded():
    for text in ("x " * (search.TERMS_MAX + 1), "x" * (search.SIZE_MAX + 1)):
        with pytest.raises(ValueError, match="more than"):
            search.parse_search(text)


def test_a_value_may_have_colons():
    assert search.parse_search("at:12:30 url:http://x") == (
        (b"at", b"12:30"),
        (b"url", b"http://x"),
    )


def refuse(constant):
    raise ValueError(constant)


def fields_of(body):
    """All paths and their values; ValueError: it is no JSON."""
    given = {"parse_int": str, "parse_float": str, "parse_constant": refuse}
    found = set()

    def walk(path, value):
        if isinstance(value, tuple):
            for key, each in value:
                walk(f"{path}.{key}" if path else key, each)
        elif isinstance(value, list):
            for each in value:
                walk(path, each)
        else:
            found.add((path, value if isinstance(value, str) else json.dumps(value)))

    walk("", json.loads(body, object_pairs_hook=tuple, **given))
    return found


def make_value(dice, depth=0):
    kind = dice.randrange(8 if depth < 4 else 5)
    if kind < 2:
        return dice.choice([0, 17, -1, 2.5, 1e30, True, False, None])
    if kind < 5:
        return "".join(dice.choices('ab"\\/\n\t é€😀', k=dice.randrange(4)))
    if kind < 7:
        keys = ["".join(dice.choices('ab."é', k=dice.randrange(1, 3))) for _ in range(3)]
        return {key: make_value(dice, depth + 1) for key in keys}
    return [make_value(dice, depth + 1) for _ in range(dice.randrange(3))]


@pytest.mark.parametrize("seed", seeds("body search", 3))
def test_any_json_as_python_reads_it(seed):
    """Whole, and after a change of a few bytes."""
    dice = random.Random(seed)
    for _ in range(1500):
        is_changed = dice.random() < 0.5
        body = json.dumps(make_value(dice), ensure_ascii=is_changed).encode()
        if is_changed:
            body = bytearray(body)
            for _ in range(dice.randrange(1, 3)):
                body[dice.randrange(len(body))] = dice.choice(b'{}[],:"\\0a1.-eu \n')
            body = bytes(body)
        try:
            found = {
                tuple(each.encode("utf-8", "surrogatepass") for each in field)
                for field in fields_of(body)
            }
        except ValueError:
            found = set()
        for path, value in found | {(b"a", b"17"), (b"b.a", b""), (b"a", b"true")}:
            if path:
                is_there = (path, value) in found
                assert BodySearch(b"", ((path, value),)).is_met(body) == is_there, (
                    body,
                    path,
                    value,
                )
