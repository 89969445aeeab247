"""Packages that only one part of nsqfast needs, by the extra that brings them, and what is said where they are missing.

A plain install brings what `nsqfast.client` needs. Nothing that stands here is imported by whoever may do without it:

    with needs("--format=parquet", "arrow"):
        import pyarrow

`tests/source/test_extras.py` compares this list, pyproject.toml and what each part imports.
"""

import contextlib
import importlib.util
import sys
from collections.abc import Iterator

from nsqfast.errors import PackageMissingError

SNAPPY = ("cramjam",)
ARRAYS = ("numpy",)
ARROW = (*ARRAYS, "pyarrow")
SERVER = (
    *SNAPPY,
    *ARRAYS,
    "httptools",
    "OpenSSL",
    "prometheus_client",
    "re2",
    "rich",
    "uvloop",
    "zlib_ng",
    *(() if sys.version_info >= (3, 14) else ("backports.zstd",)),
)
ADMIN = (
    *ARRAYS,
    "argon2",
    "httptools",
    "jinja2",
    "msgspec",
    "prometheus_client",
    "rcssmin",
    "rjsmin",
    "uvloop",
)
# By the names under which they are imported.
PACKAGES: dict[str, tuple[str, ...]] = {
    "snappy": SNAPPY,
    "arrays": ARRAYS,
    "arrow": ARROW,
    "server": SERVER,
    "admin": ADMIN,
    "chart": ("matplotlib",),
    "spark": (*SERVER, "pyarrow", "pyspark"),
    "opentelemetry": ("opentelemetry",),
    "prometheus": ("prometheus_client",),
    "msgspec": ("msgspec",),
    "pydantic": ("pydantic",),
}


def check(part: str, extra: str) -> None:
    """PackageMissingError, which names `part`, unless all of an extra is installed."""
    if missing := find_missing(extra):
        raise PackageMissingError(part, missing, extra)


def find_missing(extra: str) -> list[str]:
    """Name the packages of an extra that are not installed."""
    return [name for name in PACKAGES[extra] if not _is_installed(name)]


@contextlib.contextmanager
def needs(part: str, extra: str) -> Iterator[None]:
    """Around imports: where a package is missing, PackageMissingError says so instead."""
    try:
        yield
    except ModuleNotFoundError as error:
        name = error.name or ""
        if not name or name.partition(".")[0] == "nsqfast":
            raise
        # Of pyspark.sql the package, as it is listed.
        listed = [each for each in PACKAGES[extra] if f"{name}.".startswith(f"{each}.")]
        raise PackageMissingError(part, listed or [name], extra) from None


def _is_installed(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:  # not even the package that would hold it
        return False
