"""What pip would install: a folder of links to nsqfast and to what it needs, and nothing else of this environment."""

import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import Distribution, distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from support.server import ROOT

OWN = "nsqfast"


def read_project() -> dict:
    with (ROOT / "pyproject.toml").open("rb") as file:
        return tomllib.load(file)["project"]


def list_declared(*extras: str) -> set[str]:
    """The distributions that `nsqfast[extras]` names, without what these need in turn."""
    project = read_project()
    found, waiting = set(), ["", *extras]
    for extra in waiting:
        lines = project["optional-dependencies"][extra] if extra else project["dependencies"]
        for requirement in map(Requirement, lines):
            if requirement.marker is not None and not requirement.marker.evaluate():
                continue
            if requirement.name == OWN:
                waiting += requirement.extras - set(waiting)
            else:
                found.add(canonicalize_name(requirement.name))
    return found


def list_installed(*extras: str) -> list[Distribution]:
    """The same, and what they need in turn, as it is installed here."""
    found: dict[str, Distribution] = {}
    waiting = [(name, "") for name in sorted(list_declared(*extras))]
    for name, extra in waiting:
        if name in found and not extra:
            continue
        found[name] = distribution(name)
        waiting += [
            (canonicalize_name(each.name), wanted)
            for each in map(Requirement, found[name].requires or ())
            if each.marker is None or each.marker.evaluate({"extra": extra})
            for wanted in ["", *each.extras]
        ]
    return [found[name] for name in sorted(found)]


def list_files(installed: Distribution) -> Iterator[Path]:
    """Relative to site-packages, without compiled Python and scripts."""
    for file in installed.files or ():
        if ".." not in file.parts and "__pycache__" not in file.parts:
            yield Path(file)


def link_installed(folder: Path, *extras: str) -> None:
    """Put `nsqfast[extras]` into an empty folder."""
    own = folder / OWN
    own.mkdir(parents=True)
    for path in [*(ROOT / "nsqfast").iterdir(), ROOT / "_ext", ROOT / "spark_jobs"]:
        (own / path.name).symlink_to(path)
    for installed in list_installed(*extras):
        for file in list_files(installed):
            place = folder / file
            place.parent.mkdir(parents=True, exist_ok=True)
            if not place.exists():
                place.symlink_to(installed.locate_file(file))


def run_with(
    folder: Path, *words: str, text: str = "", timeout_s: float = 30.0
) -> subprocess.CompletedProcess[str]:
    """Run Python with that folder and the standard library alone: `-m module flags`, or `-` and the text."""
    begin = f"import sys; sys.path.append({str(folder)!r}); "
    if words[0] == "-m":
        words = words[1:]
        module = f"{words[0]!r}, run_name='__main__', alter_sys=True"
        text = f"import runpy; sys.argv[:] = {list(words)!r}\nrunpy.run_module({module})"
    else:
        words = words[1:]
    return subprocess.run(
        [sys.executable, "-I", "-S", "-c", begin + text, *words],
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
