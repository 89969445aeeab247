"""The job load-archives: converts files of nsq_to_file, ours or Go's, to Parquet in the layout of ingest.

nsqfast-spark load-archives --input='/backup/*.log.gz' --output=/lake/messages

Lines have only a body: topic and hour come from the file's name, the other columns are null. `file` says which file a
row came from.
"""

import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from nsqfast.errors import OptionsError
from nsqfast.program.stdout import print_text
from nsqfast.spark_jobs.archive_options import Options
from nsqfast.spark_jobs.job import EXIT_BAD, EXIT_OK, Job, run_job
from nsqfast.spark_jobs.options import parser
from nsqfast.tools.shared.program import log

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import SparkSession

    from nsqfast.spark_jobs.archive_inspection import Inspection
    from nsqfast.spark_jobs.archive_ledger import Choice, Ledger
    from nsqfast.spark_jobs.archive_rows import ArchiveFile

FILES_NAMED_MAX = 5  # in one log line
DAMAGES_NAMED_MAX = 20  # of one file


def main(argv: list[str] | None = None, spark: "SparkSession | None" = None) -> int:
    """Run the job; return the exit status."""
    words = sys.argv[1:] if argv is None else argv
    return run_job("load-archives", parser(Options, "load-archives", words), live, spark)


def live(job: Job[Options]) -> int:
    """Load all files that were not loaded before."""
    # Late: it needs pyarrow.
    from nsqfast.spark_jobs.archive_ledger import Chooser, Ledger

    ledger = Ledger(job.spark, job.options.output)
    with ledger.open():
        choice = Chooser(job.options, ledger).choose()
        loader = Loader(job, ledger)
        for batch, files in choice.batches:
            if job.stop.is_asked:
                break
            loader.load(batch, files)
    return loader.report(choice)


@dataclass(slots=True)
class Totals:
    """The totals of a run."""

    rows: int = 0
    files: int = 0
    batches: int = 0
    bad: int = 0
    left_out: int = 0  # damaged files
    grown: list[str] = field(default_factory=list)  # files that grew while they were read


class Loader:
    """Loads batches, one after the other."""

    def __init__(self, job: Job[Options], ledger: "Ledger") -> None:
        self._job = job
        self._ledger = ledger
        self._totals = Totals()

    def load(self, batch: str, files: "Sequence[ArchiveFile]") -> None:
        """Load all of its files that are undamaged, and with --salvage the readable part of the others."""
        from nsqfast.spark_jobs.archive_inspection import inspect_all

        begun_s = time.monotonic()
        found = inspect_all(self._job.spark, files)
        bad = self._tell_damage(found)
        chosen = [one for one in found if not one.damage_count or self._job.options.salvage]
        if not chosen and batch not in self._ledger.unfinished:
            return
        # A file that changes while it is read is left to the next run, and the others are loaded again.
        while True:
            changed = [one for one in chosen if _is_changed(one.file)]
            self._totals.grown += [one.file.path for one in changed]
            chosen = [one for one in chosen if one not in changed]
            self._ledger.begin(batch, [one.file.path for one in chosen])
            rows, size = self._write(batch, chosen)
            if not any(_is_changed(one.file) for one in chosen):
                break
        if any(one.damage_count for one in chosen):
            report = self._ledger.note_lost(batch, chosen)
            log.warning("what could not be read is in %s", report)
        self._ledger.finish(batch, chosen)
        self._totals.rows += rows
        self._totals.files += len(chosen)
        self._totals.batches += 1
        self._job.reports.note(
            batch=self._totals.batches,
            name=batch,
            files=len(chosen),
            rows=rows,
            bytes=size,
            bad=bad,
            duration_s=round(time.monotonic() - begun_s, 3),
        )

    def _tell_damage(self, found: "Sequence[Inspection]") -> int:
        """Report each damage; return their number."""
        is_salvaged = self._job.options.salvage
        for one in found:
            for damage in one.damages[:DAMAGES_NAMED_MAX]:
                log.warning("%s", damage)
            if one.damage_count > DAMAGES_NAMED_MAX:
                log.warning(
                    "%s: %d more like these", one.file.path, one.damage_count - DAMAGES_NAMED_MAX
                )
            if one.damage_count and not is_salvaged:
                self._totals.left_out += 1
                log.warning(
                    "%s: not loaded; --salvage loads what can be read of it (%d messages)",
                    one.file.path,
                    one.rows,
                )
        bad = sum(one.damage_count for one in found)
        self._totals.bad += bad
        return bad

    def _write(self, batch: str, chosen: "Sequence[Inspection]") -> tuple[int, int]:
        """Return messages, and the bytes of their bodies; OptionsError: they differ from those counted."""
        from nsqfast.spark_jobs.archive_frame import write_archives

        expected = sum(one.rows for one in chosen), sum(one.size for one in chosen)
        if not expected[0]:
            return expected
        written = write_archives(self._job.spark, chosen, self._job.options.output, batch)
        # The caller finds a changed file.
        if written != expected and not any(_is_changed(one.file) for one in chosen):
            raise OptionsError(
                f"{batch}: {written[0]} messages of {written[1]} bytes were written, "
                f"and {expected[0]} of {expected[1]} counted before; it is loaded again by the next run"
            )
        return expected

    def report(self, choice: "Choice") -> int:
        """Report what was done; return the exit status."""
        totals = self._totals
        growing = [*choice.growing, *totals.grown]
        if growing:
            shown = ", ".join(growing[:FILES_NAMED_MAX]) + (
                ", ..." if len(growing) > FILES_NAMED_MAX else ""
            )
            log.warning(
                "%d files are still written to, and left for the next run: %s", len(growing), shown
            )
        for damage in choice.damages:
            log.warning("%s", damage)
        totals.bad += len(choice.damages)
        print_text(
            f"{totals.rows} messages of {totals.files} files loaded in {totals.batches} batches; "
            f"{choice.known} files were loaded before, {len(growing)} are still written to, "
            f"{totals.left_out + len(choice.damages)} left out as damaged"
        )
        return EXIT_BAD if self._job.options.is_too_bad(totals.bad) else EXIT_OK


def _is_changed(file: "ArchiveFile") -> bool:
    """Whether it changed since it was chosen."""
    try:
        status = Path(file.path).stat()
    except OSError:
        return True
    return (status.st_size, status.st_mtime_ns) != (file.size, file.modified_ns)


if __name__ == "__main__":
    sys.exit(main())
