"""Seeds of tests that are named before they run; NSQFAST_SEED, a number, repeats those of a run."""

import os
import random

RUN = os.environ.setdefault("NSQFAST_SEED", str(random.SystemRandom().getrandbits(32)))


def seeds(name: str, count: int) -> list[int]:
    """Different ones for each name."""
    dice = random.Random(f"{RUN} {name}")
    return [dice.getrandbits(32) for _ in range(count)]
