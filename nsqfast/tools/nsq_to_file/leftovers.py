"""What killed runs left in the work folder: at the next start it gets its name in the output folder.

Of each file the whole records stay: those that were finished are among them. A torn tail is cut off; its message was
not finished, so it comes again. A file that another process writes is left alone, and so is one of another host unless
--recover-host names it.
"""

import contextlib
import os
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from nsqfast.archives.files import PART, ROWS, by_suffix, is_written, is_written_at, list_files
from nsqfast.archives.unpack import find_end
from nsqfast.errors import PackageMissingError
from nsqfast.program.extras import needs
from nsqfast.tools.nsq_to_file.archive import Archive
from nsqfast.tools.nsq_to_file.folders import end_of_lines, open_own, remove_file
from nsqfast.tools.nsq_to_file.formats import (
    TextFile,
    is_json_record,
    make_archive,
    make_layout,
    packer,
)
from nsqfast.tools.nsq_to_file.naming import ANY_HOST, Naming
from nsqfast.tools.nsq_to_file.options import COLUMN_FORMATS, COMPRESSIONS, FORMATS, Options
from nsqfast.tools.shared.program import log


class Leftovers:
    """All that is in the work folder when this is made: it may be there for thousands of topics."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._folder = Path(options.work_dir)
        # Where both folders are one, text has its final name already.
        self._has_own_folder = os.path.realpath(options.work_dir) != os.path.realpath(
            options.output_dir
        )
        names = (path.relative_to(self._folder).as_posix() for path in list_files(self._folder))
        self._names = sorted(n for n in names if self._has_own_folder or n.endswith(ROWS))

    def recover(self, topic: str) -> None:
        """Finish the files of that topic, whatever flags they were begun with."""
        if not self._names:
            return
        seen: set[str] = set()
        for kind in self._kinds():
            for host in ("", *self._options.recover_host):
                found = [
                    name for name in self._find(Naming(kind, topic, host), kind) if name not in seen
                ]
                seen.update(found)
                try:
                    if found:
                        self._finish(make_archive(kind, topic, host)[0], kind, found)
                except PackageMissingError as error:
                    log.warning("%s: %s", self._folder / found[0], error)
            for name in self._find(Naming(kind, topic, ANY_HOST), kind):
                if name not in seen:
                    seen.add(name)
                    self._name_other(name + (ROWS if kind.format in COLUMN_FORMATS else ""))

    def _name_other(self, name: str) -> None:
        path = self._folder / name
        with contextlib.suppress(FileNotFoundError):
            if not is_written_at(path):
                text = "%s is unfinished, and another host's: if that is gone, name it with --recover-host"
                log.warning(text, path)

    def _kinds(self) -> Iterator[Options]:
        """Of two names that both fit the longer is meant: packed ones first, plain lines last."""
        options = self._options
        for form in reversed(FORMATS):
            if form in COLUMN_FORMATS:
                same = options.compression if options.format == form else "none"
                yield replace(options, format=form, compression=same)
            elif self._has_own_folder:
                for compression in reversed(COMPRESSIONS):
                    yield replace(options, format=form, compression=compression)

    def _find(self, naming: Naming, kind: Options) -> Iterator[str]:
        """Names as they are in the folder, without the ending of rows, unless another process has taken them."""
        ending = ROWS if kind.format in COLUMN_FORMATS else ""
        for place in range(bisect_left(self._names, naming.prefix), len(self._names)):
            name = self._names[place]
            if not name.startswith(naming.prefix):
                return
            if name.endswith(ending) and (ending or not name.endswith((ROWS, PART))):
                name = name.removesuffix(ending)
                if naming.has(name) and (self._folder / self._names[place]).exists():
                    yield name

    def _finish(self, archive: Archive, kind: Options, names: list[str]) -> None:
        if kind.format in COLUMN_FORMATS:
            with needs(f"--format={kind.format}", "arrow"):
                from nsqfast.tools.nsq_to_file.column_file import recover_rows
            for name in names:
                recover_rows(archive, self._folder, name, make_layout(kind))
            return
        for name in names:
            self._finish_text(archive, kind, name)

    def _finish_text(self, archive: Archive, kind: Options, name: str) -> None:
        path = self._folder / name
        fd = open_own(path, os.O_RDWR)
        if is_written(fd):
            os.close(fd)
            return
        log.warning("%s was left behind; its whole records get their name", path)
        _cut(path, fd, kind)
        if os.fstat(fd).st_size == 0 or self._has_name(fd, kind):
            os.close(fd)
            remove_file(path)
        else:
            archive.recover(TextFile(path, fd, packer(kind.compression, kind.level)), name)

    @staticmethod
    def _has_name(fd: int, kind: Options) -> bool:
        """Whether the kill came between its name in the output folder and the end of this one."""
        found = os.fstat(fd)
        return found.st_nlink > 1 and any(
            os.path.samestat(path.stat(), found) for path in list_files(Path(kind.output_dir))
        )


def _cut(path: Path, fd: int, kind: Options) -> None:
    """Leave whole records alone."""
    size = os.fstat(fd).st_size
    if kind.compression != "none":
        with path.open("rb") as file:
            end = find_end(str(path), file, by_suffix(str(path))[1])
    else:
        end = end_of_lines(fd, size)
        if kind.format == "jsonl" and is_json_record(os.pread(fd, size - end, end)):
            os.pwrite(fd, b"\n", size)
            return
    if end < size:
        log.warning("%s ends within a record; its %d bytes are removed", path, size - end)
        os.ftruncate(fd, end)
