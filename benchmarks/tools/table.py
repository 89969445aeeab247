"""A table in Markdown of what bench_tools measured: python benchmarks/tools/table.py BENCH.json [FILE]"""

from __future__ import annotations

import json
import statistics
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tools.scenario import SCENARIOS, Scenario

OURS, GO = "nsqfast", "go"
HEAD = """# Utilities

Messages of 200 bytes; the broker is one nsqfast-nsqd on the same machine and the same disk, for both tools. Medians of
{rounds} rounds in which the tools took turns. A cell: messages a second (CPU time of the tool per message). A tool that
consumes is timed from when its paused channel is let go, one that publishes a file from its start to its end.
The number of messages differs, so that each runs for about a second or more. `make bench-tools` made this.

{machine}

"""


def main(arguments: list[str]) -> int:
    """Return the exit status."""
    if not 1 <= len(arguments) <= 2:
        print(__doc__, file=sys.stderr)
        return 2
    run = json.loads(Path(arguments[0]).read_text(encoding="utf-8"))
    races = {
        bench["extra_info"]["scenario"]: bench["extra_info"]
        for bench in run["benchmarks"]
        if bench["extra_info"].get("suite") == "tools"
    }
    text = compose(races, run["machine_info"].get("nsqfast", {}))
    if len(arguments) == 2:
        Path(arguments[1]).write_text(text, encoding="utf-8")
    else:
        print(text)
    return 0


def compose(races: dict[str, Any], facts: dict[str, str]) -> str:
    """Return the whole page."""
    rounds = max(len(race["samples"][OURS]) for race in races.values())
    machine = "; ".join(f"{key}: {value}" for key, value in facts.items())
    lines = [
        "|  | nsqfast | Go 1.3.0 | × the rate (wanted) | × the CPU (wanted) |",
        "|---|---|---|---|---|",
    ]
    lines += [row(one, races[one.key]) for one in SCENARIOS if one.key in races]
    return HEAD.format(rounds=rounds, machine=machine) + "\n".join(lines) + "\n"


def row(scenario: Scenario, race: dict[str, Any]) -> str:
    """Return the row of one scenario."""
    samples = race["samples"]
    cells = [scenario.words, cell(samples[OURS])]
    if GO not in samples:
        goal = f" (of {scenario.rate_alone:,.0f} wanted)" if scenario.rate_alone else ""
        cells[1] += goal
        return "| " + " | ".join([*cells, "–", "–", "–"]) + " |"
    cells.append(cell(samples[GO]))
    for metric, wanted, sign in (("rate", scenario.rate, "≥"), ("cpu_us", scenario.cpu, "≤")):
        found = ratio(samples, metric)
        is_met = found >= wanted if sign == "≥" else found <= wanted
        missed = "" if is_met or not wanted else " **missed**"
        cells.append(f"{found:.2f}" + (f" ({sign} {wanted:g}){missed}" if wanted else ""))
    return "| " + " | ".join(cells) + " |"


def ratio(samples: dict[str, list[dict[str, float]]], metric: str) -> float:
    """Return the median of the ratios, round by round."""
    pairs = zip(samples[OURS], samples[GO], strict=True)
    return statistics.median(ours[metric] / theirs[metric] for ours, theirs in pairs)


def cell(samples: list[dict[str, float]]) -> str:
    rate = statistics.median(sample["rate"] for sample in samples)
    cpu_us = statistics.median(sample["cpu_us"] for sample in samples)
    return f"{rate:,.0f} ({cpu_us:.2f} µs)"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
