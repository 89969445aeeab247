"""Follows docs/tutorial.md word by word on a bare Debian: `python -m wheels.chroot [SUITE]`, bookworm unless told.

debootstrap (apt install debootstrap) makes a folder in build/chroot with Python and nothing else. The wheel in dist/
and what it needs are put where pip finds them, and the page is run there in a network of its own. Needs root.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from wheels.clean_room import PASSED
from wheels.interpreters import wheel_pattern
from wheels.sources import ROOT

PLACE = ROOT / "build" / "chroot"
PACKAGES = ["python3", "python3-venv", "ca-certificates", "curl"]
PAGE = "docs/tutorial.md"
EXTRAS = "server,admin,msgspec"  # that the page installs
TEST_TOOL = "pytest"  # the page installs it by itself
# What runs the page stands beside it; it needs Python alone.
COPIED = ["tests/documents", "tests/support/__init__.py", "tests/support/network.py", PAGE]
TAG = "import sys; print('cp{}{}'.format(*sys.version_info[:2]))"
# A list of processes and folders of its own, so that whatever was started ends, and whatever was mounted goes.
NAMESPACES = ["unshare", "--mount", "--pid", "--fork", "--kill-child"]
MOUNT = """
mount -t proc proc "$1/proc"
mount --rbind /dev "$1/dev"
exec chroot "$@"
"""


def ask(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def find_mirror() -> str:
    """Where this machine has its Debian packages from."""
    fields = "$(CREATED_BY) $(COMPONENT) $(ORIGIN) $(REPO_URI)"
    for line in ask("apt-get", "indextargets", "--format", fields).splitlines():
        kind, component, origin, address = line.split()[:4]
        if (kind, component, origin) == ("Packages", "main", "Debian"):
            return address
    raise SystemExit("nsqfast: apt knows no Debian mirror: apt-get update")


def read_apt_proxy() -> dict[str, str]:
    found = ask("apt-config", "shell", "proxy", "Acquire::http::Proxy").strip()
    return {"http_proxy": found.partition("=")[2].strip("'")} if found else {}


def make_base(suite: str) -> Path:
    """A minimal system, once; its packages are not unpacked again each time."""
    base = PLACE / suite
    if (base / ".ready").exists():
        return base
    shutil.rmtree(base, ignore_errors=True)
    base.mkdir(parents=True)
    include = f"--include={','.join(PACKAGES)}"
    command = ["debootstrap", "--variant=minbase", include, suite, str(base), find_mirror()]
    done = subprocess.run(
        command,
        env=os.environ | read_apt_proxy(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"{done.stdout[-3000:]}\nnsqfast: debootstrap failed")
    (base / ".ready").touch()
    return base


def enter(base: Path, *command: str, namespaces: tuple[str, ...] = ()) -> int:
    """Run a command in there; returns its exit status."""
    passed = {name: value for name, value in os.environ.items() if PASSED.fullmatch(name)}
    passed.pop("PIP_FIND_LINKS", None)  # a folder of this machine
    environment = passed | {
        "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "HOME": "/root",
        "LANG": "C.UTF-8",
    }
    words = [*NAMESPACES, *namespaces, "sh", "-ec", MOUNT, "sh", str(base), *command]
    return subprocess.run(words, env=environment, check=False).returncode


def connect(base: Path) -> None:
    """The network as this machine has it: names, and the certificates that its environment points at."""
    named = [value for name, value in os.environ.items() if PASSED.fullmatch(name)]
    for path in [Path("/etc/resolv.conf"), Path("/etc/hosts"), *map(Path, named)]:
        if path.is_absolute() and path.is_file():
            place = base / path.relative_to("/")
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, place)


def find_wheel(base: Path) -> Path:
    tag = ask("chroot", str(base), "python3", "-c", TAG).strip()
    found = sorted((ROOT / "dist").glob(wheel_pattern(tag)))
    if not found:
        raise SystemExit(f"nsqfast: no wheel for {tag} in dist: make wheels")
    return found[-1]


def put_wheels(base: Path, wheel: Path) -> None:
    """Where pip finds nsqfast and what it needs without an index, as if both were there already."""
    house = base / "wheels"
    shutil.rmtree(house, ignore_errors=True)
    house.mkdir()
    shutil.copy2(wheel, house)
    (base / "etc" / "pip.conf").unlink(missing_ok=True)
    load = (
        "python3 -m venv /tmp/load && /tmp/load/bin/pip download -q -d /wheels --find-links /wheels"
    )
    if enter(
        base, "sh", "-ec", f"{load} '/wheels/{wheel.name}[{EXTRAS}]' {TEST_TOOL}; rm -rf /tmp/load"
    ):
        raise SystemExit("nsqfast: what the wheel needs could not be had")
    (base / "etc" / "pip.conf").write_text("[global]\nno-index = true\nfind-links = /wheels\n")


def copy_page(base: Path) -> None:
    target = base / "nsqfast"
    shutil.rmtree(target, ignore_errors=True)
    for name in COPIED:
        place = target / name
        place.parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, place, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copyfile(ROOT / name, place)


def main() -> None:
    suite = sys.argv[1] if len(sys.argv) > 1 else "bookworm"
    if os.geteuid():
        raise SystemExit("nsqfast: a chroot needs root")
    missing = [name for name in COPIED if not (ROOT / name).exists()]
    if missing:
        raise SystemExit(f"nsqfast: not here: {', '.join(missing)}")
    for tool in ("debootstrap", "unshare"):
        if shutil.which(tool) is None:
            raise SystemExit(f"nsqfast: {tool} is missing: apt install debootstrap util-linux")
    base = make_base(suite)
    wheel = find_wheel(base)
    connect(base)
    put_wheels(base, wheel)
    copy_page(base)
    print(f"nsqfast: {PAGE} on Debian {suite} with {wheel.name}", flush=True)
    words = ["--all", "--machine", "myhost", f"/nsqfast/{PAGE}"]
    program = ["python3", "/nsqfast/tests/documents/run.py", *words]
    sys.exit(enter(base, *program, namespaces=("--net", "--uts")))


if __name__ == "__main__":
    main()
