"""The room of the ring with one line changed, built beside the checkout; lives are played until one shows it.

python -m durability.commitlog.mutants FOLDER SEED COUNT     plays with the room that was built there
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING, NamedTuple

from support.seeds import seeds
from support.server import ROOT

if TYPE_CHECKING:
    from pathlib import Path

FOUND = 3
SECONDS_MAX = 120


class Mutant(NamedTuple):
    name: str
    file: str
    text: str  # stands there once
    other: str


# What each of them breaks is a rule of docs/DURABILITY.md.
MUTANTS = (
    Mutant(
        "committed before the write ended",
        "ring.pyx",
        "        self.filling += 1\n",
        "        self.committed = self.filling\n        self.filling += 1\n",
    ),
    Mutant(
        "the names in a new ring are not synced",
        "folder.pyx",
        "        self.sync_folder(draft)\n",
        "",
    ),
    Mutant(
        "the name of a new ring is not synced",
        "folder.pyx",
        "        self.sync_folder(os.path.dirname(os.path.abspath(self.path)))\n",
        "",
    ),
    Mutant(
        "written again to the quarter where it failed",
        "ring.pyx",
        "        self.place_job(following)\n",
        "        self.place_job(self.quarter)\n",
    ),
    Mutant(
        "fdatasync is tried again",
        "commit.h",
        "job->files->fdatasync(job->files, fd) < 0 ?",
        "job->files->fdatasync(job->files, fd) < 0 && job->files->fdatasync(job->files, fd) < 0 ?",
    ),
    Mutant(
        "no epoch in the seeds",
        "format.h",
        "{ return nsq_crc32c(0, epoch, NSQ_EPOCH_SIZE); }",
        "{ return 0; }",
    ),
    Mutant(
        "a quarter is free as soon as memory says so",
        "ring.pyx",
        "        if quarter != self.quarter and self.last[quarter] >= self.kept_from:\n",
        "        if False:\n",
    ),
    Mutant(
        "batches are not aligned",
        "ring.pyx",
        "        job.size = align_up(self.used, self.align)\n",
        "        job.size = align_up(self.used, 8)\n",
    ),
    Mutant(
        "no sequence in the records' seed",
        "format.h",
        "    return nsq_crc32c(nsq_crc32c_number(batch_seed, place), record + 4, length - 4);\n",
        "    return nsq_crc32c(nsq_crc32c_number(0, place), record + 4, length - 4);\n",
    ),
    Mutant(
        "committed as soon as it is in the kernel's cache",
        "ring.pyx",
        "        self.written = self.last[self.quarter] = self.filling\n",
        "        self.committed = self.written = self.last[self.quarter] = self.filling\n",
    ),
    Mutant(
        "a header proves what was not synced",
        "ring.pyx",
        "        header.unsynced = self.filling - 1 - self.committed\n",
        "        header.unsynced = 0\n",
    ),
    Mutant(
        "a start syncs the last batch alone",
        "start.pyx",
        "(i == recovery.count or recovery.found[i - 1].sequence > recovery.proven)",
        "i == recovery.count",
    ),
    Mutant(
        "the head says what is synced before it is",
        "commit.h",
        """    nsq_commit_sync(job);
    if (job->error)
        return;
    if (job->head != NULL)
        job->head_error = nsq_write_durably(job, job->head_fd, job->head, NSQ_HEAD_SIZE, job->head_at);
""",
        """    if (job->head != NULL)
        job->head_error = nsq_write_durably(job, job->head_fd, job->head, NSQ_HEAD_SIZE, job->head_at);
    nsq_commit_sync(job);
    if (job->error)
        return;
""",
    ),
)


def build(mutant: Mutant, folder: Path) -> None:
    """Into `folder`, from a copy of the sources; the build of the checkout stays as it is."""
    made = ("*.so", "*.html", "__pycache__")
    shutil.copytree(ROOT / "_ext", folder / "_ext", ignore=shutil.ignore_patterns(*made))
    (folder / "nsqfast").mkdir()
    for name in ("setup.py", "README.md", "nsqfast/version.py"):
        shutil.copy(ROOT / name, folder / name)
    path = folder / "_ext" / "commitlog" / mutant.file
    text = path.read_text(encoding="utf-8")
    assert text.count(mutant.text) == 1, f"{mutant.file} does not have it once: {mutant.text}"
    path.write_text(text.replace(mutant.text, mutant.other), encoding="utf-8")
    subprocess.run(
        [sys.executable, "setup.py", "-q", "build_ext", "--inplace"],
        cwd=folder,
        env=os.environ | {"NSQFAST_ROOMS": "commitlog"},
        check=True,
        capture_output=True,
    )


def play(folder: Path, count: int) -> subprocess.CompletedProcess[str]:
    """Its status is FOUND if a life showed the mutant."""
    return subprocess.run(
        [sys.executable, "-m", "durability.commitlog.mutants", folder, str(count)],
        cwd=ROOT / "tests",
        env=os.environ | {"PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'tests'}"},
        timeout=SECONDS_MAX,
        check=False,
        capture_output=True,
        text=True,
    )


def main(folder: str, count: str) -> int:
    import nsqfast._ext.commitlog as room

    room.__path__ = [f"{folder}/_ext/commitlog"]
    from nsqfast._ext.dev import commit_rings

    from durability.commitlog.life import Life

    assert sys.modules["nsqfast._ext.commitlog.start"].__file__.startswith(folder)
    assert commit_rings.OpenRing
    for seed in seeds("mutants", int(count)):
        try:
            Life(seed).play()
        except AssertionError as error:
            print(seed, error)
            return FOUND
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
