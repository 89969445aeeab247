"""The job compact: rewrites many small files as files of about one size for each topic and hour, in another folder.

nsqfast-spark compact --input=/lake/messages --output=/lake/compacted --dedupe

It changes and deletes nothing of the input. It counts input and output in the files themselves.
"""

import sys
import time
from typing import TYPE_CHECKING

from nsqfast.errors import OptionsError
from nsqfast.program.stdout import print_text
from nsqfast.spark_jobs.compact_options import Options
from nsqfast.spark_jobs.job import EXIT_OK, Job, run_job
from nsqfast.spark_jobs.options import parser

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def main(argv: list[str] | None = None, spark: "SparkSession | None" = None) -> int:
    """Run the job; return the exit status."""
    words = sys.argv[1:] if argv is None else argv
    return run_job("compact", parser(Options, "compact", words), live, spark)


def live(job: Job[Options]) -> int:
    """Compact the input folders into the output folder."""
    # Late, so that --help and a wrong flag answer at once.
    from nsqfast.spark_jobs.compaction import Compaction, CompactState
    from nsqfast.spark_jobs.messages import check_apart, resolve

    options, spark = job.options, job.spark
    begun_s = time.monotonic()
    check_apart(spark, options.input, options.output)
    state = CompactState(
        spark, options.output, sorted(resolve(spark, one) for one in options.input)
    )
    state.check()
    compaction = Compaction(spark, options)
    files = compaction.list_files()
    counts = compaction.write(state.begin(), files)
    if counts.rows_in != counts.rows_out + counts.duplicates:
        raise OptionsError(
            f"{counts.rows_in} messages in, but {counts.rows_out} out and {counts.duplicates} duplicates: "
            f"the output is not to be used; the same command begins it again"
        )
    state.finish(counts)
    job.reports.note(
        batch=1,
        rows=counts.rows_in,
        duplicates=counts.duplicates,
        files_in=counts.files_in,
        files_out=counts.files_out,
        duration_s=round(time.monotonic() - begun_s, 3),
    )
    print_text(
        f"{counts.rows_in} messages of {counts.files_in} files in, {counts.rows_out} messages of "
        f"{counts.files_out} files out, {counts.duplicates} duplicates left out: "
        f"{counts.rows_in} = {counts.rows_out} + {counts.duplicates}"
    )
    return EXIT_OK


if __name__ == "__main__":
    sys.exit(main())
