"""The suite as `make bench-smoke` runs it, one scenario of it, up to the report."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from server.implementation import implementations

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.soak
@pytest.mark.slow
def test_from_a_scenario_to_a_report(tmp_path):
    source = tmp_path / "bench.json"
    command = [
        sys.executable,
        "-P",
        "-m",
        "pytest",
        "benchmarks/server/bench_publish.py",
        "--smoke",
    ]
    flags = ["-q", "-k", "bench_mpub", f"--benchmark-json={source}", f"--bench-data={tmp_path}"]
    done = subprocess.run([*command, *flags], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (benchmark,) = json.loads(source.read_text())["benchmarks"]
    ours = benchmark["extra_info"]["rows"][-1]
    assert ours["samples"].keys() == {*(one.name for one in implementations()), "null"}
    assert all(samples[0]["rate"] > 0 for samples in ours["samples"].values())
    # Nothing is left of the brokers' data.
    assert [path.name for path in tmp_path.iterdir()] == ["bench.json"]
    report = [sys.executable, "benchmarks/report.py", str(source), str(tmp_path / "results")]
    subprocess.run(report, cwd=ROOT, check=True, capture_output=True)
    assert "MPUB 200 × 200 B" in (tmp_path / "results" / "REPORT.md").read_text()


@pytest.mark.soak
@pytest.mark.slow
def test_from_a_race_of_clients_to_its_table(tmp_path):
    """With those clients that are here; ours is."""
    source = tmp_path / "clients.json"
    command = [sys.executable, "-P", "-m", "pytest", "benchmarks/client", "--smoke", "-q"]
    flags = ["-k", "pub_100 or arrays", f"--benchmark-json={source}"]
    done = subprocess.run([*command, *flags], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    table = [sys.executable, "benchmarks/client/table.py", str(source)]
    printed = subprocess.run(table, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    assert "| PUB, 100 awaited at a time |" in printed
    assert "| the same as numpy arrays |" in printed


@pytest.mark.soak
@pytest.mark.slow
def test_from_growth_to_its_page(tmp_path):
    """A number of things and an attack, each beside the probe."""
    source, page = tmp_path / "growth.json", tmp_path / "GROWTH.md"
    command = [sys.executable, "-P", "-m", "pytest", "benchmarks/growth", "--smoke", "-q"]
    flags = ["-k", "overflow or channels", f"--benchmark-json={source}", f"--bench-data={tmp_path}"]
    done = subprocess.run([*command, *flags], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    table = [sys.executable, "benchmarks/growth/table.py", str(source), str(page)]
    subprocess.run(table, cwd=ROOT, check=True, capture_output=True)
    text = page.read_text()
    assert "| 20 channels, first overflow to disk " in text
    assert "## Many channels of a topic" in text
    assert "probe p50, ms" in text
