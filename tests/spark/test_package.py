"""The package without Spark's session: what it needs, and what it says without that."""

import subprocess
import sys
from pathlib import Path

import pytest

from nsqfast.errors import NsqfastError
from nsqfast.spark.runtime import JavaMissingError, find_java, find_other_python

ROOT = Path(__file__).resolve().parents[2]


def run_python(code):
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )


def make_java(folder, said, status=0):
    """A program that answers to -version."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "java"
    path.write_text(f"#!/bin/sh\ncat >&2 <<'EOF'\n{said}\nEOF\nexit {status}\n")
    path.chmod(0o755)
    return str(path)


@pytest.mark.parametrize(
    ("said", "major"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('Picked up JAVA_TOOL_OPTIONS: -Xmx1g\nopenjdk version "21" 2023-09-19', 21),
        ('openjdk version "25-ea" 2025-09-16', 25),
    ],
)
def test_java_is_found_on_path(tmp_path, said, major):
    path = make_java(tmp_path, said)
    found = find_java({"PATH": f"/nowhere:{tmp_path}"})
    assert (found.path, found.major) == (path, major)


def test_the_python_of_the_workers(tmp_path):
    own, other = tmp_path / "own" / "python", tmp_path / "other" / "python3"
    for path in (own, own.with_name("python3"), other):
        path.parent.mkdir(exist_ok=True)
        path.touch(mode=0o755)
    found = [
        find_other_python(environ, str(own))
        for environ in (
            {"PATH": f"{own.parent}:{other.parent}"},
            {"PATH": f"{other.parent}:{own.parent}"},
            {"PATH": str(other.parent), "PYSPARK_PYTHON": str(own)},
            {"PATH": str(own.parent), "PYSPARK_PYTHON": str(other)},
            {"PATH": "/nowhere"},
        )
    ]
    assert found == [None, str(other), None, str(other), "python3"]


def test_java_home_comes_first(tmp_path):
    make_java(tmp_path / "a", 'openjdk version "21" 2023-09-19')
    path = make_java(tmp_path / "home" / "bin", 'openjdk version "17.0.1" 2021-10-19')
    found = find_java({"PATH": str(tmp_path / "a"), "JAVA_HOME": str(tmp_path / "home")})
    assert found.path == path


@pytest.mark.parametrize(
    ("said", "status", "words"),
    [
        ('java version "1.8.0_392"', 0, "is Java 8"),
        ('openjdk version "11.0.2" 2019-01-15', 0, "is Java 11"),
        ("Error: could not find libjli.so", 1, "says no version (Error: could not find libjli.so)"),
        ("", 3, "says no version (exit status 3)"),
    ],
)
def test_java_that_is_of_no_use(tmp_path, said, status, words):
    make_java(tmp_path, said, status)
    with pytest.raises(JavaMissingError) as caught:
        find_java({"PATH": str(tmp_path)})
    text = str(caught.value)
    assert words in text
    assert "apt install openjdk-17-jre-headless" in text
    assert "\n" not in text
    assert isinstance(caught.value, NsqfastError)


def test_no_java(tmp_path):
    with pytest.raises(JavaMissingError, match="there is none on PATH: apt install openjdk-17"):
        find_java({"PATH": str(tmp_path)})
    with pytest.raises(JavaMissingError, match=r"JAVA_HOME \(/nowhere\) has no bin/java"):
        find_java({"JAVA_HOME": "/nowhere", "PATH": "/usr/bin:/bin"})


def test_java_that_does_not_run(tmp_path):
    (tmp_path / "java").write_bytes(b"\x7fELF, but not really")
    (tmp_path / "java").chmod(0o755)
    with pytest.raises(JavaMissingError, match="does not run"):
        find_java({"PATH": str(tmp_path)})


def test_the_package_imports_neither_pyspark_nor_pyarrow():
    done = run_python(
        "import sys, nsqfast.spark, nsqfast.spark.runtime\n"
        "assert not {'pyspark', 'pyarrow'} & sys.modules.keys()"
    )
    assert done.returncode == 0, done.stderr


def test_without_pyarrow_the_sink_says_what_to_install():
    done = run_python(
        "import sys\n"
        "sys.modules['pyarrow'] = None\n"
        "from nsqfast.spark import PackageMissingError\n"
        "from nsqfast.spark.datasource import NsqDataSource\n"
        "try:\n    NsqDataSource({}).writer(None, False)\n"
        "except PackageMissingError as error:\n    print(error)\n"
    )
    assert done.stdout.startswith("nsqfast.spark needs pyarrow, which is not installed: "), (
        done.stderr
    )


def test_a_source_module_that_cannot_be_imported_does_not_disturb_the_others():
    """Spark imports pyspark_nsqfast together with every other pyspark_* module."""
    done = run_python(
        "import sys\n"
        f"sys.path.insert(0, {str(ROOT / 'nsqfast' / 'spark')!r})\n"
        "sys.modules['nsqfast.spark.datasource'] = None\n"
        "import autoload\n"
        "assert not hasattr(autoload, 'DefaultSource')"
    )
    assert done.returncode == 0, done.stderr
