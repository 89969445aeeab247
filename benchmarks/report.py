"""Writes REPORT.md and its charts: python benchmarks/report.py BENCH.json FOLDER"""

from __future__ import annotations

import sys
from pathlib import Path

from reporting.document import compose
from reporting.records import UnreadableError, read_run

USAGE = "usage: python benchmarks/report.py BENCH.json FOLDER"


def main(arguments: list[str]) -> int:
    """Return the exit status."""
    if len(arguments) != 2:
        print(USAGE, file=sys.stderr)
        return 2
    source, folder = map(Path, arguments)
    try:
        run = read_run(source)
    except UnreadableError as error:
        print(f"report: {error}", file=sys.stderr)
        return 1
    try:
        from reporting.charts import draw
    except ImportError:
        print("report: matplotlib is missing: pip install 'nsqfast[bench]'", file=sys.stderr)
        return 1
    folder.mkdir(parents=True, exist_ok=True)
    report = folder / "REPORT.md"
    report.write_text(compose(run, draw(run, folder)), encoding="utf-8")
    print(report)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
