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
if __name__ == "__main__":
    print(is_much(int(sys.argv[1])))
""",
    "tests/test_tiny.py": """import subprocess, sys
def test_much():
    command = [sys.executable, "-m", "tiny.counts", "6"]
    assert subprocess.run(command, capture_output=True).stdout == b"True\\n"
""",
    "pytest.ini": "[pytest]",
}


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_tiny_package(tmp_path):
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    command = [sys.executable, ROOT / "tests/mutants/run.py", "tiny", "--root", tmp_path]
    subprocess.run([*command, "--count=5", "--out", tmp_path / "out"], check=True)
    rows = [json.loads(line) for line in (tmp_path / "out").read_text().splitlines()]
    found = {(row["line"], row["operator"][5:]): (row["result"], row["test"]) for row in rows}
    assert found[5, "NumberReplacer"] == ("killed", "tests/test_tiny.py::test_much")
    assert found[3, "ReplaceComparisonOperator_Gt_NotEq"] == ("survived", "")
    assert (tmp_path / "tiny/counts.py").read_text() == FILES["tiny/counts.py"]
    done = subprocess.run([*command, "--again", tmp_path / "out"], check=False)
    assert done.returncode == 0
