"""The set of messages that came before, in bounded memory."""

import random

import numpy as np
import pytest
from nsqfast._ext.core.hash_set import Seen, siphash_128

from support.seeds import seeds

KEY = bytes(range(16))
SLOT_SIZE = 16


def ask(seen, *texts, scope=b"t", stamps=None):
    """Which of them are new."""
    ends = np.cumsum([len(text) for text in texts], dtype=np.int64)
    starts = ends - np.array([len(text) for text in texts], np.int64)
    chosen = np.ones(len(texts), np.uint8)
    dropped = seen.unmark_seen(b"".join(texts), starts, ends, chosen, scope, stamps)
    assert dropped == len(texts) - chosen.sum()
    return [bool(one) for one in chosen]


@pytest.mark.parametrize(
    ("size", "hexed"),
    [
        (0, "a3817f04ba25a8e66df67214c7550293"),
        (1, "da87c1d86b99af44347659119b22fc45"),
        (7, "a1f1ebbed8dbc153c0b84aa61ff08239"),
        (8, "3b62a9ba6258f5610f83e264f31497b4"),
        (15, "5493e99933b0a8117e08ec0f97cfc3d9"),
        (16, "6ee2a4ca67b054bbfd3315bf85230577"),
    ],
)
def test_the_hash_is_the_published_one(size, hexed):
    assert siphash_128(bytes(range(size)), KEY).hex() == hexed


def test_new_once():
    seen = Seen(1 << 20)
    assert ask(seen, b"a", b"b", b"a", b"") == [True, True, False, True]
    assert ask(seen, b"b", b"c", b"") == [False, True, False]
    assert seen.duplicates == 3


def test_scopes_and_stamps_are_told_apart():
    seen = Seen(1 << 20)
    assert ask(seen, b"a", scope=b"one") == [True]
    assert ask(seen, b"a", scope=b"two") == [True]
    stamps = np.array([1, 2, 1], np.int64)
    assert ask(seen, b"x", b"x", b"x", stamps=stamps) == [True, True, False]


def test_what_is_not_chosen_is_neither_asked_nor_remembered():
    seen = Seen(1 << 20)
    places = np.array([0, 1], np.int64)
    chosen = np.array([0, 1], np.uint8)
    assert seen.unmark_seen(b"ab", places, places + 1, chosen, b"t") == 0
    assert ask(seen, b"a", b"b") == [True, False]


@pytest.mark.parametrize("seed", seeds("seen", 5))
def test_random_texts_against_a_set(seed):
    dice = random.Random(seed)
    seen, model = Seen(1 << 22), set()
    for _ in range(50):
        texts = [b"%d" % dice.randrange(20_000) for _ in range(200)]
        expected = []
        for text in texts:
            expected.append(text not in model)
            model.add(text)
        assert ask(seen, *texts) == expected
    assert seen.count == len(model)
    assert seen.forgotten == 0


@pytest.mark.parametrize("memory_size", [0, 1 << 17, 1 << 20])
def test_memory_stays_bounded_and_the_last_ones_are_remembered(memory_size):
    seen = Seen(memory_size)
    sure, bound = seen.count_sure, max(memory_size, 32 * 1024)
    assert 2 * SLOT_SIZE * sure >= bound * 0.75 * 0.5
    texts = [b"%d" % number for number in range(sure * 5)]
    for at in range(0, len(texts), 1000):
        assert all(ask(seen, *texts[at : at + 1000]))
        assert seen.memory_size <= bound
        # Equal ones with no more than `sure` others between them are always told.
        oldest = max(0, min(at + 1000, len(texts)) - sure)
        assert ask(seen, texts[oldest]) == [False]
    assert seen.forgotten > 0
    assert ask(seen, texts[0]) == [True]


def test_begun_once():
    seen = Seen(0)
    with pytest.raises(ValueError, match="begun"):
        seen.__init__(0)
