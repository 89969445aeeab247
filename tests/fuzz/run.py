"""Gives each target its share of time under libFuzzer, one process at a time, and says what came of it.

    run.py [--seconds N] [--folder F] [TARGET ...]     N seconds for each target (default 60), all targets by default
    run.py --smoke [TARGET ...]                        the same inputs each time, a second or two for each target
    run.py --replay TARGET FILE ...                    once each, in the release build
    run.py --again TARGET FILE ...                     once each, under the sanitizers

A folder (build/fuzz) has corpus/TARGET, which the next run goes on with, findings/TARGET-*, and logs/TARGET.log.

`make fuzz ARGS='--seconds 600 session diskqueue'` needs clang (`apt install clang`) and installs atheris. It compiles
_ext/ with coverage, both sanitizers and the debug assertions into build/fuzz, beside the release build.
`make fuzz-smoke`, which CI runs, has the same sanitizers but not libFuzzer: its inputs go by coverage, which differs
with threads and addresses, and a commit that passed would fail another time by luck. Looking for the new is the part of
`make fuzz`. RESULTS.md says what the long runs gave.

A finding: `.venv/bin/python tests/fuzz/run.py --replay TARGET FILE`, or for a sanitizer's report
`make fuzz ARGS='--again TARGET FILE'`. Then a test that fails in the folder of what is wrong, the fix, and the input
among FOUND of test_targets.py if it is short.
"""

import argparse
import os
import re
import subprocess
import sys
import time
from importlib import import_module, metadata
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
BUILT = ROOT / "build" / "fuzz"
FIGURES = re.compile(r"#(\d+)\s+\w+\s+cov: (\d+) ft: (\d+) corp: (\d+)")
FAULT = re.compile(
    r"Uncaught Python exception|ERROR: AddressSanitizer|runtime error:|ERROR: libFuzzer"
)
SHOWN_MAX = 40
sys.path.insert(0, str(HERE.parent))

# One input may take so long; the slowest honest one needs a hundredth of it.
INPUT_TIMEOUT_S = 10
MEMORY_MB = 2048
# A finding ends libFuzzer; the rest of the time goes to looking for others.
RESTARTS_MAX = 5
# Inputs of the smoke test: a second's, and where they are few, two seconds'.
SMOKE_COUNT = 1000
SMOKE_COUNTS = {
    "ackfile": 3000,
    "direct": 500,
    "http": 500,
    "identify": 2000,
    "query": 2000,
    "request": 10_000,
    "wire": 10_000,
}
# The harness stops before; what takes longer hangs.
SMOKE_TIMEOUT_S = 60


def target_names():
    return sorted(path.stem for path in (HERE / "targets").glob("*.py"))


def preload():
    """The runtime that the instrumented modules were built for; it lies beside the package atheris."""
    found = metadata.distribution("atheris").locate_file("asan_with_fuzzer.so")
    assert Path(str(found)).exists(), f"{found} is missing: this atheris has no sanitizers"
    return str(found)


def environment():
    return os.environ | {
        "PYTHONPATH": str(BUILT / "lib"),
        "LD_PRELOAD": preload(),
        # The sanitizer watches malloc; Python's own allocator would hide most from it.
        "PYTHONMALLOC": "malloc",
        "ASAN_OPTIONS": "detect_leaks=0:allocator_may_return_null=1:malloc_context_size=4",
        "UBSAN_OPTIONS": "print_stacktrace=1",
    }


def word(text):
    """One entry of a dictionary of libFuzzer's."""
    return '"' + "".join(f"\\x{byte:02x}" for byte in text) + '"'


def prepare(name, folder):
    """Seeds into the corpus, the words into a dictionary; both are made from the target anew."""
    corpus = folder / "corpus" / name
    corpus.mkdir(parents=True, exist_ok=True)
    for other in ("findings", "logs"):
        (folder / other).mkdir(exist_ok=True)
    target = import_module(f"fuzz.targets.{name}")
    for number, seed in enumerate(target.seeds()):
        (corpus / f"seed-{number}").write_bytes(seed)
    words = folder / f"{name}.dict"
    words.write_text("\n".join(map(word, target.WORDS)) + "\n")
    return corpus, words


