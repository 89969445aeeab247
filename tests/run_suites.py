"""Runs every test: suites side by side, each in a pytest of its own; the last line counts all, in pytest's words.

    python tests/run_suites.py [ARGS of pytest]

ARGS that name files or folders of tests/ are one pytest as usual; a file has all its tests then, those of soak too.
Those of benchmarks/ run briefly, as suites like the others.
NSQFAST_TEST_PROCESSES says how many run at a time, NSQFAST_SEED repeats the seeds of a run.
What each suite said stands in build/tests/NAME.log (`LOGS`).

What fails has a second look at the end: the test runs once more, in a process of its own with nothing beside it. If it
passes then, the run is green and names it as unsteady, with the seed; more than UNSTEADY_MAX of them are red. What
guards messages (`support.suites.guards_messages`) has no second look. A suite that says nothing for SILENCE_S_MAX shows
where it stands and is ended.
"""

import contextlib
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from support.seeds import RUN as SEED
from support.suites import ROOT, divide, guards_messages, is_within, list_files

LOGS = ROOT / "build" / "tests"
PYTEST = str(Path(sys.executable).with_name("pytest"))
PASSED, FAILED, INTERRUPTED, WRONG_USE, NO_TESTS = 0, 1, 2, 4, 5
COLOUR = re.compile(r"\x1b\[[0-9;]*m")
SUMMARY = re.compile(r"^(?:=+ )?((?:\d+ \w+, )*\d+ \w+) in [\d.]+s\b", re.MULTILINE)
TROUBLE = re.compile(r"^=+ (?:ERRORS|FAILURES) =+$", re.MULTILINE)
WORDS = ("failed", "passed", "skipped", "deselected", "xfailed", "xpassed", "warning", "error")
UNSTEADY_MAX = 3
# With more failures something is broken, and a look at each of them would only take time.
LOOKS_MAX = 10
# More than a test may take by its own limit, which one that stands in compiled code does not heed.
SILENCE_S_MAX = 600
# What was interrupted has so long to end all that it started.
END_S_MAX = 30


