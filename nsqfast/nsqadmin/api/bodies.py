"""Read request bodies as Go's decoder does: the first JSON value counts, whatever the content type."""

import json

from aiohttp import web

from nsqfast.nsqadmin.actions.order import read_limited
from nsqfast.nsqadmin.cluster.answers import quote_character
from nsqfast.wire.gojson import decode_record

BODY_SIZE_MAX = 1 << 20

_GO_TYPES = {
    dict: "object",
    list: "array",
    str: "string",
    bool: "bool",
    int: "number",
    float: "number",
}


async def read_strings(request: web.Request, *names: str) -> dict[str, str]:
    """These members of a JSON object, '' for missing ones; 400 with the decoder's text."""
    body = await read_limited(request, BODY_SIZE_MAX, "BODY_TOO_BIG")
    text = body.decode("utf-8", "replace").lstrip(" \t\r\n")
    if not text:
        raise web.HTTPBadRequest(text="EOF")
    try:
        value, end = json.JSONDecoder().raw_decode(text)
    except json.JSONDecodeError as error:
        raise web.HTTPBadRequest(text=_syntax_text(text, error)) from None
    except RecursionError:
        raise web.HTTPBadRequest(text="exceeded max depth") from None
    _check_types(value, names)
    return decode_record(text[:end].encode(), names, {})


def _check_types(value: object, names: tuple[str, ...]) -> None:
    if value is None:
        return
    if not isinstance(value, dict):
        fields = "; ".join(f'{name.title()} string "json:\\"{name}\\""' for name in names)
        kind = _GO_TYPES[type(value)]
        raise web.HTTPBadRequest(
            text=f"json: cannot unmarshal {kind} into Go value of type struct {{ {fields} }}"
        )
    for key, member in value.items():
        if key.lower() in names and member is not None and not isinstance(member, str):
            kind = _GO_TYPES[type(member)]
            field = f".{key.lower()} of type string"
            raise web.HTTPBadRequest(
                text=f"json: cannot unmarshal {kind} into Go struct field {field}"
            )


def _syntax_text(text: str, error: json.JSONDecodeError) -> str:
    rest = text[error.pos :].lstrip(" \t\r\n")
    if not rest or error.msg.startswith("Unterminated string"):
        return "unexpected EOF"
    where = {
        "Expecting ',' delimiter": "after object key:value pair",
        "Expecting ':' delimiter": "after object key",
        "Expecting property name enclosed in double quotes": (
            "looking for beginning of object key string"
        ),
    }.get(error.msg, "looking for beginning of value")
    return f"invalid character {quote_character(rest[0])} {where}"
