"""Runs every test: suites side by side, each in a pytest of its own; the last line counts all, in pytest's words.

    python tests/run_suites.py [ARGS of pytest]

ARGS that name files or folders of tests/ are one pytest as usual; a file has all its tests then, those of soak too.
NSQFAST_TEST_PROCESSES says how many run at a time.
What each suite said stands in build/tests/NAME.log.
"""

import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from support.suites import ALONE, ROOT, divide, is_within, list_files

PYTEST = str(Path(sys.executable).with_name("pytest"))
PASSED, FAILED, INTERRUPTED, NO_TESTS = 0, 1, 2, 5
COLOUR = re.compile(r"\x1b\[[0-9;]*m")
SUMMARY = re.compile(r"^(?:=+ )?((?:\d+ \w+, )*\d+ \w+) in [\d.]+s\b", re.MULTILINE)
TROUBLE = re.compile(r"^=+ (?:ERRORS|FAILURES) =+$", re.MULTILINE)
WORDS = ("failed", "passed", "skipped", "deselected", "xfailed", "xpassed", "warning", "error")


@dataclass(frozen=True)
class Ended:
    """A suite that has run."""

    name: str
    status: int
    text: str
    seconds: float

    @property
    def is_well(self):
        return self.status in {PASSED, NO_TESTS}

    @property
    def counts(self):
        """How many passed, failed ..., by pytest's words."""
        found = SUMMARY.findall(self.text)
        pairs = [one.split() for one in found[-1].split(", ")] if found else []
        return Counter({singular(word): int(count) for count, word in pairs})

    def report(self):
        """One line, below all that is wrong."""
        said = say_counts(self.counts) or "no tests ran"
        if not self.is_well and not self.counts:
            said = f"ended with {self.status}"
        line = f"{self.name:12}{said} in {self.seconds:.0f}s"
        return line if self.is_well else f"{self.trouble}\n{line}"

    @property
    def trouble(self):
        """From the first failure on; all that was said where there is none, as after a crash."""
        found = TROUBLE.search(self.text)
        return self.text[found.start() if found else 0 :].rstrip()


@dataclass
class Runner:
    """Runs suites of the tests below `root`, with these arguments of pytest."""

    arguments: list[str]
    root: Path = ROOT
    processes: set[subprocess.Popen[bytes]] = field(default_factory=set)
    ended: list[Ended] = field(default_factory=list)
    is_over: bool = False
    is_interrupted: bool = False

    def run_beside(self, suites, count, more=()):
        """So many at a time, in that order, with more arguments of pytest."""
        self.logs.mkdir(parents=True, exist_ok=True)
        with ThreadPoolExecutor(count) as pool:
            running = [
                pool.submit(self.run_suite, name, [*self.arguments, *more, *files])
                for name, files in suites.items()
            ]
            for one in running:
                one.result()

    def run_suite(self, name, arguments):
        if self.is_over:
            return
        log = self.logs / f"{name}.log"
        began_s = time.monotonic()
        command = [PYTEST, "-o", f"cache_dir={self.logs}/cache-{name}", *arguments]
        with log.open("wb") as out:
            # A session of its own: Ctrl-C reaches it once, from here.
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                cwd=self.root,
                start_new_session=True,
            )
            self.processes.add(process)
            status = process.wait()
            self.processes.discard(process)
        text = COLOUR.sub("", log.read_text(encoding="utf-8", errors="replace"))
        self.ended.append(Ended(name, status, text, time.monotonic() - began_s))
        print(self.ended[-1].report(), flush=True)
        self.is_over = self.is_over or (not self.ended[-1].is_well and self.stops_at_first)

    @property
    def logs(self):
        return self.root / "build" / "tests"

    @property
    def stops_at_first(self):
        return any(one in {"-x", "--exitfirst"} for one in self.arguments)

    def interrupt(self):
        """Nothing begins any more, and what runs ends as after Ctrl-C."""
        self.is_over = self.is_interrupted = True
        for process in list(self.processes):
            process.send_signal(signal.SIGINT)

    @property
    def status(self):
        bad = [one.status for one in self.ended if not one.is_well]
        if bad:
            return FAILED if FAILED in bad else bad[0]
        return PASSED if any(one.status == PASSED for one in self.ended) else NO_TESTS

    def sum_up(self):
        """All counts, as pytest says them."""
        return say_counts(sum((one.counts for one in self.ended), Counter())) or "no tests ran"


def singular(word):
    return word.removesuffix("s") if word in {"errors", "warnings"} else word


def say_counts(counts):
    """As pytest does: "1 failed, 2 passed"."""
    plural = {"warning": "warnings", "error": "errors"}
    return ", ".join(
        f"{counts[word]} {word if counts[word] == 1 else plural.get(word, word)}"
        for word in WORDS
        if counts[word]
    )


def choose_files(arguments):
    """The files to run, and the arguments without what chose them: pytest ignores no file that is named."""
    ignored = [one.removeprefix("--ignore=") for one in arguments if one.startswith("--ignore=")]
    files = [path for path in list_files() if not any(is_within(path, one) for one in ignored)]
    return files, [one for one in arguments if not one.startswith("--ignore=")]


def list_named(arguments):
    """Files and folders of tests among these arguments of pytest."""
    paths = [(ROOT / one.partition("::")[0]).resolve() for one in arguments]
    return [path for path in paths if path.is_relative_to(ROOT / "tests") and path.exists()]


def complete(arguments, named):
    """Whoever names a file wants its tests, whatever time they take."""
    wants_all = any(path.is_file() for path in named) and "-m" not in arguments
    return ["-m", "not trust", *arguments] if wants_all else arguments


def count_processes():
    """More than cores: much of a test is waiting for a process or a disk."""
    given = os.environ.get("NSQFAST_TEST_PROCESSES", "")
    return int(given) if given else 2 * (os.cpu_count() or 1) + 1


def main(arguments):
    named = list_named(arguments)
    if named:
        os.execv(PYTEST, [PYTEST, *complete(arguments, named)])
    files, arguments = choose_files(arguments)
    alone = [one for one in ALONE if one.partition("::")[0] in files]
    runner = Runner(arguments)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: runner.interrupt())
    began_s = time.monotonic()
    runner.run_beside(divide(files), count_processes(), [f"--deselect={one}" for one in alone])
    # A process for each, since those of a browser leave an event loop behind.
    runner.run_beside({f"alone-{number}": [one] for number, one in enumerate(alone, 1)}, 1)
    print(f"{runner.sum_up()} in {time.monotonic() - began_s:.2f}s")
    return INTERRUPTED if runner.is_interrupted else runner.status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
