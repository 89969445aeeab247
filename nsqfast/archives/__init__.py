"""Reading what nsq_to_file wrote: archives of messages as lines, JSON lines, Parquet or Arrow, packed or not.

    names       topic and time, as a file's name says them
    files       which files are meant, and what each of them is
    unpack      gzip and zstd to plain bytes, past what is damaged
    lines, jsonl, tables    from a file to `Records`: many at once, without a Python object for each
    reader      whatever a file is, its `Records`

What cannot be read is told as `Damage` (file, place, reason) and left out; the rest is read on.
"""

from nsqfast.archives.files import Archive, FileFinder
from nsqfast.archives.names import FileNames, NameFacts
from nsqfast.archives.reader import Reader, open_archive
from nsqfast.archives.records import Column, Damage, Records

__all__ = [
    "Archive",
    "Column",
    "Damage",
    "FileFinder",
    "FileNames",
    "NameFacts",
    "Reader",
    "Records",
    "open_archive",
]
