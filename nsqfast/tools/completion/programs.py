"""The commands that nsqfast installs, with their flags and words."""

import importlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from nsqfast.program.options import STRING, STRINGS, Common, Option, declared

# Command, module of its settings, and words that may precede the flags.
DAEMONS = {
    "nsqfast-nsqd": "nsqfast.nsqd.options",
    "nsqfast-nsqlookupd": "nsqfast.nsqlookupd.options",
    "nsqfast-nsqadmin": "nsqfast.nsqadmin.options",
}
_TOOLS = {
    "nsqfast-bench": "nsqfast.tools.bench.options",
    "nsqfast-commitlog": "nsqfast.tools.commitlog.options",
    "nsqfast-nsq-spool": "nsqfast.spark.receiver.options",
    "nsqfast-nsq-stat": "nsqfast.tools.nsq_stat.options",
    "nsqfast-nsq-tail": "nsqfast.tools.nsq_tail.options",
    "nsqfast-nsq-to-file": "nsqfast.tools.nsq_to_file.options",
    "nsqfast-nsq-to-http": "nsqfast.tools.nsq_to_http.options",
    "nsqfast-nsq-to-nsq": "nsqfast.tools.nsq_to_nsq.main",
    "nsqfast-redrive": "nsqfast.tools.redrive.options",
    "nsqfast-replay": "nsqfast.tools.replay.options",
    "nsqfast-run": "nsqfast.app.options",
    "nsqfast-to-nsq": "nsqfast.tools.to_nsq.main",
}
MODULES = {**DAEMONS, **_TOOLS}
# A word chooses what to run, and all of them take their flags after it.
JOBS = {"nsqfast-spark": "nsqfast.spark_jobs.main"}
_WORDS = {
    "nsqfast-bench": ("pub", "sub", "pubsub", "latency"),
    "nsqfast-commitlog": ("probe", "check", "dump"),
}
WITHOUT_VERSION = frozenset({"nsqfast-to-nsq"})  # as in Go
_READ_FILES = frozenset({"nsqfast-replay"})

_FILE_ENDINGS = ("-file", "-cert", "-key", "config", "state", "json-schema", "chart", "html")
_FOLDER_ENDINGS = ("-dir", "-path", "spool", "output", "input", "checkpoint", "dead-letter")


@dataclass(frozen=True, slots=True)
class Flag:
    """One flag; `values` are the allowed words, if there are only some."""

    name: str
    help: str
    is_bool: bool
    is_list: bool
    values: tuple[str, ...]
    takes_file: bool
    takes_folder: bool


@dataclass(frozen=True, slots=True)
class Program:
    """One command."""

    name: str
    flags: tuple[Flag, ...]
    words: tuple[str, ...] = ()
    reads_files: bool = False


def programs() -> Iterator[Program]:
    """All of them, by name."""
    for name, module in sorted({**MODULES, **JOBS}.items()):
        words: tuple[str, ...] = _WORDS.get(name, ())
        if name in JOBS:
            jobs: dict[str, str] = importlib.import_module(module).JOBS
            words, options = tuple(jobs), _options_of_all(jobs.values())
        else:
            options = declared(importlib.import_module(module).Options)
        if name in DAEMONS:
            options += declared(Common)
        elif name not in WITHOUT_VERSION:
            options += [option for option in declared(Common) if option.flag == "version"]
        flags = tuple(sorted(map(_flag, options), key=lambda flag: flag.name))
        yield Program(name, flags, words, name in _READ_FILES)


def _options_of_all(modules: Iterable[str]) -> list[Option]:
    """The options of several classes; a flag that many of them have is listed once, as in the first."""
    found: dict[str, Option] = {}
    for module in modules:
        for option in declared(importlib.import_module(module).Options):
            found.setdefault(option.flag, option)
    return list(found.values())


def _flag(option: Option) -> Flag:
    kind = option.kind
    is_text = kind.hint in {STRING.hint, STRINGS.hint} and not kind.choices
    return Flag(
        option.flag,
        option.help,
        kind.is_bool,
        kind.is_list,
        kind.choices,
        takes_file=is_text and option.flag.endswith(_FILE_ENDINGS),
        takes_folder=is_text and option.flag.endswith(_FOLDER_ENDINGS),
    )
