"""A table in Markdown of what bench_spark measured: python benchmarks/spark/table.py BENCH.json [FILE]"""

from __future__ import annotations

import json
import statistics
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from spark.scenario import CPU, LATENCY, RATE, SCENARIOS, Scenario

OURS, PLAIN = "nsqfast", "plain"
HEAD = """# Spark

Messages of 200 bytes, local[2], everything on one machine: the broker (one nsqfast-nsqd), the load and Spark share its
cores. Medians of {rounds} rounds behind one that is not counted, in which both ways took turns. A cell: messages a
second (CPU time of the receiver per message). What Spark does is timed from the start of a query or a job to its end.
`make bench-spark` made this.

{machine}

"""
UNITS = {CPU: "µs", LATENCY: "s"}


def main(arguments: list[str]) -> int:
    """Return the exit status."""
    if not 1 <= len(arguments) <= 2:
        print(__doc__, file=sys.stderr)
        return 2
    run = json.loads(Path(arguments[0]).read_text(encoding="utf-8"))
    races = {
        bench["extra_info"]["scenario"]: bench["extra_info"]
        for bench in run["benchmarks"]
        if bench["extra_info"].get("suite") == "spark"
    }
    facts = run["machine_info"].get("nsqfast", {}) | {"PySpark": version("pyspark")}
    text = compose(races, facts)
    if len(arguments) == 2:
        Path(arguments[1]).write_text(text, encoding="utf-8")
    else:
        print(text)
    return 0


def compose(races: dict[str, Any], facts: dict[str, str]) -> str:
    """Return the whole page."""
    rounds = max(len(race["samples"][OURS]) for race in races.values())
    machine = "; ".join(f"{key}: {value}" for key, value in facts.items())
    lines = ["|  | nsqfast | wanted | the plain way | × its rate |", "|---|---|---|---|---|"]
    lines += [row(one, races[one.key]) for one in SCENARIOS if one.key in races]
    return HEAD.format(rounds=rounds, machine=machine) + "\n".join(lines) + "\n"


def row(scenario: Scenario, race: dict[str, Any]) -> str:
    """Return the row of one scenario."""
    ours, plain = race["samples"][OURS], race["samples"].get(PLAIN)
    cells = [scenario.words, cell(scenario, ours), wanted(scenario, ours)]
    if plain:
        ratio = median(ours, RATE) / median(plain, RATE)
        cells += [f"{scenario.plain}: {cell(scenario, plain)}", f"{ratio:.2f}"]
    else:
        cells += ["–", "–"]
    return "| " + " | ".join(cells) + " |"


def cell(scenario: Scenario, samples: list[dict[str, float]]) -> str:
    """Return its rate, and its other figures."""
    text = f"{median(samples, RATE):,.0f}"
    if scenario.metric:
        text += f" ({median(samples, scenario.metric):.2f} {UNITS[scenario.metric]})"
    return text


def wanted(scenario: Scenario, samples: list[dict[str, float]]) -> str:
    """Return the goals, each with a word if it was missed."""
    goals = []
    if scenario.goal:
        missed = "" if median(samples, RATE) >= scenario.goal else " **missed**"
        goals.append(f"≥ {scenario.goal:,.0f}{missed}")
    if scenario.limit:
        missed = "" if median(samples, scenario.metric) <= scenario.limit else " **missed**"
        goals.append(f"≤ {scenario.limit:g} {UNITS[scenario.metric]}{missed}")
    return ", ".join(goals)


def median(samples: list[dict[str, float]], metric: str) -> float:
    return statistics.median(sample[metric] for sample in samples)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
