"""`make mutants`: a mutant that a test notices, in a process of its own as daemons are, and one that none does."""

import json
import subprocess
import sys

import pytest

from support.server import ROOT

pytest.importorskip("cosmic_ray", reason="make mutants installs it")
FILES = {
    "tiny/counts.py": """import sys
def is_much(count):
    return count > 5
def double(count):
    return count * 2
if __name__ == "__main__":
    print(is_much(int(sys.argv[1])))
""",
    "tests/test_tiny.py": """import subprocess, sys
from tiny.counts import double
def test_much():
    command = [sys.executable, "-m", "tiny.counts", "6"]
    assert subprocess.run(command, capture_output=True).stdout == b"True\\n"
def test_double():
    assert double(2) == 4
""",
    "pytest.ini": "[pytest]\npythonpath = .",
}


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_tiny_package(tmp_path):
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    out = tmp_path / "out"
    command = [sys.executable, ROOT / "tests/mutants/run.py", "tiny", "--root", tmp_path]
    subprocess.run([*command, "--count=8", "--out", out], check=True)
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    found = {(row["line"], row["operator"][5:]): (row["result"], row["test"]) for row in rows}
    assert found[7, "NumberReplacer"] == ("killed", "tests/test_tiny.py::test_much")
    assert found[3, "ReplaceComparisonOperator_Gt_GtE"] == ("survived", "")
    assert (tmp_path / "tiny/counts.py").read_text() == FILES["tiny/counts.py"]
    assert subprocess.run([*command, "--again", out], check=False).returncode == 0
