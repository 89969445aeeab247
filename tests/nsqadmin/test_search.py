"""What a search box understands, and how it says what it does not."""

import random
from dataclasses import dataclass

import pytest

from nsqfast.nsqadmin.web.tables import TERMS_MAX, Search
from support.seeds import seeds


@dataclass
class Thing:
    name: str
    depth: int | None = 0
    is_paused: bool = False


def found(text, things):
    search = Search(
        lambda thing: thing.name,
        flags={"is:paused": lambda thing: thing.is_paused},
        numbers={"depth": lambda thing: thing.depth},
    )
    return [thing.name for thing in search.filter(text, things)], search.errors


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("", ["Orders", "clicks", "orders-old"]),
        ("ORD", ["Orders", "orders-old"]),
        ("ord old", ["orders-old"]),
        ("is:paused", ["clicks"]),
        ("IS:PAUSED", ["clicks"]),
        ("depth>10", ["clicks"]),
        ("depth>=10", ["Orders", "clicks"]),
        ("depth<1.5k", ["Orders"]),
        ("depth=2000", ["clicks"]),
        ("depth>1k is:paused cl", ["clicks"]),
        ("127.0.0.1:4151", []),
    ],
)
def test_terms_all_have_to_hold(text, names):
    things = [Thing("Orders", 10), Thing("clicks", 2000, True), Thing("orders-old", None)]
    assert found(text, things) == (names, [])


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("is:nothing", "is:nothing is not known; known: is:paused"),
        ("no:paused", "no:paused is not known; known: is:paused"),
        ("size>3", "size is not a number of this table; known: depth"),
        ("b " * TERMS_MAX, f"only the first {TERMS_MAX} terms count"),
        ("depth>", "depth>: write a number behind >, such as 1000 or 2.5k"),
        ("depth>1e9", "depth>1e9: write a number behind >, such as 1000 or 2.5k"),
        ("depth>9t", "depth>9t: write a number behind >, such as 1000 or 2.5k"),
    ],
)
def test_a_term_that_is_wrong_is_an_error_and_the_others_count(text, error):
    things = [Thing("a"), Thing("b")]
    assert found(f"{text} b", things) == (["b"], [error])


@pytest.mark.parametrize("seed", seeds("search", 20))
def test_any_text_is_read_without_an_exception(seed):
    dice = random.Random(seed)
    signs = "is:no>=<depth pause 0123.k\t\u0130\u00df\U0001f600\x00\\*[("
    text = "".join(dice.choice(signs) for _ in range(dice.randrange(80)))
    things = [Thing("depth"), Thing("\u0130", None)]
    names, errors = found(text, things)
    assert set(names) <= {"depth", "\u0130"}
    assert all(isinstance(error, str) for error in errors)
