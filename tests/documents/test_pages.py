"""Every page of docs/, and README.md: what it says to type is typed, in a network of its own with all ports free."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from documents.harness.blocks import read_blocks
from support.commands import run_command
from support.server import ROOT, go_folder

RUN = Path(__file__).with_name("run.py")
DOCS = ROOT / "docs"
# A network, folders, a name and a list of processes of its own; all that it started ends with it.
MACHINE = [
    "unshare",
    *("--net", "--mount", "--pid", "--uts", "--fork", "--kill-child", "--mount-proc"),
    sys.executable,
    str(RUN),
    "--machine=myhost",
]
# These have tests that do more than a reader would, or need other machines; each names the page.
ELSEWHERE = {
    "docs/BACKUP.md": "tests/tools/test_backup.py",
    "docs/CLIENT.md": "tests/client/test_documents.py",
    "docs/MIGRATING.md": "tests/client/test_migrating.py",
    "docs/OPERATIONS.md": "tests/nsqd/test_operations.py",
    "docs/SPARK.md": "tests/spark/test_documents.py",
}


def why_not():
    """Why there can be no such machine here; '' if there can."""
    try:
        made = subprocess.run(MACHINE, capture_output=True, text=True, check=False, cwd=ROOT)
    except FileNotFoundError:
        return "unshare is missing: apt install util-linux"
    return (
        f"namespaces are not permitted: {made.stderr.strip().splitlines()[-1]}"
        if made.returncode
        else ""
    )


WHY_NOT = why_not()


def list_pages():
    pages = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]
    return [str(path.relative_to(ROOT)) for path in pages]


def blocks_of(name):
    return list(read_blocks((ROOT / name).read_text(encoding="utf-8")))


PAGES = [name for name in list_pages() if name not in ELSEWHERE]
RUN_PAGES = [
    name
    for name in PAGES
    if any(block.is_run and "not run" not in block.marks for block in blocks_of(name))
]


@pytest.mark.soak
@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT)
@pytest.mark.parametrize("name", RUN_PAGES)
def test_it_does_what_it_says(name):
    path = os.pathsep.join([os.environ["PATH"], str(go_folder() or "")])
    environment = os.environ | {"PATH": path}
    done = run_command(*MACHINE, str(ROOT / name), cwd=ROOT, env=environment, timeout=None)
    assert done.returncode == 0, done.stdout + done.stderr
    print(done.stdout)


@pytest.mark.parametrize("name", list_pages())
def test_what_is_not_run_has_a_reason(name):
    for block in blocks_of(name):
        for mark in ("not run", "any order", "fails"):
            if mark in block.marks:
                assert len(block.marks[mark].split()) >= 2, f"{name}:{block.line}"


def test_most_of_it_is_run():
    blocks = [block for name in PAGES for block in blocks_of(name) if block.is_run]
    left_out = [block for block in blocks if "not run" in block.marks]
    print(f"{len(left_out)} of {len(blocks)} blocks are not run")
    assert len(left_out) < len(blocks) / 5


@pytest.mark.parametrize(("name", "test"), ELSEWHERE.items())
def test_the_others_are_run_elsewhere(name, test):
    assert Path(name).name in (ROOT / test).read_text(encoding="utf-8")
