"""Read the files of nsq_to_file: archives of messages as lines, JSON lines, Parquet or Arrow, compressed or not.

    names       topic and time from a file's name
    files       which files to read, and the format of each
    unpack      gzip and zstd to plain bytes, skipping damaged parts
    lines, jsonl, tables    from a file to `Records`: many at once, without a Python object for each
    reader      the `Records` of any file

Unreadable parts are reported as `Damage` (file, place, reason) and left out; reading continues after them.
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
