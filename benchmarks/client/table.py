"""A table in Markdown of what bench_clients measured: python benchmarks/client/table.py BENCH.json [FILE]"""

from __future__ import annotations

import json
import statistics
import sys
from pathlib import Path
from typing import Any

OURS, GO = "nsqfast", "go-nsq"
WORDS = {
    "pub_one": "PUB, one at a time",
    "pub_100": "PUB, 100 awaited at a time",
    "pub_piped": "PUB, as many as the client takes",
    "mpub": "MPUB of 100, one at a time",
    "consume": "consume and FIN a backlog, 256 in flight",
    "consume_arrays": "the same as numpy arrays",
    "round_trip": "publish → FIN in one program, 100 awaited, 256 in flight",
    "pub_one_sync": "PUB, one at a time, without an event loop",
    "consume_sync": "consume and FIN a backlog, without an event loop",
}
HEAD = """# Client libraries

Messages of 200 bytes to and from one nsqfast-nsqd on the same machine, one connection for each role, medians of
{rounds} rounds in which the clients took turns. A cell: messages a second (CPU time of the client per message). The
ratios are the figures that count: other work on the machine changes all cells of a run. `make bench-clients` made this.
All asyncio clients run under uvloop; pynsq has tornado's loop.

{machine}

"""


def main(arguments: list[str]) -> int:
    """Return the exit status."""
    if not 1 <= len(arguments) <= 2:
        print(__doc__, file=sys.stderr)
        return 2
    run = json.loads(Path(arguments[0]).read_text(encoding="utf-8"))
    races = [b["extra_info"] for b in run["benchmarks"] if b["extra_info"].get("suite") == "client"]
    text = compose(races, run["machine_info"].get("nsqfast", {}))
    if len(arguments) == 2:
        Path(arguments[1]).write_text(text, encoding="utf-8")
    else:
        print(text)
    return 0


def compose(races: list[dict[str, Any]], facts: dict[str, str]) -> str:
    """Return the whole page."""
    names = list(races[0]["versions"])
    rounds = len(races[0]["samples"][OURS])
    machine = "; ".join(f"{key}: {value}" for key, value in facts.items())
    head = ["", *[f"{name} {races[0]['versions'][name]}" for name in names]]
    lines = ["| " + " | ".join([*head, "× best Python client", "× go-nsq"]) + " |"]
    lines.append("|---" * (len(names) + 3) + "|")
    lines += [row(race, names) for race in races]
    return HEAD.format(rounds=rounds, machine=machine) + "\n".join(lines) + "\n"


def row(race: dict[str, Any], names: list[str]) -> str:
    """Return the row of one load."""
    rates = {name: middle(race, name, "rate") for name in race["samples"]}
    cells = [
        f"{rates[name]:,.0f} ({middle(race, name, 'cpu_us'):.1f} µs)" if name in rates else "–"
        for name in names
    ]
    others = [rate for name, rate in rates.items() if name not in {OURS, GO}]
    best = f"{rates[OURS] / max(others):.1f}" if others else "–"
    to_go = f"{rates[OURS] / rates[GO]:.1f}" if GO in rates else "–"
    return "| " + " | ".join([WORDS[race["scenario"]], *cells, best, to_go]) + " |"


def middle(race: dict[str, Any], name: str, metric: str) -> float:
    """Return the median of the rounds."""
    return statistics.median(sample[metric] for sample in race["samples"][name])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
