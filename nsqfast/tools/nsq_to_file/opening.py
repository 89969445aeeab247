"""Apply the flags to a topic: how to write its batches, and how to open its files."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from nsqfast.program import extras
from nsqfast.program.extras import needs
from nsqfast.tools.nsq_to_file.archive import Archive, OpenAt, Rules
from nsqfast.tools.nsq_to_file.folders import append_file, check_folders, create_file
from nsqfast.tools.nsq_to_file.naming import Naming
from nsqfast.tools.nsq_to_file.options import COLUMN_FORMATS, OUTPUT_DIR, Options
from nsqfast.tools.nsq_to_file.packing import packer
from nsqfast.tools.nsq_to_file.rows import MakePieces, is_json_record, text_pieces
from nsqfast.tools.nsq_to_file.text_file import TextFile
from nsqfast.tools.shared.program import log

if TYPE_CHECKING:
    from nsqfast.tools.nsq_to_file.column_file import Layout

NS = 1_000_000_000


def make_archive(options: Options, topic: str, host: str = "") -> tuple[Archive, MakePieces]:
    """OptionsError if this topic cannot be archived; `host` is that of the names, if not our own."""
    rules = Rules(
        options.output_dir,
        options.work_dir,
        options.rotate_size,
        options.rotate_interval_ns / NS,
        options.skip_empty_files,
    )
    name, naming = f"{topic}/{options.channel}", Naming(options, topic, host)
    if options.format not in COLUMN_FORMATS:
        archive = Archive(name, naming, rules, _open_text(options))
        return archive, text_pieces(options.format, topic)
    with needs(f"--format={options.format}", "arrow"):
        from nsqfast.tools.nsq_to_file.column_file import ColumnFile
        from nsqfast.tools.nsq_to_file.columns import column_pieces

    open_columns = partial(ColumnFile, layout=make_layout(options))
    return Archive(name, naming, rules, open_columns), column_pieces(topic)


def make_layout(options: Options) -> "Layout":
    """PackageMissingError if what the format needs is not installed."""
    with needs(f"--format={options.format}", "arrow"):
        from nsqfast.tools.nsq_to_file.column_file import Layout
    return Layout(options.format, options.compression, options.level)


def _open_text(options: Options) -> OpenAt:
    pack = packer(options.compression, options.level)
    # A compressed file is never continued: its last member may be torn.
    is_continued = pack is None and options.rotate_interval_ns <= 0
    # Whether a line is a whole message, nobody can tell.
    is_whole = is_json_record if options.format == "jsonl" else None
    open_file = partial(append_file, is_whole=is_whole) if is_continued else create_file
    return lambda path: TextFile(path, open_file(path), pack)


def check_places(options: Options) -> None:
    """ToolError if a folder belongs to another user, before a message is taken."""
    for root in {options.output_dir, options.work_dir}:
        if Path(root).exists():
            check_folders(root, Path(root))
    if Path(options.output_dir).resolve() == Path(OUTPUT_DIR):
        log.warning(
            "--output-dir is %s, which the system may empty and where every user may write: no place to keep files; "
            "give a folder of your own",
            OUTPUT_DIR,
        )


def check_format(options: Options) -> None:
    """PackageMissingError if what the format needs is not installed."""
    if options.format in COLUMN_FORMATS:
        extras.check(f"--format={options.format}", "arrow")
