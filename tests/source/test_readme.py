"""README.md: its figures are those of the report, and the package index can show it."""

import re
import subprocess
import sys

from nsqfast import __version__
from nsqfast.program.overview import PROGRAMS
from reporting.charts import SUMMARY
from support.imports import ROOT
from support.plain_install import read_project

README = (ROOT / "README.md").read_text(encoding="utf-8")
REPORT = (ROOT / "benchmarks" / "results" / "REPORT.md").read_text(encoding="utf-8")
LINK = re.compile(r"\]\(([^)]+)\)")


def read_rows(section):
    """The cells of each row of the table below a heading of the report."""
    text = REPORT.partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    return [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| ")]


RATIOS = {
    (cells[0], cells[2]): float(cells[5].removeprefix("× "))
    for cells in read_rows("Throughput, messages per second")[2:]
}


def median(scenario, column):
    """A figure of the table of what else was measured."""
    (cells,) = (cells for cells in read_rows("Idle, start-up, memory") if cells[0] == scenario)
    return float(cells[column].partition(" ")[0])


def test_the_figures_are_those_of_the_report():
    shown = [RATIOS[row] for row in SUMMARY]
    consumer = RATIOS["SUB + FIN of a backlog", "Go's tools"]
    start_s, start_go_s = (median("start-up, empty", column) for column in (3, 4))
    text = " ".join(README.split())
    assert f"from {min(shown):.1f} times as many (publish one by one)" in text
    assert f"to {max(shown):.0f} times (durable)" in text
    assert f"Go's own consumer gets {consumer:.2f} times as many" in text
    assert f"it starts in {start_s:.2f} s where Go takes {start_go_s * 1000:.0f} ms" in text
    assert "cores: 2\n" in REPORT


def test_what_is_said_of_large_messages():
    rows = read_rows("Throughput by message size")
    ratios = [float(cells[5].removeprefix("× ")) for cells in rows if "256 KiB" in cells[0]]
    coming, going = ratios
    text = " ".join(README.split())
    said = f"messages of 256 KiB come in {coming:.2f} times as fast and go out {going:.2f} times"
    assert said in text


def test_what_it_links_to_is_there():
    files = {link.partition("#")[0] for link in LINK.findall(README) if "://" not in link}
    assert [name for name in files if not (ROOT / name).exists()] == []


def test_the_programs_and_extras_are_there():
    commands = set(re.findall(r"\bnsqfast-[a-z-]+", README))
    assert commands <= {each.name for each in PROGRAMS}
    extras = set(re.findall(r"nsqfast\[(\w+)\]", README))
    assert extras <= read_project()["optional-dependencies"].keys()


def test_it_is_what_the_package_index_shows_with_whole_addresses():
    done = subprocess.run(
        [sys.executable, "setup.py", "-q", "--long-description"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    links = LINK.findall(done.stdout)
    assert len(links) == len(LINK.findall(README))
    address = read_project()["urls"]["Source"]
    for link, own in zip(links, LINK.findall(README), strict=True):
        kind = "raw" if own.endswith(".png") else "blob"
        is_whole = own.startswith("https://")
        assert link == (own if is_whole else f"{address}/{kind}/v{__version__}/{own}")
    assert LINK.sub("](#)", done.stdout).strip() == LINK.sub("](#)", README).strip()


def test_the_project_has_addresses():
    urls = read_project()["urls"]
    assert urls.keys() == {"Homepage", "Documentation", "Source", "Changelog", "Issues"}
    assert [address for address in urls.values() if not address.startswith("https://")] == []
