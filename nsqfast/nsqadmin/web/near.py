"""Existing names similar to a mistyped one."""

import asyncio
from collections.abc import Iterable

NEAR_MAX = 8
SCORE_MIN = 0.3


def _pairs(name: str) -> set[str]:
    folded = f" {name.lower()} "
    return {folded[index : index + 2] for index in range(len(folded) - 1)}


def rank_names(wanted: str, names: Iterable[str]) -> list[str]:
    """The best first, by the pairs of letters that they share (Dice's coefficient)."""
    pairs = _pairs(wanted)
    scored = []
    for name in names:
        others = _pairs(name)
        score = 2 * len(pairs & others) / (len(pairs) + len(others))
        if score >= SCORE_MIN:
            scored.append((-score, name))
    return [name for _, name in sorted(scored)[:NEAR_MAX]]


async def near_names(wanted: str, names: Iterable[str]) -> list[str]:
    """In a thread: it takes milliseconds with thousands of names."""
    return await asyncio.to_thread(rank_names, wanted[:256], list(names))
