"""Whether tests notice a changed line of the product.

    make mutants ARGS="nsqfast/net [--count 200] [--seed 30] [--workers 2] [--out FILE] [--again FILE]"

Draws mutants of the package, gives each to the tests that run its line, stops at the first that fails, and writes a
line of JSON for each to FILE: killed (by which test), timed out, survived, or that no test runs it. Started again, it
goes on where it was interrupted. --again looks once more at those that an earlier FILE calls killed, of another commit
say, and ends with 1 when one of them survives.

All happens in copies of the checkout below build/mutants. The map of lines to tests stands there too; a file of tests
whose text changed is run anew for it. A mutant gets SECONDS_MAX of tests (`is_cut`: there were more), those first
that run lines near it which few others run, in the shortest time. Browsers are left out, and what is soak.
"""

import argparse
import ast
import contextlib
import functools
import hashlib
import importlib.util
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import coverage
from choose import Mutant, draw, list_mutants

HERE = Path(__file__).resolve().parent
# The tests of a package; others run it as well, by the way.
NEAR = {
    "nsqfast/nsqadmin": ("nsqadmin",),
    "nsqfast/net": ("net", "nsqd", "nsqlookupd", "streams", "nsqadmin"),
    "nsqfast/tools": ("tools", "archives", "deploy"),
}
SECONDS_MAX = 20  # beside what their fixtures take
BYTES_MAX = 4 << 30  # of address space: some mutants grow without end
# Such a failure may be the machine's: it counts when it comes twice.
LATE = re.compile(r"not in [\d.]+ s|[Tt]imed? ?out|did not (?:start|stop)|never")
FAILED = re.compile(r"^(?:FAILED|ERROR) (tests/.+?)(?: - .*)?$", re.MULTILINE)
COPY = "<copy>"  # the path in names of tests: each copy has its own
PYTEST = "-m pytest -q -rfE --tb=short -p pytest_timeout -p no:cacheprovider".split()
CONFIG = """[run]
core = ctrace
parallel = true
plugins = contexts
patch = _exit
include = {inside}*
data_file = {folder}/data
context = ${{MUTANTS_BEGIN}}
disable_warnings = no-data-collected
"""


