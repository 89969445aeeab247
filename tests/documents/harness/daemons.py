"""Which daemons a block starts, and whether they listen yet; from /proc alone."""

from __future__ import annotations

import re
from pathlib import Path

PROC = Path("/proc")
# Listening sockets of each when it is ready.
SOCKETS = {
    "nsqfast-nsqd": 2,
    "nsqfast-nsqlookupd": 2,
    "nsqfast-nsqadmin": 1,
    "nsqd": 2,  # Go's
    "nsqlookupd": 2,
}
_LISTENING = "0A"
# As a command: at the start of a line or behind an operator, perhaps after assignments.
_STARTED = re.compile(
    rf"(?:^|[;&|(]|\bnohup|\bexec|\bdo|\bthen)\s*(?:\w+=\S*\s+)*({'|'.join(SOCKETS)})(?=\s|$)(?P<flags>[^;&|#\n]*)",
    re.MULTILINE,
)
_ENDS_AT_ONCE = re.compile(r"--?(?:version|help|check|hash-password)\b")


def list_started(commands: str) -> list[str]:
    """The daemons that these commands start, each as often as it is started."""
    joined = commands.replace("\\\n", " ")
    return [
        found[1] for found in _STARTED.finditer(joined) if not _ENDS_AT_ONCE.search(found["flags"])
    ]


def find_listening(ancestor: int) -> set[tuple[str, int]]:
    """(name, process id) of each daemon below that process which has all its sockets."""
    found = set()
    for process_id in list_descendants(ancestor):
        name = _read_name(process_id)
        if name in SOCKETS and _count_listening(process_id) >= SOCKETS[name]:
            found.add((name, process_id))
    return found


def list_descendants(ancestor: int) -> list[int]:
    """Processes that it started, and those that they started."""
    parents = {}
    for path in PROC.glob("[0-9]*"):
        try:
            # After the name, which may hold anything but ends with the last bracket.
            parents[int(path.name)] = int((path / "stat").read_text().rpartition(")")[2].split()[1])
        except (FileNotFoundError, ProcessLookupError):
            continue
    found = [ancestor]
    for process_id in found:
        found += [child for child, parent in parents.items() if parent == process_id]
    return found[1:]


def is_port_open(port: int) -> bool:
    """Whether something listens on that TCP port here."""
    return any(entry.endswith(f":{port:04X}") for entry in _read_listening(PROC / "self").values())


def _read_name(process_id: int) -> str:
    try:
        words = (PROC / str(process_id) / "cmdline").read_bytes().split(b"\0")
    except (FileNotFoundError, ProcessLookupError):
        return ""
    # An installed command is `python .../bin/nsqfast-nsqd --flags`.
    names = [Path(word.decode(errors="replace")).name for word in words[:2]]
    return next((name for name in names if name in SOCKETS), "")


def _count_listening(process_id: int) -> int:
    folder = PROC / str(process_id)
    try:
        listening = _read_listening(folder)
        links = [str(path.readlink()) for path in (folder / "fd").iterdir()]
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return sum(f"socket:[{inode}]" == link for inode in listening for link in links)


def _read_listening(folder: Path) -> dict[str, str]:
    """By inode, the local address of each listening socket in the network of that process."""
    found = {}
    for name in ("tcp", "tcp6"):
        path = folder / "net" / name
        for line in path.read_text().splitlines()[1:] if path.exists() else ():
            words = line.split()
            if words[3] == _LISTENING:
                found[words[9]] = words[1]
    return found
