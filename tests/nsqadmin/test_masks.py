"""What --mask-json hides, and what cannot be searched for it."""

import json

import pytest

from nsqfast.nsqadmin.messages.bodies import INNER_DEPTH_MAX, MASK, Masks, hex_dump, show_body

MASKS = Masks(["password", "PIN"])


def hide(value, *, is_whole=True, is_admin=False):
    body = value if isinstance(value, bytes) else json.dumps(value).encode()
    return MASKS.hide(body, is_whole=is_whole, is_admin=is_admin)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ({"password": 1}, {"password": MASK}),
        ({"Password": {"deep": [1]}}, {"Password": MASK}),
        ([[{"a": {"pin": None}}]], [[{"a": {"pin": MASK}}]]),
        ({"pin": 1, "password": 2, "c": 3}, {"pin": MASK, "password": MASK, "c": 3}),
    ],
)
def test_values_are_hidden_wherever_the_key_is(value, shown):
    masked = hide(value)
    assert json.loads(masked.body) == shown
    assert masked.is_changed
    assert json.loads(hide(b'{"pin": 1, "a": "\\ud800"}').body)["a"] == "?"  # no text


def test_json_within_a_text_is_searched_too():
    value = {"inner": json.dumps({"more": json.dumps({"pin": "1234"})})}
    masked = hide(value)
    inner = json.loads(json.loads(json.loads(masked.body)["inner"])["more"])
    assert inner == {"pin": MASK}
    for _ in range(INNER_DEPTH_MAX + 2):
        value = {"inner": json.dumps(value)}
    assert b"1234" not in hide(value).body
    assert b"1234" not in hide({"inner": '{"pin": "1234", broken'}).body


def test_what_names_no_key_stays_as_it_is_byte_by_byte():
    for body in (
        b'{ "a":1.50e3,"b" : "\\u0041" }',
        b"[]",
        b"7",
        b'"password"',
        b'{"a": "{not json"}',
    ):
        assert hide(body) == (body, False, "")
        assert Masks(()).hide(b"anything", is_whole=True, is_admin=False).body == b"anything"


@pytest.mark.parametrize(
    "body",
    [
        b"words",
        b"",
        b"\xff\xfe\x00",
        b"[" * 60_000,
        b"9" * 5000,
        b'{"a": 1} {"b": 2}',
        b'{"a": "\\ud800',
    ],
)
def test_what_is_no_json_is_hidden_from_viewers_alone(body):
    assert "is no JSON" in hide(body).reason
    assert hide(body).body == b""
    assert hide(body, is_admin=True) == (body, False, "")


def test_what_cannot_be_searched_and_names_a_key_is_hidden_from_everybody():
    for body, is_whole in ((b"PassWord=1", True), (b'{"pin": "12', False)):
        for is_admin in (True, False):
            masked = hide(body, is_whole=is_whole, is_admin=is_admin)
            assert masked.body == b""
            assert masked.reason


def test_a_character_that_was_cut_in_two_does_not_make_a_text_binary():
    euro = "€".encode()
    cut = show_body(b"a" + euro[:2], is_whole=False, masks=Masks(()), is_admin=True)
    assert (cut.kind, cut.body, cut.is_truncated) == ("text", "a", True)
    whole = show_body(b"a" + euro[:2], is_whole=True, masks=Masks(()), is_admin=True)
    assert whole.kind == "binary"
    assert whole.data == b"a" + euro[:2]


def test_hex_dump():
    assert hex_dump(b"") == ""
    data = bytes(range(16, 50))
    lines = hex_dump(data).split("\n")
    assert (
        lines[1] == "00000010  20 21 22 23 24 25 26 27 28 29 2a 2b 2c 2d 2e 2f  | !\"#$%&'()*+,-./|"
    )
    assert lines[2] == f"00000020  {'30 31':<47}  |01|"
