"""Many clients and operators do what they like with a broker, and the books have to hold.

    run.py [--seconds N] [--seed S] [--life N] [--sanitized] [--folder F]

The seed is printed first. It repeats what is done, not when: that is up to the machine, so a finding may need a few
tries. Its report names the messages, who published them and when, what was done with their channel, and the logs of two
lives. A life of the broker lasts some seconds; the next one goes on with what it left.

`make fuzz-states` takes ten minutes, under the sanitizers where there is clang. Some dozens of clients send SUB, RDY,
FIN, REQ, TOUCH and CLS with own and foreign ids, over packed connections, too, and reset them; operators pause, empty
and delete. A message that was accepted is there until it was finished or wiped, and never afterwards; what came less
what was finished is what is left; no client that does nothing wrong is dropped.
"""

import argparse
import asyncio
import os
import random
import shutil
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1]))

from fuzz import run as fuzzer  # noqa: E402 - found by the line above
from fuzz.states import autopsy  # noqa: E402
from fuzz.states.life import live  # noqa: E402
from fuzz.states.world import World  # noqa: E402

LIFE_SECONDS = 8.0
COMPLAINTS_SHOWN = 5


async def fuzz(folder, seed, seconds, life_seconds):
    """The complaints; none is what is wanted."""
    world, left, number = World(), None, 0
    end = time.monotonic() + seconds
    while not world.complaints:
        rest = end - time.monotonic()
        # The last one only gives out what is left.
        here = min(life_seconds, rest) if rest > 1 else 0
        try:
            left = await live(world, folder, f"{seed}-{number}", here, left)
        except Exception as error:
            world.complain(error)
        if not world.complaints:
            total = sum(left.values())
            probed = (
                f", worst answer of the probe {world.probe_max_s * 1000:.0f} ms" if here else ""
            )
            print(f"{seed}-{number}: {total:,} messages left{probed}", flush=True)
        if not here:
            break
        number += 1
    return world


def shown(world, folder):
    """What was found; the logs of that broker and of the one before go to its data."""
    lines = []
    for when, error in world.complaints[:COMPLAINTS_SHOWN]:
        lines += autopsy.report(world, when, error)
    if world.server:
        (folder / "nsqd.log").write_text(world.server.stderr)
        (folder / "nsqd.log.before").write_text(world.log_before)
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--seed", default=str(random.SystemRandom().getrandbits(32)))
    parser.add_argument("--life", type=float, default=LIFE_SECONDS, help="seconds of one start")
    parser.add_argument("--sanitized", action="store_true", help="the build of `make fuzz`")
    parser.add_argument("--folder", type=Path, help="for data; kept afterwards")
    given = parser.parse_args()
    print(f"seed {given.seed}", flush=True)
    if given.sanitized:
        # The broker alone, whose modules stand in build/fuzz; the working folder must not come before.
        os.environ.update(fuzzer.environment() | {"PYTHONSAFEPATH": "1"})
    parent = "/dev/shm" if Path("/dev/shm").is_dir() else None
    folder = given.folder or Path(tempfile.mkdtemp(prefix="nsqfast-states-", dir=parent))
    folder.mkdir(parents=True, exist_ok=True)
    world = asyncio.run(fuzz(folder, given.seed, given.seconds, given.life))
    if world.complaints:
        print(shown(world, folder))
        print(f"again: tests/fuzz/states/run.py --seconds {given.seconds:g} --seed {given.seed}")
        print(f"data and log: {folder}")
        return 1
    if given.folder is None:
        shutil.rmtree(folder)
    print(f"the books hold: {world.life_count} lives, {world.books.totals()}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
