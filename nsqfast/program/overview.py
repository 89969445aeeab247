"""The programs that nsqfast installs, and what `python -m nsqfast` prints: versions, programs, packages, documents."""

import platform
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from nsqfast.program import extras
from nsqfast.version import NSQ_VERSION, __version__

PREFIX = "nsqfast-"


@dataclass(frozen=True, slots=True)
class Program:
    """One of them; `command` is its name without the prefix."""

    command: str
    purpose: str
    module: str  # its `main` takes the words of the command line and returns the exit status
    extras: tuple[str, ...] = ("server",)

    @property
    def name(self) -> str:
        """The name under which it is installed."""
        return PREFIX + self.command


PROGRAMS = (
    Program("nsqd", "the broker", "nsqfast.nsqd.main"),
    Program("nsqlookupd", "knows which nsqd has which topic", "nsqfast.nsqlookupd.main"),
    Program(
        "nsqadmin", "shows and steers a cluster in a browser", "nsqfast.nsqadmin.main", ("admin",)
    ),
    Program("to-nsq", "publishes standard input", "nsqfast.tools.to_nsq.main"),
    Program("nsq-tail", "prints the messages of topics", "nsqfast.tools.nsq_tail.main"),
    Program("redrive", "sends dead letters back to where they died", "nsqfast.tools.redrive.main"),
    Program("nsq-stat", "shows rates and depths of channels", "nsqfast.tools.nsq_stat.main"),
    Program("nsq-to-file", "archives topics in files", "nsqfast.tools.nsq_to_file.main"),
    Program("nsq-to-http", "sends messages to a web server", "nsqfast.tools.nsq_to_http.main"),
    Program("nsq-to-nsq", "passes messages on to another nsqd", "nsqfast.tools.nsq_to_nsq.main"),
    Program(
        "commitlog", "measures a disk, looks at a commit log", "nsqfast.tools.commitlog.main", ()
    ),
    Program("replay", "publishes archives again", "nsqfast.tools.replay.main"),
    Program("bench", "puts load on an nsqd and measures it", "nsqfast.tools.bench.main"),
    Program("run", "runs the handlers of an App", "nsqfast.app.main", ()),
    Program("completion", "completes flags in bash and zsh", "nsqfast.tools.completion.main"),
    Program(
        "nsq-spool",
        "takes messages into the spool that Spark reads",
        "nsqfast.spark.receiver.main",
        ("arrow", "server"),
    ),
    Program("spark", "jobs: topics to Parquet and back", "nsqfast.spark_jobs.main", ("spark",)),
)


DOCUMENTS_URL = "https://github.com/nsqfast/nsqfast/tree/HEAD/docs"
FOLDER = Path(__file__).resolve().parents[1]
# Those whose version a report of a fault should name.
PACKAGES = (
    "aiohttp",
    "orjson",
    "uvloop",
    "numpy",
    "httptools",
    "cramjam",
    "pyOpenSSL",
    "pyarrow",
    "pyspark",
)

VERSION_LINES = f"nsqfast {__version__}\ncompatible with NSQ {NSQ_VERSION}"
TEXT = """\
{versions}
{python}, {folder}

Programs, and the extra that each needs (pip install 'nsqfast[server]'):
{programs}

  python -m nsqfast nsqd --help is the same as nsqfast-nsqd --help; --help lists the flags of any of them

In Python, for which pip install nsqfast is enough:
  from nsqfast import Consumer, Producer                # asyncio
  from nsqfast.client.sync import Consumer, Producer    # without an event loop

Packages:
{packages}

Documents: {documents}"""


def compose_overview() -> str:
    """Return the whole text."""
    python = f"{platform.python_implementation()} {platform.python_version()}"
    return TEXT.format(
        versions=VERSION_LINES,
        python=f"{python} on {platform.system()} {platform.machine()}",
        folder=FOLDER,
        programs=_align(_list_programs()),
        packages=_align(_list_packages()),
        documents=find_documents(),
    )


def _align(rows: Iterable[tuple[str, ...]]) -> str:
    """Return a table: two spaces before each column, as wide as its longest cell."""
    table = list(rows)
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    lines = (
        "".join(f"  {cell:{width}}" for cell, width in zip(row, widths, strict=True))
        for row in table
    )
    return "\n".join(line.rstrip() for line in lines)


def _list_programs() -> Iterator[tuple[str, ...]]:
    for each in PROGRAMS:
        missing = dict.fromkeys(
            name for extra in each.extras for name in extras.find_missing(extra)
        )
        state = f"lacks {', '.join(missing)}" if missing else "installed"
        yield each.name, each.purpose, f"[{','.join(each.extras)}]" if each.extras else "", state


def _list_packages() -> Iterator[tuple[str, ...]]:
    for name in PACKAGES:
        try:
            yield name, metadata.version(name)
        except metadata.PackageNotFoundError:
            yield name, "not installed"


def find_documents() -> str:
    """Return the folder in a checkout, else the address."""
    folder = FOLDER.parent / "docs"
    return str(folder) if (folder / "CLIENT.md").exists() else DOCUMENTS_URL
