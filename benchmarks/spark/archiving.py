"""From archives to Parquet: `load-archives`, and Spark's text reader beside it."""

from __future__ import annotations

import gzip
import time
from typing import TYPE_CHECKING, Any

from spark.reading import make_lines

if TYPE_CHECKING:
    from pathlib import Path

    from spark.sample import Sample

GZIP_LEVEL = 6


def make_archives(folder: Path, count: int, *, is_packed: bool) -> Path:
    """Write eight files of lines, or one gzip file."""
    if not is_packed:
        return make_lines(folder, count)
    lines = make_lines(folder, count, files=1)
    packed = folder / f"packed-{count}"
    if not packed.exists():
        packed.mkdir()
        for path in lines.iterdir():
            data = gzip.compress(path.read_bytes(), GZIP_LEVEL)
            (packed / f"{path.name}.gz").write_bytes(data)
    return packed


def load(session: Any, archives: Path, place: Path, count: int) -> Sample:
    """Run the job in an existing session."""
    from nsqfast.spark_jobs import load_archives

    output = place / "out"
    begun_s = time.monotonic()
    status = load_archives.main(
        [f"--input={archives}/*", f"--output={output}", "--settle=0s"], spark=session
    )
    seconds = time.monotonic() - begun_s
    if status:
        raise RuntimeError(f"load-archives ended with {status}")
    check(session, output, count)
    return {"rate": count / seconds, "count": count}


def load_plainly(session: Any, archives: Path, place: Path, count: int) -> Sample:
    """Write the bodies alone, all into one folder, each time."""
    output = place / "out"
    begun_s = time.monotonic()
    lines = session.read.format("text").option("lineSep", "\n").load(str(archives))
    lines.write.parquet(str(output))
    seconds = time.monotonic() - begun_s
    check(session, output, count)
    return {"rate": count / seconds, "count": count}


def check(session: Any, output: Path, count: int) -> None:
    """RuntimeError unless all messages are there."""
    found = session.read.parquet(str(output)).count()
    if found != count:
        raise RuntimeError(f"{output}: {found} of {count} messages")
