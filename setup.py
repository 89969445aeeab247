"""Builds each .pyx of _ext/ into the module of nsqfast._ext where it stands. Everything else is in pyproject.toml.

Switches, read from the environment so that pip, build and setup.py obey them alike:

    NSQFAST_TRACE=1      line tracing, so that coverage sees .pyx lines
    NSQFAST_ANNOTATE=1   _ext/*.html: which lines touch the Python C API
    NSQFAST_DEBUG=1      -O0 -g, checked indexing, NSQFAST_DEBUG blocks compiled in
    NSQFAST_SANITIZE=1   NSQFAST_DEBUG under the address and undefined-behaviour sanitizers
    NSQFAST_FUZZ=1       the same by clang, with what guides libFuzzer; goes to build/fuzz (`make fuzz`)
    NSQFAST_ROOMS=...    the rooms to build, instead of all; the others stay as they are, and `none` builds nothing
"""

import fcntl
import os
import re
import shutil
import subprocess
import sysconfig
import time
from pathlib import Path

from setuptools import Extension, find_packages, setup
from setuptools.command.build import build
from setuptools.command.build_ext import build_ext
from setuptools.command.editable_wheel import editable_wheel

ROOT = Path(__file__).resolve().parent
LOCK = ROOT / "build" / "lock"
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
CFLAGS += ["-O0", "-g", "-UNDEBUG"] if DEBUG else ["-g0"]
# Modules for a start, a stop, an operator or damage, which no message passes from its publish to its FIN: gcc needs
# half the time for them at -O1.
SELDOM = """
    core.cyutility core.settings
    storage.engines storage.health storage.diskqueue.closing storage.diskqueue.deferred
    storage.diskqueue.births
    storage.diskqueue.recovery storage.diskqueue.segment storage.diskqueue.unreadable
    commitlog.folder commitlog.start commitlog.view
    broker.breaker broker.calendar broker.dead_letters broker.embedded broker.picker broker.retry broker.shutdown
    broker.snapshot
    server.auth server.death_lookup
    dev.commit_rings dev.null_peer dev.probes dev.structures
""".split()
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
    # At -O1 an input takes a tenth less time, and clang three times as much.
    CFLAGS += ["-gline-tables-only", "-fno-sanitize-recover=all"]
    CFLAGS += ["-fsanitize=address,undefined,fuzzer-no-link"]

# Cython's own code, which each module would have a copy of otherwise.
UTILITIES = "nsqfast._ext.core.cyutility"
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


