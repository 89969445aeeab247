"""The Java runtime that Spark starts: its location and version."""

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass

from nsqfast.errors import OptionsError

MAJOR_MIN = 17  # required by all PySpark 4
ANSWER_TIMEOUT_S = 30.0
CURE = "apt install openjdk-17-jre-headless, or set JAVA_HOME to where one is"

# `openjdk version "17.0.15" 2025-04-15`, `java version "1.8.0_392"`, `openjdk version "25-ea"`.
_VERSION = re.compile(r'version "(?:1\.)?(\d+)')


class JavaMissingError(OptionsError):
    """There is no Java that Spark can use; the text says what to install."""

    def __init__(self, why: str) -> None:
        super().__init__(f"Spark needs a Java runtime {MAJOR_MIN} or newer, {why}: {CURE}")


@dataclass(frozen=True, slots=True)
class Java:
    """`path` is the program's."""

    path: str
    major: int


def find_java(environ: Mapping[str, str] | None = None) -> Java:
    """Return the one that Spark would start: that of JAVA_HOME if set, else the first on PATH. JavaMissingError."""
    environ = os.environ if environ is None else environ
    home = environ.get("JAVA_HOME", "")
    if home:
        path = shutil.which("java", path=os.path.join(home, "bin"))  # noqa: PTH118 - a text of PATH's kind
        if path is None:
            raise JavaMissingError(f"and JAVA_HOME ({home}) has no bin/java")
    else:
        path = shutil.which("java", path=environ.get("PATH", ""))
        if path is None:
            raise JavaMissingError("and there is none on PATH")
    found = Java(path, _major(path))
    if found.major < MAJOR_MIN:
        raise JavaMissingError(f"and {path} is Java {found.major}")
    return found


def _major(path: str) -> int:
    """Parse the output of `java -version`, which goes to stderr."""
    try:
        answer = subprocess.run(  # noqa: S603 - the operator's own Java
            [path, "-version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=ANSWER_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise JavaMissingError(f"and {path} does not run ({error})") from None
    text = (answer.stderr + answer.stdout).decode("utf-8", "replace")
    found = _VERSION.search(text)
    if found is None:
        said = " ".join(text.split())[:120] or f"exit status {answer.returncode}"
        raise JavaMissingError(f"and {path} -version says no version ({said})")
    return int(found[1])
