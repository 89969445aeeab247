"""Runs one target: under libFuzzer, or once for each of the files named (any build, no atheris needed).

harness.py TARGET -max_total_time=60 ... FOLDER
harness.py TARGET FILE...
harness.py --smoke TARGET COUNT FILE        the same inputs each time; FILE has the one that failed
"""

import importlib
import random
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

# Where a machine is that slow, there are fewer inputs; nothing is found wrong.
SMOKE_SECONDS_MAX = 15


def main(name, words):
    """Only comes back when files were named."""
    files = [Path(word) for word in words if not word.startswith("-")]
    if files and all(file.is_file() for file in files) and len(files) == len(words):
        target = importlib.import_module(f"fuzz.targets.{name}")
        for file in files:
            target.check(file.read_bytes())
            print(f"{file}: nothing found")
        return
    import atheris

    # The compiled modules are instrumented already, these are the ones in Python.
    with atheris.instrument_imports(include=["nsqfast"]):
        target = importlib.import_module(f"fuzz.targets.{name}")
    atheris.Setup([name, *words], target.check)
    atheris.Fuzz()


def smoke(name, count, path):
    """Without feedback: libFuzzer's inputs go by coverage, and that differs with threads and addresses."""
    target = importlib.import_module(f"fuzz.targets.{name}")
    dice, end = random.Random(name), time.monotonic() + SMOKE_SECONDS_MAX
    seeds = target.seeds()
    for number in range(count):
        if time.monotonic() > end:
            print(f"{name}: {SMOKE_SECONDS_MAX} s are over, {number} of {count} inputs")
            break
        data = seeds[number] if number < len(seeds) else mutated(dice, seeds, target.WORDS)
        # Also for a sanitizer, which ends the process.
        path.write_bytes(data)
        target.check(data)
    path.unlink(missing_ok=True)


def mutated(dice, seeds, words):
    """A seed with a few places changed."""
    data = bytearray(dice.choice(seeds))
    for _ in range(dice.choice((1, 1, 2, 4, 8))):
        at = dice.randrange(len(data) + 1)
        match dice.randrange(5):
            case 0:
                data[at : at + 1] = dice.randbytes(1)
            case 1:
                data[at : at + 1] = bytes(
                    [(byte + dice.choice((-1, 1))) % 256 for byte in data[at : at + 1]]
                )
            case 2:
                data[at:at] = dice.choice(words)
            case 3:
                del data[at : at + dice.choice((1, 4, 40))]
            case 4:
                other = dice.choice(seeds)
                data[at:] = other[dice.randrange(len(other) + 1) :]
    return bytes(data)


if __name__ == "__main__":
    if sys.argv[1] == "--smoke":
        smoke(sys.argv[2], int(sys.argv[3]), Path(sys.argv[4]))
    else:
        main(sys.argv[1], sys.argv[2:])
