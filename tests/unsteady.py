"""Looks for tests that fail by luck: every suite again and again, on a machine that is busy.

    python tests/unsteady.py [ARGS of pytest]

ROUNDS says how often (5). More suites run at a time than there are cores, beside busy loops and a program that writes
to the disk, so that the load is 8 or more. Each round has a seed of its own. The last lines name what failed, how often
and with which seeds; all that a suite said stands in build/unsteady/ROUND/SUITE.log. Nothing has a second look here.
"""

import contextlib
import os
import random
import signal
import statistics
import subprocess
import sys
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from threading import Lock

from run_suites import INTERRUPTED, Runner, choose_files
from support.suites import ROOT, divide

PLACE = ROOT / "build" / "unsteady"
SUITES_AT_A_TIME = 8
# They end by themselves when this process does.
BUSY_LOOP = """
import os
parent = os.getppid()
while os.getppid() == parent:
    sum(range(100_000))
"""
DISK_WRITER = """
import os, sys
parent, block = os.getppid(), bytes(1 << 22)
with open(sys.argv[1], "wb", buffering=0) as file:
    while os.getppid() == parent:
        file.seek(0)
        for _ in range(16):
            file.write(block)
            os.fsync(file.fileno())
"""
OTHERS = [[BUSY_LOOP], [BUSY_LOOP], [DISK_WRITER, str(PLACE / "blocks")]]


@contextlib.contextmanager
def keep_busy():
    """Others use the machine, too, until the block ends."""
    started = [subprocess.Popen([sys.executable, "-c", *words]) for words in OTHERS]
    try:
        yield
    finally:
        for one in started:
            one.kill()
            one.wait()


def describe(rounds):
    """A line for each test that failed, those that did most often first; a suite that crashed is named as such."""
    seeds = defaultdict(list)
    for runner in rounds:
        for suite in runner.ended:
            for one in suite.failed or ([] if suite.is_well else [f"all of {suite.name}"]):
                seeds[one].append(runner.seed)
    ordered = sorted(seeds.items(), key=lambda item: (-len(item[1]), item[0]))
    return [f"{len(found)}x {one} (seeds {', '.join(found)})" for one, found in ordered]


def run_rounds(rounds, suites):
    """Return what the load was whenever a suite ended."""
    locks = {
        name: Lock() for name in suites
    }  # none beside itself: some have one cache, or one folder in build/

    def run(runner, name):
        with locks[name]:
            runner.run_suite(name, [*runner.arguments, *suites[name]])
        return os.getloadavg()[0]

    with ThreadPoolExecutor(SUITES_AT_A_TIME) as pool:
        running = [pool.submit(run, runner, name) for runner in rounds for name in suites]
        return [one.result() for one in running]


def main(arguments):
    files, arguments = choose_files(arguments)
    dice = random.SystemRandom()
    rounds = [
        Runner(arguments, logs=PLACE / str(number), seed=str(dice.getrandbits(32)))
        for number in range(1, int(os.environ.get("ROUNDS") or 5) + 1)
    ]
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: [runner.interrupt() for runner in rounds])
    PLACE.mkdir(parents=True, exist_ok=True)
    with keep_busy():
        loads = run_rounds(rounds, divide(files))
    failed = describe(rounds)
    print("\n".join(failed))
    print(f"{len(failed)} unsteady in {len(rounds)} rounds, load {statistics.median(loads):.1f}")
    return INTERRUPTED if rounds[0].is_interrupted else int(bool(failed))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
