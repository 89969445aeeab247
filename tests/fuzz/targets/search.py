"""Searches of bodies by fields, against Python's JSON. The input: a search, a newline, a body."""

import json

from nsqfast._ext.core.body_search import BodySearch

from nsqfast.wire.search import SIZE_MAX, parse_search

DEPTH_MAX = 128  # SEARCH_DEPTH_MAX
TRIED_MAX = 20
WORDS = [
    b'"a"',
    b"a.b:17",
    b'{"a": ',
    b'"\\u00e9"',
    b"\\ud83d\\ude00",
    b"[[",
    b"null",
    b"-1.5e+3",
    b'"b c"',
    b"}",
    b"]",
]


def seeds():
    return [
        b'status:failed user.id:17\n{"status": "failed", "user": {"id": 17, "tags": ["a", [true, {"b": null}]]}}',
        b'"card declined" a."b":x\n["\\ud83d\\u0041", -0.5E-7, {"": {"": "\\n\\/"}, "a.b": "x"}]',
        b"a:1\n" + b"[" * 200 + b"]" * 200,
        b'a:\n{"a": "", "a": 01}',
        b"\n17",
    ]


def read_json(body):
    """The fields, (path, value) of each; None = it is no JSON, or deeper than is looked into."""
    try:
        found = json.loads(
            body.decode(),
            object_pairs_hook=Pairs,
            parse_int=Written,
            parse_float=Written,
            parse_constant=refuse,
        )
    except (ValueError, RecursionError):
        return None
    fields = []
    is_shallow = walk(found, (), 0, fields)
    return fields if is_shallow else None


class Pairs(list):
    """Of an object, the same key perhaps several times."""


class Written(str):
    """A number as it is written."""

    __slots__ = ()


def refuse(name):
    raise ValueError(name)


def walk(value, keys, depth, fields):
    if isinstance(value, list):
        pairs = value if isinstance(value, Pairs) else [(None, each) for each in value]
        if depth == DEPTH_MAX:
            return False
        return all(
            walk(each, keys if key is None else join(keys, key), depth + 1, fields)
            for key, each in pairs
        )
    text = value if isinstance(value, str) else {None: "null", True: "true", False: "false"}[value]
    fields.append(
        (".".join(keys).encode("utf-8", "surrogatepass"), text.encode("utf-8", "surrogatepass"))
    )
    return True


def join(keys, key):
    """An empty key at the begin leaves no dot."""
    return (*keys, key) if any(keys) else (key,)


def has(body, *terms):
    return BodySearch(b"", terms).is_met(body)


def check_fields(body, terms):
    fields = read_json(body)
    fitting = {
        (path, value)
        for path, value in fields or ()
        if 0 < len(path) <= SIZE_MAX and len(value) <= SIZE_MAX
    }
    for path, value in sorted(fitting)[:TRIED_MAX]:
        assert has(body, (path, value))
        other = path, value[:-1] + b"!"
        assert has(body, other) == (other in fitting)
        longer = path + b".x", value
        assert len(longer[0]) > SIZE_MAX or has(body, longer) == (longer in fitting)
    expected = all((term in fitting) if term[0] else (term[1] in body) for term in terms)
    assert has(body, *terms) == expected


def check(data):
    text, _, body = data.partition(b"\n")
    try:
        terms = parse_search(text.decode("utf-8", "surrogateescape"))
    except ValueError as error:
        assert "\n" not in str(error)
        terms = ()
    try:
        body.decode()
    except UnicodeDecodeError:
        has(body, *terms)  # what is no UTF-8 may still have fields
        return
    check_fields(body, terms)