class Figures:
    """Executions add up over restarts; coverage and corpus are the last ones'."""

    def __init__(self):
        self.runs = self.coverage = self.features = self.corpus = self.findings = 0

    def add(self, log):
        lines = FIGURES.findall(log)
        if lines:
            runs, *rest = map(int, lines[-1])
            self.runs += runs
            self.coverage, self.features, self.corpus = rest


def fuzz(name, seconds, folder):
    """Figures of one target; a finding is shown at once."""
    corpus, words = prepare(name, folder)
    figures, end = Figures(), time.monotonic() + seconds
    log_path = folder / "logs" / f"{name}.log"
    log_path.write_text("")
    for _ in range(RESTARTS_MAX):
        left = int(end - time.monotonic())
        if left < 1:
            break
        command = [
            *(sys.executable, str(HERE / "harness.py"), name, str(corpus)),
            *(f"-max_total_time={left}", f"-timeout={INPUT_TIMEOUT_S}", f"-dict={words}"),
            *(f"-rss_limit_mb={MEMORY_MB}", f"-artifact_prefix={folder}/findings/{name}-"),
            *("-max_len=4096", "-print_final_stats=1", "-reload=0"),
        ]
        done = subprocess.run(
            command,
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
        )
        log = done.stdout.decode("utf-8", "replace")
        with log_path.open("a") as file:
            file.write(log)
        figures.add(log)
        if done.returncode == 0:
            break
        figures.findings += 1
        print(shown(name, log), flush=True)
    return figures


def smoke(name, folder):
    """Whether all was well; the inputs are the same on every machine, so that no commit fails by luck."""
    (folder / "findings").mkdir(parents=True, exist_ok=True)
    path = folder / "findings" / f"{name}-smoke"
    count = SMOKE_COUNTS.get(name, SMOKE_COUNT)
    command = [sys.executable, str(HERE / "harness.py"), "--smoke", name, str(count), str(path)]
    begun = time.monotonic()
    try:
        done = subprocess.run(
            command,
            env=environment() | {"PYTHONHASHSEED": "0"},
            timeout=SMOKE_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        print(f"{name}: an input hangs")
    else:
        if done.returncode == 0:
            print(f"{name}: up to {count} inputs, {time.monotonic() - begun:.1f} s", flush=True)
            return True
    print(f"make fuzz ARGS='--again {name} {path}'", flush=True)
    return False


def shown(name, log):
    """The part of a log that says what was found, and how to see it again."""
    at = FAULT.search(log)
    lines = log[at.start() if at else 0 :].splitlines()
    written = re.findall(r"Test unit written to (\S+)", log)
    again = [f"make fuzz ARGS='--again {name} {path}'" for path in written]
    return "\n".join([f"--- {name}", *(lines[:SHOWN_MAX] if at else lines[-SHOWN_MAX:]), *again])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--folder", type=Path, default=BUILT)
    parser.add_argument("--smoke", action="store_true")
    parser.add_argument("--replay", action="store_true")
    parser.add_argument("--again", action="store_true")
    parser.add_argument("names", nargs="*", metavar="TARGET")
    given = parser.parse_args()
    if given.replay:
        from fuzz import harness

        return harness.main(given.names[0], given.names[1:])
    if given.again:
        command = [sys.executable, str(HERE / "harness.py"), *given.names]
        return subprocess.run(command, env=environment(), check=False).returncode
    if unknown := set(given.names) - set(target_names()):
        parser.error(f"no target {', '.join(unknown)}; there are {', '.join(target_names())}")
    names = given.names or target_names()
    if given.smoke:
        failed = [name for name in names if not smoke(name, given.folder.resolve())]
        return 1 if failed else 0
    found = 0
    print("| target | seconds | executions | coverage | features | corpus | findings |")
    print("|---|---|---|---|---|---|---|", flush=True)
    for name in names:
        begun = time.monotonic()
        figures = fuzz(name, given.seconds, given.folder.resolve())
        print(
            f"| {name} | {time.monotonic() - begun:.0f} | {figures.runs:,} | {figures.coverage:,} |"
            f" {figures.features:,} | {figures.corpus:,} | {figures.findings} |",
            flush=True,
        )
        found += figures.findings
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
