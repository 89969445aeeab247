"""Copies the project's files without what was built from them: wheels and sdists are made in the copy."""

import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LIST = ".copied"  # in a copy: what was copied
# Where there is no git to ask: in an unpacked sdist.
NOT_SOURCES = shutil.ignore_patterns(
    "build", "dist", "data", ".*", "__pycache__", "*.egg-info", "*.so", "htmlcov"
)


def list_sources() -> list[str] | None:
    """What git knows of, and what it will be told of; None in a folder that is no checkout."""
    if not (ROOT / ".git").exists():
        return None
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    names = {name for name in done.stdout.split("\0") if name}
    return sorted(name for name in names if (ROOT / name).exists())


def copy_sources(target: Path) -> None:
    """Into an empty folder, or into an earlier copy: what is unchanged there is not built again."""
    names = list_sources()
    if names is None:
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(ROOT, target, symlinks=True, ignore=NOT_SOURCES)
        if (ROOT / ".ci").exists():
            shutil.copytree(ROOT / ".ci", target / ".ci")
        return
    listed = target / LIST
    for gone in set(listed.read_text().splitlines() if listed.exists() else ()) - set(names):
        (target / gone).unlink(missing_ok=True)
    for name in names:
        if not _is_same(ROOT / name, target / name):
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target / name, follow_symlinks=False)
    listed.write_text("".join(f"{name}\n" for name in names))


def _is_same(source: Path, copy: Path) -> bool:
    if not copy.exists():
        return False
    one, other = source.stat(), copy.stat()
    return (one.st_mtime_ns, one.st_size) == (other.st_mtime_ns, other.st_size)
