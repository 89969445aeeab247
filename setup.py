"""Builds _ext/ROOM/*.pyx into the packages nsqfast._ext.ROOM. Everything else is in pyproject.toml.

Switches, read from the environment so that pip, build and setup.py obey them alike:

    NSQFAST_TRACE=1      line tracing, so that coverage sees .pyx lines
    NSQFAST_ANNOTATE=1   _ext/*.html: which lines touch the Python C API
    NSQFAST_DEBUG=1      -O0 -g, checked indexing, NSQFAST_DEBUG blocks compiled in
    NSQFAST_SANITIZE=1   NSQFAST_DEBUG under the address and undefined-behaviour sanitizers
    NSQFAST_FUZZ=1       the same by clang, with what guides libFuzzer; goes to build/fuzz (`make fuzz`)
"""

import os
import re
from pathlib import Path

from setuptools import Extension, find_packages, setup
from setuptools.command.build_ext import build_ext

ROOT = Path(__file__).resolve().parent
MIRROR = ROOT / "build" / "pxd"  # nsqfast/_ext/ as Cython and mypy expect to find it
ADDRESS = "https://github.com/nsqfast/nsqfast"


def switch(name):
    return os.environ.get("NSQFAST_" + name, "0") not in ("", "0")


TRACE = switch("TRACE")
ANNOTATE = switch("ANNOTATE")
SANITIZE = switch("SANITIZE")
FUZZ = switch("FUZZ")
DEBUG = switch("DEBUG") or SANITIZE or FUZZ

# Harnesses run beside everything else, so their modules and translations never stand in _ext/.
BUILD = ROOT / "build" / "fuzz" if FUZZ else ROOT / "build"
STAMP = BUILD / "ext-settings"

# The disk helper is a plain C thread, hence -pthread for older C libraries.
CFLAGS = ["-Wall", "-Wextra", "-Wno-unused-parameter", "-pthread"]
CFLAGS += ["-O0", "-g", "-UNDEBUG"] if DEBUG else ["-O3", "-g0"]
LDFLAGS = ["-pthread"]
MACROS = []
if DEBUG:
    MACROS += [("NSQFAST_DEBUG", "1")]
if TRACE:
    # coverage reads settrace events; from Python 3.12 Cython would send sys.monitoring ones.
    MACROS += [
        ("CYTHON_TRACE", "1"),
        ("CYTHON_TRACE_NOGIL", "1"),
        ("CYTHON_USE_SYS_MONITORING", "0"),
    ]
if SANITIZE:
    CFLAGS += ["-fsanitize=address,undefined", "-fno-omit-frame-pointer"]
    LDFLAGS += ["-fsanitize=address,undefined"]
if FUZZ:
    # The runtime of all three is preloaded: atheris brings it along.
    CFLAGS += ["-O1", "-fsanitize=address,undefined,fuzzer-no-link", "-fno-sanitize-recover=all"]

DIRECTIVES = {
    "language_level": "3",
    "auto_pickle": False,
    "embedsignature": True,
    "boundscheck": DEBUG,
    "wraparound": False,
    "initializedcheck": DEBUG,
    "cdivision": True,
    "linetrace": TRACE,
}


class BuildExt(build_ext):
    """Runs Cython when extensions are built, not whenever setup.py is."""

    def run(self):
        # What only benchmarks and tests use is for those who build in place, and in no wheel.
        if not (self.inplace or self.editable_mode or FUZZ):
            self.extensions = [each for each in self.extensions if not is_for_development(each)]
        super().run()

    def build_extensions(self):
        import Cython
        from Cython.Build import cythonize

        link_mirror()
        # Neither Cython nor the compiler step rebuilds on a changed flag by itself.
        settings = repr((Cython.__version__, CFLAGS, LDFLAGS, MACROS, DIRECTIVES))
        if not STAMP.exists() or STAMP.read_text() != settings:
            remove_built()
            STAMP.parent.mkdir(parents=True, exist_ok=True)
            STAMP.write_text(settings)
        translated = cythonize(
            self.extensions,
            include_path=[str(MIRROR)],
            compiler_directives=DIRECTIVES,
            annotate=ANNOTATE,
            build_dir=str(BUILD.relative_to(ROOT)) if FUZZ else None,
            force=bool(self.force) or ANNOTATE,
            nthreads=os.cpu_count() or 1,
        )
        # Only the sources: setuptools keeps attributes of its own on the first objects.
        for extension, done in zip(self.extensions, translated, strict=True):
            extension.sources = done.sources
        if self.parallel is None:
            self.parallel = os.cpu_count() or 1
        super().build_extensions()


def remove_built():
    """Leave nothing that was made with other settings, even if this build breaks off half-way."""
    beside = BUILD / "_ext" if FUZZ else ROOT / "_ext"
    generated = [*beside.rglob("*.c"), *beside.rglob("*.so")]
    # Only these from build/lib: by now setup.py may have put the .py files of a wheel there.
    compiled = [*BUILD.glob("lib*/**/*.so"), *BUILD.glob("temp*/**/*.o")]
    for path in generated + compiled:
        path.unlink()


def link_mirror():
    """Show folders at their package paths, where Cython looks for nsqfast/_ext/ROOM/NAME.pxd, and mypy for both."""
    for folder in ("_ext", "spark_jobs"):
        link = MIRROR / "nsqfast" / folder
        if not link.is_symlink():
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(Path("..", "..", "..", folder), target_is_directory=True)


def is_for_development(extension):
    return extension.name.startswith("nsqfast._ext.dev.")


def read_description():
    """README for the package index, where what stands beside it is not to be found: links name this release's files."""
    version = re.search(r'__version__ = "(.+)"', (ROOT / "nsqfast/version.py").read_text())[1]
    places = {"": f"{ADDRESS}/blob/v{version}/", "!": f"{ADDRESS}/raw/v{version}/"}
    return re.sub(
        r"(!?)\[([^]]*)\]\((?!https?:)([^)]+)\)",
        lambda link: f"{link[1]}[{link[2]}]({places[link[1]]}{link[3]})",
        (ROOT / "README.md").read_text(encoding="utf-8"),
    )


ROOMS = sorted(path.parent.name for path in ROOT.glob("_ext/*/__init__.py"))
# What stands elsewhere than its name says. Spark finds a source in a top-level module pyspark_*.
ELSEWHERE = {
    "nsqfast._ext": "_ext",
    "nsqfast.spark_jobs": "spark_jobs",
    "pyspark_nsqfast": "nsqfast/spark/autoload",
}

setup(
    long_description=read_description(),
    long_description_content_type="text/markdown",
    packages=[
        *find_packages(include=["nsqfast", "nsqfast.*"], exclude=["nsqfast.spark.autoload"]),
        *ELSEWHERE,
        *(f"nsqfast._ext.{room}" for room in ROOMS if room != "dev"),
    ],
    package_dir=ELSEWHERE,
    ext_modules=[
        Extension(
            f"nsqfast._ext.{path.parent.name}.{path.stem}",
            [str(path.relative_to(ROOT))],
            include_dirs=["_ext"],
            depends=[str(header.relative_to(ROOT)) for header in sorted(ROOT.glob("_ext/*/*.h"))],
            define_macros=MACROS,
            extra_compile_args=CFLAGS,
            extra_link_args=LDFLAGS,
        )
        for path in sorted(ROOT.glob("_ext/*/*.pyx"))
    ],
    cmdclass={"build_ext": BuildExt},
)