def check_compiler():
    """End in one line where there is no C compiler, or where it does not find what it needs."""
    words = (os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc").split()
    if shutil.which(words[0]) is None:
        raise SystemExit(
            f"nsqfast: no C compiler ({words[0]}): apt install gcc python3-dev, or install the wheel"
        )
    includes = {sysconfig.get_path("include"), sysconfig.get_path("platinclude")}
    command = [*words, *(f"-I{each}" for each in includes), "-E", "-x", "c", "-"]
    done = subprocess.run(
        command, input="#include <Python.h>\n", capture_output=True, text=True, check=False
    )
    if done.returncode:
        said = next((line for line in done.stderr.splitlines() if "error" in line), "")
        is_missing = re.search(r"error: '?Python\.h", said)
        what = "Python.h is missing" if is_missing else f"{words[0]} does not work ({said})"
        raise SystemExit(f"nsqfast: {what}: apt install gcc python3-dev, or install the wheel")


class Build(build):
    def run(self):
        check_compiler()
        super().run()


class EditableWheel(editable_wheel):
    def run(self):
        check_compiler()
        super().run()


class BuildExt(build_ext):
    """Runs Cython when extensions are built, not whenever setup.py is."""

    def run(self):
        link_mirror()
        # What only benchmarks and tests use is for those who build in place, and in no wheel.
        rooms = ROOMS if self.inplace or self.editable_mode or FUZZ else ROOMS - {"dev"}
        rooms = rooms & set(os.environ.get("NSQFAST_ROOMS", " ".join(ROOMS)).split())
        self.extensions = [each for each in self.extensions if each.name.split(".")[2] in rooms]
        if not self.inplace:
            super().run()
            return
        LOCK.parent.mkdir(parents=True, exist_ok=True)
        with LOCK.open("w") as lock:  # another `make` may build here, too
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not self.is_done():
                begun = time.time()  # what is edited from now on is for the next build
                super().run()
                for each in self.extensions:
                    os.utime(self.get_ext_fullpath(each.name), (begun, begun))

    def is_done(self):
        """Whether every module is younger than every source: Cython needs seconds to see that nothing changed."""
        if self.force or ANNOTATE or not has_settings():
            return False
        modules = [Path(self.get_ext_fullpath(each.name)) for each in self.extensions]
        newest = max(path.stat().st_mtime for path in ROOT.glob("_ext/**/[a-z]*/*.[ph]*"))
        return all(path.exists() and path.stat().st_mtime > newest for path in modules)

    def build_extensions(self):
        from Cython.Build import cythonize

        # Neither Cython nor the compiler step rebuilds on a changed flag by itself.
        if not has_settings():
            remove_built()
            STAMP.parent.mkdir(parents=True, exist_ok=True)
            STAMP.write_text(read_settings())
        translated = cythonize(
            self.extensions,
            include_path=[str(MIRROR)],
            shared_utility_qualified_name=UTILITIES,
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


def read_settings():
    import Cython

    return repr((Cython.__version__, CFLAGS, LDFLAGS, MACROS, DIRECTIVES, SELDOM))


def has_settings():
    """Whether the last build was made with those of this one."""
    return STAMP.exists() and STAMP.read_text() == read_settings()


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


def name_in_ext(path):
    """Name a package or module of nsqfast._ext as Python does: storage.diskqueue.writer."""
    return ".".join(path.relative_to(ROOT / "_ext").with_suffix("").parts)


def describe(name, source):
    level = [] if DEBUG else ["-O1" if name in SELDOM else "-O3"]
    return Extension(
        f"nsqfast._ext.{name}",
        [source],
        include_dirs=["_ext"],
        depends=HEADERS,
        define_macros=MACROS,
        extra_compile_args=[*CFLAGS, *level],
        extra_link_args=LDFLAGS,
    )


def read_description():
    """README for the package index, where what stands beside it is not to be found: links name this release's files."""
    version = re.search(r'__version__ = "(.+)"', (ROOT / "nsqfast/version.py").read_text())[1]
    places = {"": f"{ADDRESS}/blob/v{version}/", "!": f"{ADDRESS}/raw/v{version}/"}
    return re.sub(
        r"(!?)\[([^]]*)\]\((?!https?:)([^)]+)\)",
        lambda link: f"{link[1]}[{link[2]}]({places[link[1]]}{link[3]})",
        (ROOT / "README.md").read_text(encoding="utf-8"),
    )


HEADERS = [str(path.relative_to(ROOT)) for path in sorted(ROOT.glob("_ext/**/*.h"))]
PACKAGES = [name_in_ext(path.parent) for path in sorted(ROOT.glob("_ext/*/**/__init__.py"))]
ROOMS = {name.partition(".")[0] for name in PACKAGES}
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
        *find_packages(
            include=["nsqfast", "nsqfast.*"], exclude=["nsqfast.spark.autoload", "nsqfast.dev"]
        ),
        *ELSEWHERE,
        *(f"nsqfast._ext.{name}" for name in PACKAGES if name != "dev"),
    ],
    package_dir=ELSEWHERE,
    ext_modules=[
        describe("core.cyutility", "_ext/core/cyutility.c"),
        *(
            describe(name_in_ext(path), str(path.relative_to(ROOT)))
            for path in sorted(ROOT.glob("_ext/**/*.pyx"))
        ),
    ],
    cmdclass={"build": Build, "build_ext": BuildExt, "editable_wheel": EditableWheel},
)
