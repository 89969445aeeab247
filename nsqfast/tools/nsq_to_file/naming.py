"""The names of a topic's files: the tokens and strftime codes that Go's nsq_to_file knows."""

import functools
import os
import re
import socket
import time
from pathlib import Path

from nsqfast.errors import OptionsError
from nsqfast.tools.nsq_to_file.options import FILENAME_FORMAT, Options, needs_revision

REVISION = "<REV>"
DATETIME = "<DATETIME>"
ANY_HOST = "<HOST>"
ENDINGS = {"lines": "", "jsonl": ".jsonl", "parquet": ".parquet", "arrow": ".arrow"}
PACKED_ENDINGS = {"none": "", "gzip": ".gz", "zstd": ".zst"}

# Anything else after a % stays unchanged.
_CODES = re.compile(r"%([BbmAadHIMSYypZz%])")


def format_time(text: str, time_s: float) -> str:
    """Format local time with strftime codes, in English whatever the locale."""
    moment = time.localtime(time_s)
    return _CODES.sub(lambda found: time.strftime(found[0], moment), text)


class Naming:
    """The names of one topic's files, including folders if the format has some; of this `host` instead of our own, or
    of ANY_HOST.
    """

    def __init__(self, options: Options, topic: str, host: str = "") -> None:
        if topic in {".", ".."}:
            raise OptionsError(f"topic {topic!r} would be a folder, and is left out")
        self._datetime_format = options.datetime_format
        name = _with_ending(options)
        if not needs_revision(options):
            name = name.replace(REVISION, "")
        hostname = socket.gethostname()
        short = hostname.partition(".")[0]
        host = host or options.host_identifier or short
        host = host.replace("<SHORT_HOST>", short).replace("<HOSTNAME>", hostname)
        self._name = name.replace("<TOPIC>", topic).replace("<HOST>", host)

    @property
    def prefix(self) -> str:
        """What all of them begin with."""
        return self._name.partition("<")[0]

    def at(self, time_s: float) -> str:
        """The name at that time, before a revision is inserted."""
        name = self._name.replace("<PID>", str(os.getpid()))
        return name.replace(DATETIME, format_time(self._datetime_format, time_s))

    def has(self, name: str) -> bool:
        """Whether any process could have made this name for this topic, at any time."""
        return self._pattern.fullmatch(name) is not None

    def split(self, name: str) -> tuple[str, int]:
        """Split a name into the form that `at` returns, and its revision."""
        found = self._pattern.fullmatch(name)
        assert found is not None, f"{name} is none of this topic's files"
        revision: str = found["revision"]
        return name.replace(revision, REVISION), int(revision[1:])

    @functools.cached_property
    def _pattern(self) -> re.Pattern[str]:
        text = re.escape(self._name)
        for token, pattern in (("<PID>", r"\d+"), (DATETIME, ".*"), (ANY_HOST, "[^./]*")):
            text = text.replace(token, pattern)
        text = text.replace(REVISION, r"(?P<revision>-\d{6,})", 1)
        return re.compile(text.replace(REVISION, "(?P=revision)"))


def _with_ending(options: Options) -> str:
    """For formats other than lines, replace the default name's `.log` with the format's own ending."""
    name = options.filename_format
    ending = ENDINGS[options.format]
    # Parquet and Arrow compress the columns inside the file.
    packed = PACKED_ENDINGS[options.compression] if options.format in {"lines", "jsonl"} else ""
    name = name.removesuffix(packed)
    if name == FILENAME_FORMAT and ending:
        name = name.removesuffix(".log")
    if not name.endswith(ending):
        name += ending
    return name + packed


def put_revision(name: str, number: int) -> str:
    """Insert the revision, `-000001` for example, where the format has <REV>."""
    return name.replace(REVISION, f"-{number:06d}")


def join_path(folder: str, name: str) -> Path:
    """Its path; a name that begins with a slash is also placed below the folder."""
    return Path(os.path.normpath(f"{folder}/{name}"))
