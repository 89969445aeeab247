"""Targets and query strings as Python's own library reads them; a redirect leads to a route."""

import re
from urllib.parse import parse_qsl, unquote_to_bytes

from nsqfast.net.http_message import parse_query, split_target
from nsqfast.net.http_routes import Router, clean_path

BROKEN_ESCAPE = re.compile(rb"%(?![0-9a-fA-F]{2})")
WORDS = [b"/pub", b"/topic/create", b"/config/", b"topic=", b"&", b"%2F", b"%", b"http://h/", b".."]
ROUTES = Router()
for _method, _pattern in (("POST", "/pub"), ("GET", "/config/:opt"), ("GET", "/debug/pprof/")):
    ROUTES.add(_method, _pattern, True)


def seeds():
    return [
        b"/pub?topic=t&defer=5",
        b"http://host/pub?topic=t#ephemeral&topic=u",
        b"/%70ub?a%20b+c=%ff&=&x;y",
        b"//PUB/../config/./log_level",
    ]


def read_query(query):
    if BROKEN_ESCAPE.search(query) or b";" in query:
        return None
    text = query.decode("utf-8", "surrogateescape")
    pairs = parse_qsl(
        text, keep_blank_values=True, errors="surrogateescape", max_num_fields=None, separator="&"
    )
    return dict(reversed(pairs))


def check(data):
    try:
        path, query = split_target(data)
    except ValueError:
        assert BROKEN_ESCAPE.search(data.partition(b"?")[0])
        return
    # unquote leaves what is not ASCII as it stands, so only ASCII paths have a simple answer.
    before = data.partition(b"?")[0]
    if before.isascii() and before[:1] == b"/":
        assert path == unquote_to_bytes(before).decode("utf-8", "surrogateescape")
    try:
        values = parse_query(query)
    except ValueError:
        values = None
    assert values == read_query(query), (values, read_query(query))
    cleaned = clean_path(path)
    assert clean_path(cleaned) == cleaned
    for method in ("GET", "POST"):
        corrected = ROUTES.correct(method, path)
        assert corrected is None or ROUTES.find(method, corrected)