class Copy:
    """A checkout to be mutated, with the environment and the compiled modules of the real one."""

    def __init__(self, root, place):
        self.root, self.place, self.process = root, place, None
        shutil.rmtree(place, ignore_errors=True)
        linked = [name for name in (".venv", ".go-nsq", "_ext") if (root / name).exists()]
        left_out = shutil.ignore_patterns(".git", "build", "data", *linked)
        shutil.copytree(root, place, symlinks=True, ignore=left_out)
        for name in linked:
            (place / name).symlink_to(root / name)

    def run(self, seconds_max, *arguments, **environment):
        """The status of pytest, or None when the time was up, and what it said."""
        log, path = self.place.with_suffix(".log"), f"{self.place}{os.pathsep}{HERE}"
        # Loading plugins that no test needs takes a second of processor time.
        environment |= {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONPATH": path}
        environment["NSQFAST_SEED"] = "30"  # the names of tests in the map have their seeds
        with log.open("wb") as out:
            self.process = subprocess.Popen(
                [
                    sys.executable,
                    *PYTEST,
                    *(one.replace(COPY, str(self.place)) for one in arguments),
                ],
                cwd=self.place,
                env=os.environ | environment,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=limit_memory,  # noqa: PLW1509 - it sets one limit
            )
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(seconds_max)
        status = self.process.poll()
        self.end()
        if status == -signal.SIGKILL:
            raise InterruptedError("pytest was killed from outside")
        said = log.read_text(encoding="utf-8", errors="replace")
        return status, said.replace(str(self.place), COPY)

    def end(self):
        """What runs, and what it left running."""
        if self.process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()

    def put(self, name, text):
        """A compiled file of the same second and size would pass for that of this text."""
        (self.place / name).write_text(text, encoding="utf-8")
        Path(importlib.util.cache_from_source(self.place / name)).unlink(missing_ok=True)


def limit_memory():
    resource.setrlimit(resource.RLIMIT_AS, (BYTES_MAX, BYTES_MAX))


# -- which test runs which line


@functools.cache
def mark_shared(root, top):
    """Of the product, and of what tests have in common."""
    files = sorted(path for name in (top, "tests") for path in (root / name).rglob("*.py"))
    shared = [one for one in files if one.parent != HERE and not one.name.startswith("test_")]
    return hashlib.sha256(b"".join(path.read_bytes() for path in shared)).digest()


def read_map(path, copy, top):
    """What a file of tests runs: its `tests`, as contexts.py lists them, and its `lines`: file, line, contexts."""
    mark = hashlib.sha256(mark_shared(copy.root, top) + (copy.root / path).read_bytes())
    name = f"map/{path.replace('/', '-')}-{mark.hexdigest()[:12]}.json"
    made, part = copy.place.parent / name, copy.place.with_suffix(".part")
    if not made.exists():
        folder, inside = copy.place.with_suffix(".coverage"), f"{copy.place / top}/"
        part.write_text(json.dumps(make_map(path, copy, folder, inside)))
        part.rename(made)
    return json.loads(made.read_text())


def make_map(path, copy, folder, inside):
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    (folder / "config").write_text(CONFIG.format(inside=inside, folder=folder))
    (folder / "now").write_bytes(b"-".ljust(64))
    environment = {
        "COVERAGE_PROCESS_START": str(folder / "config"),
        "MUTANTS_BEGIN": "-",
        "MUTANTS_INSIDE": inside,
        "MUTANTS_FOLDER": str(folder),
    }
    # Coverage has imported it already, pytest warns.
    status, said = copy.run(1800, path, "-pcontexts", "-Wignore:Module already", **environment)
    if status not in {0, 1, 5}:
        raise SystemExit(f"{said}\n{path}: pytest ended with {status}")
    tests = json.loads((folder / "tests").read_text().replace(str(copy.place), COPY))
    # Some do not bear that coverage makes all slower, and are good tests otherwise.
    for one in (one for one in tests if one["outcome"] == "failed"):
        if copy.run(120, one["id"])[0] == 0:
            one["outcome"] = "passed"
        else:
            print(f"fails without a mutant, and is left out: {one['id']}", flush=True)
    measured = coverage.Coverage(data_file=str(folder / "data"), config_file=False)
    measured.combine([str(folder)])
    data, lines = measured.get_data(), {}
    for name in data.measured_files():
        found = data.contexts_by_lineno(name).items()
        lines[str(Path(name).relative_to(copy.place))] = {
            line: sorted({one.rpartition("|")[2] for one in contexts}) for line, contexts in found
        }
    return {"tests": tests, "lines": lines}


# -- which tests a mutant gets


def weigh(maps, mutant):
    """line: what it says of a test to run it: much when it is near the mutant and few tests do."""
    runs = Counter()
    for found in maps:
        for line, contexts in found["lines"].get(mutant.file, {}).items():
            runs[line] += len(contexts)
    is_near = {str(line) for line in range(mutant.line - 9, mutant.line + 10)}
    return {line: (10 if line in is_near else 1) / count for line, count in runs.items()}


def find_tests(found, file, lines, weights):
    """Those that run the first of the lines, with their `rank`: seconds for what all their lines say."""
    ran, begin_s, says = found["lines"].get(file, {}), {}, Counter()
    contexts = next((set(ran[str(line)]) for line in lines if str(line) in ran), set())
    for line, names in ran.items():
        says.update(dict.fromkeys(names, weights[line]))
    for number, test in enumerate(found["tests"]):
        fixtures = {f"@{name}" for name in test["fixtures"]} & says.keys()
        # The first test of a fixture that outlives it has waited for the fixture; alone, each of them does.
        waits = [begin_s.setdefault(one, test["seconds"]) for one in fixtures]
        is_first = test["seconds"] in waits
        if test["outcome"] == "passed" and contexts & {"-", str(number), *fixtures}:
            said = says[str(number)] + sum(says[one] for one in fixtures) / 10 + 0.001
            said *= 1 if str(number) in contexts else 0.2  # a fixture or an import ran the line
            more = {
                "rank": (test["seconds"] + max(waits, default=0)) / said,
                "seconds": 0 if is_first else test["seconds"],
                "file": test["id"].partition("::")[0],
            }
            yield test | more


def order_tests(maps, mutant, source):
    """Tests for SECONDS_MAX, and whether there are more; those of a file stay together, for their fixtures."""
    around = [
        (node.end_lineno - node.lineno, node.lineno)
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.stmt | ast.ExceptHandler)
        and node.lineno <= mutant.line <= node.end_lineno
    ]
    # What a long expression runs is not noted for each of its lines.
    lines, weights = (mutant.line, min(around)[1]), weigh(maps, mutant)
    found = (test for one in maps for test in find_tests(one, mutant.file, lines, weights))
    tests, alike = sorted(found, key=lambda test: test["rank"]), Counter()
    for test in tests:  # more cases of a function say less
        name = test["id"].partition("[")[0]
        alike[name] += 1
        test["rank"] *= alike[name]
    groups, spent_s = {}, 0
    for test in sorted(tests, key=lambda test: test["rank"]):
        if spent_s + test["seconds"] <= SECONDS_MAX or not groups:
            spent_s += test["seconds"]
            groups.setdefault(test["file"], []).append(test)
    chosen = [test for group in groups.values() for test in group]
    return chosen, len(chosen) < len(tests)


# -- one mutant