@dataclass
class Ended:
    """A suite that has run."""

    name: str
    status: int
    text: str
    seconds: float
    failed: dict[str, list[str]] = field(default_factory=dict)  # node ids, and how: failed, error
    unsteady: set[str] = field(default_factory=set)  # those of them that passed in the second look

    @property
    def is_well(self):
        is_unsteady = self.status == FAILED and self.failed and self.failed.keys() == self.unsteady
        return self.status in {PASSED, NO_TESTS} or bool(is_unsteady)

    @property
    def counts(self):
        """How many passed, failed ..., by pytest's words."""
        found = SUMMARY.findall(self.text)
        pairs = [one.split() for one in found[-1].split(", ")] if found else []
        counts = Counter({singular(word): int(count) for count, word in pairs})
        counts.subtract(word for one in self.unsteady for word in self.failed[one])
        counts["passed"] += len(self.unsteady)
        return counts

    def report(self):
        """One line, below all that is wrong."""
        said = say_counts(self.counts) or f"ended with {self.status}"
        line = f"{self.name:<17} {said} in {self.seconds:.0f}s"
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
    logs: Path = LOGS
    seed: str = SEED
    silence_s_max: float = SILENCE_S_MAX
    processes: set[subprocess.Popen[bytes]] = field(default_factory=set)
    ended: list[Ended] = field(default_factory=list)
    is_over: bool = False
    interrupted_s: float = 0.0

    def run_beside(self, suites, count):
        """So many at a time, in that order."""
        with ThreadPoolExecutor(count) as pool:
            running = [
                pool.submit(self.run_suite, name, [*self.arguments, *files])
                for name, files in suites.items()
            ]
            for one in running:
                one.result()

    def run_suite(self, name, arguments):
        if self.is_over:
            return
        ended = self.run_pytest(name, arguments)
        self.ended.append(ended)
        if ended.status != NO_TESTS:
            print(ended.report(), flush=True)
        self.is_over = self.is_over or (not ended.is_well and self.stops_at_first)

    def run_pytest(self, name, arguments):
        """Run one pytest to its end."""
        log, cache = self.logs / f"{name}.log", self.logs / f"cache-{name}"
        log.parent.mkdir(parents=True, exist_ok=True)
        began_s = time.monotonic()
        with make_folder() as folder, log.open("wb") as out:
            # A session of its own: Ctrl-C reaches it once, from here.
            process = subprocess.Popen(
                [PYTEST, "-o", f"cache_dir={cache}", f"--basetemp={folder}/t", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                cwd=self.root,
                env=os.environ | {"NSQFAST_SEED": self.seed},
                start_new_session=True,
            )
            self.processes.add(process)
            status = self.await_end(process, out)
            self.processes.discard(process)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # what it started and left behind
        text = COLOUR.sub("", log.read_text(encoding="utf-8", errors="replace"))
        seconds = time.monotonic() - began_s
        return Ended(name, status, text, seconds, read_failed(cache, text))

    def await_end(self, process, out):
        """Return how it ended; end it when it says nothing any more, or does not heed an interrupt."""
        size, since_s = 0, time.monotonic()
        while True:
            with contextlib.suppress(subprocess.TimeoutExpired):
                return process.wait(1)
            now_s = time.monotonic()
            if os.fstat(out.fileno()).st_size != size:
                size, since_s = os.fstat(out.fileno()).st_size, now_s
            if now_s - since_s > self.silence_s_max:
                show_stack(process)
                out.write(f"\nnsqfast: it said nothing for {self.silence_s_max} s\n".encode())
            elif self.is_interrupted and now_s - self.interrupted_s > END_S_MAX:
                show_stack(process)

    def look_again(self):
        """Run what failed once more, one test at a time, unless it guards messages."""
        failed = [(suite, one) for suite in self.ended for one in suite.failed]
        if len(failed) > LOOKS_MAX or self.stops_at_first:
            return
        for number, (suite, one) in enumerate(failed, 1):
            if self.is_over:
                return
            if not guards_messages(one):
                again = self.run_pytest(f"again-{number}", [*self.arguments, one])
                suite.unsteady |= {one} if again.status == PASSED else set()

    @property
    def unsteady(self):
        return sorted(one for suite in self.ended for one in suite.unsteady)

    @property
    def stops_at_first(self):
        return any(one in {"-x", "--exitfirst"} for one in self.arguments)

    @property
    def is_interrupted(self):
        return self.interrupted_s > 0

    def interrupt(self):
        """Nothing begins any more, and what runs ends as after Ctrl-C."""
        self.is_over, self.interrupted_s = True, time.monotonic()
        for process in list(self.processes):
            process.send_signal(signal.SIGINT)

    @property
    def status(self):
        bad = [one.status for one in self.ended if not one.is_well]
        if bad:
            return FAILED if FAILED in bad else bad[0]
        if len(self.unsteady) > UNSTEADY_MAX:
            return FAILED
        return PASSED if any(one.status != NO_TESTS for one in self.ended) else NO_TESTS

    def sum_up(self):
        """All counts, as pytest says them."""
        return say_counts(sum((one.counts for one in self.ended), Counter())) or "no tests ran"


def make_folder():
    """For the files of one pytest: several that share a folder remove old files there at the same time, and fail."""
    return tempfile.TemporaryDirectory(prefix="nsqfast-", ignore_cleanup_errors=True)


def read_failed(cache, text):
    """The tests that failed in this run, and how: pytest's cache has the ids of earlier runs, too."""
    path = cache / "v" / "cache" / "lastfailed"
    known = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    found = {
        one: re.findall(rf"^(FAILED|ERROR) {re.escape(one)}(?: - |$)", text, re.MULTILINE)
        for one in known
        if "::" in one
    }
    return {one: [word.lower() for word in words] for one, words in found.items() if words}


def show_stack(process):
    """Have it write where it stands, and end: pytest has faulthandler heed this signal."""
    process.send_signal(signal.SIGABRT)
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()


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
    return int(given) if given else 3 * (os.cpu_count() or 1)


def is_benchmark(argument):
    return argument.partition("/")[0] == "benchmarks"


def list_folders(parent):
    """Those with benchmarks in them."""
    return sorted({str(path.parent.relative_to(ROOT)) for path in parent.rglob("bench_*.py")})


def name_missing(arguments):
    """What looks like a place of tests and is none."""
    places = [one for one in arguments if one.startswith(("tests/", "benchmarks/"))]
    return [one for one in places if not (ROOT / one.partition("::")[0]).exists()]


def run_named(arguments):
    """One pytest, whose output is shown as it comes; Ctrl-C reaches it by itself."""
    process = subprocess.Popen([PYTEST, *arguments])
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: process.terminate())
    return process.wait()


def run_suites(arguments):
    runner = Runner(arguments)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: runner.interrupt())
    began_s = time.monotonic()
    if benchmarks := [one for one in arguments if is_benchmark(one)]:
        others = [one for one in arguments if one not in benchmarks]
        runner.arguments = [*others, "--smoke", "--benchmark-disable"]  # of the second look, too
        places = list_folders(ROOT / "benchmarks") if benchmarks == ["benchmarks"] else benchmarks
        runner.run_beside({place: [place] for place in places}, count_processes())
    else:
        files, runner.arguments = choose_files(arguments)
        runner.run_beside(divide(files), count_processes())
    runner.look_again()
    for one in runner.unsteady:
        print(f"unsteady: {one} (seed {SEED})")
    if runner.status == FAILED:
        print(f"NSQFAST_SEED={SEED} repeats its seeds")
    if runner.status != NO_TESTS:
        print(f"{runner.sum_up()} in {time.monotonic() - began_s:.2f}s")
    return INTERRUPTED if runner.is_interrupted else runner.status


def main(arguments):
    named = list_named(arguments)
    if name_missing(arguments):
        status = NO_TESTS
    elif named:
        status = run_named(complete(arguments, named))
        is_unknown_name = status == WRONG_USE and not any(one.startswith("-") for one in arguments)
        status = NO_TESTS if is_unknown_name else status
    else:
        status = run_suites(arguments)
    if status == NO_TESTS:
        print(f"nsqfast: no test matches {shlex.join(arguments)}")
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