def try_mutant(mutant, copy, maps, killer):
    """A row of the table; who killed it before is first."""
    source, began_s = (copy.root / mutant.file).read_text(encoding="utf-8"), time.monotonic()
    tests, is_cut = order_tests(maps, mutant, source)
    known = {one["id"]: one for found in maps for one in found["tests"]}
    first = [known[one] for one in (killer,) if one in known]
    tests = first + [one for one in tests if one["id"] != killer]
    result, test = "no test", ""
    if tests:
        copy.put(mutant.file, mutant.apply(source))
        seconds_max = 60 + 3 * sum(one["seconds"] for one in tests)
        result, test = judge(copy, [one["id"] for one in tests], seconds_max)
        copy.put(mutant.file, source)
    more = {"result": result, "test": test, "tests": len(tests), "is_cut": is_cut}
    return mutant._asdict() | more | {"seconds": round(time.monotonic() - began_s, 1)}


def judge(copy, ids, seconds_max):
    """What came of it, and by which test; one that failed by luck is left out."""
    while ids:
        status, said = copy.run(seconds_max, "-x", *ids)
        if status in {0, None}:
            return "survived" if status == 0 else "timed out", ""
        if status == 4 and "Error" not in said:
            raise SystemExit(f"{said}\nthe map names tests that are not there")
        failed = FAILED.search(said)
        test = failed[1] if failed else f"pytest ended with {status}"
        if not LATE.search(said) or test not in ids or copy.run(seconds_max, test)[0] != 0:
            return "killed", test
        ids = [one for one in ids if one != test]
    return "survived", ""


# -- all of them


def read_rows(path):
    """(mutant, row) of an earlier run."""
    rows = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    return [(Mutant(*(row[name] for name in Mutant._fields)), row) for row in rows]


def choose_mutants(options):
    """The mutants, and who killed each before."""
    sources = {
        str(path.relative_to(options.root)): path.read_text(encoding="utf-8")
        for path in sorted((options.root / options.package).rglob("*.py"))
    }
    if options.again is None:
        listed = [one for file, text in sources.items() for one in list_mutants(file, text)]
        return dict.fromkeys(draw(listed, sources, options.count, options.seed))
    rows = read_rows(options.again)
    killed = {one: row["test"] for one, row in rows if row["result"] in {"killed", "timed out"}}
    for one in killed:
        if sources[one.file].split("\n")[one.line - 1].strip() != one.text:
            raise SystemExit(f"{one.file}:{one.line} is another line now: {one.text}")
    return killed


def run_all(copies, work, items):
    """What `work` returns for each, with a copy for each thread; an interrupt ends what runs."""
    left = iter(items)

    def live(copy):
        return [work(item, copy) for item in left]

    with ThreadPoolExecutor(len(copies)) as pool:
        running = [pool.submit(live, copy) for copy in copies]
        try:
            return [found for one in running for found in one.result()]
        except BaseException:
            list(left)  # nothing begins any more
            for copy in copies:
                copy.end()
            raise


def main(arguments):
    options = parse(arguments)
    mutants, top = choose_mutants(options), options.package.split("/")[0]
    print(f"{options.package}: {len(mutants)} mutants, seed {options.seed}", flush=True)
    copies = [Copy(options.root, Path(f"{options.place}-{n}")) for n in range(options.workers)]
    near = next((names for name, names in NEAR.items() if options.package.startswith(name)), ("",))
    tests = (path for name in near for path in (options.root / "tests" / name).rglob("test_*.py"))
    paths = sorted(str(path.relative_to(options.root)) for path in tests)
    maps = run_all(copies, lambda path, copy: read_map(path, copy, top), paths)
    done = {mutant for mutant, _ in read_rows(options.out)}

    def work(mutant, copy):
        row = try_mutant(mutant, copy, maps, mutants[mutant])
        with options.out.open("a") as file:
            file.write(json.dumps(row) + "\n")
        where = f"{mutant.file}:{mutant.line} {mutant.operator.partition('/')[2]}"
        print(f"{row['result']:9} {row['seconds']:5.0f}s {where} {row['test']}", flush=True)

    run_all(copies, work, [one for one in mutants if one not in done])
    counts = Counter(row["result"] for mutant, row in read_rows(options.out) if mutant in mutants)
    noticed = counts["killed"] + counts["timed out"]
    print(f"{noticed} of {len(mutants)} mutants noticed:", dict(counts))
    return int(options.again is not None and noticed < len(mutants))


def parse(arguments):
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("package")
    for name, default in (("count", 200), ("seed", 30), ("workers", 2)):
        parser.add_argument(f"--{name}", type=int, default=default)
    for name in ("out", "again"):
        parser.add_argument(f"--{name}", type=Path)
    parser.add_argument("--root", type=Path, default=HERE.parents[1])
    options = parser.parse_args(arguments)
    options.root, options.package = options.root.resolve(), options.package.strip("/")
    kind = "again" if options.again else f"seed-{options.seed}"
    name = f"{options.package.replace('/', '-')}-{kind}"
    options.place = options.root / "build" / "mutants" / name
    (options.place.parent / "map").mkdir(parents=True, exist_ok=True)
    options.out = options.out or options.place.with_suffix(".jsonl")
    return options


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
