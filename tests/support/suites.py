"""How all tests are divided: suites that run side by side, each in a process of its own."""

from __future__ import annotations

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

# Those that take longest, with soak, come first: so all processes end at about the same time. A path belongs
# to the suite that names it most closely; what none of them names is `others`.
SUITES: dict[str, tuple[str, ...]] = {
    "spark": ("tests/spark",),  # one JVM for all of them
    # They start programs with a JVM of their own.
    "spark_programs": tuple(
        f"tests/spark/test_{name}.py" for name in ("documents", "jobs_ingest_nsq", "kills")
    ),
    "client": ("tests/client",),
    # A browser's driver runs an event loop for as long as its process lives, so no other test of asyncio can.
    "pages": ("tests/admin_ui",),
    "actions": tuple(f"tests/admin_ui/test_{name}.py" for name in ("actions", "live", "messages")),
    "documents": ("tests/documents",),  # its commands run in networks of their own
    # They wait for what a cluster does in its own time.
    "cluster": (
        "tests/nsqadmin/night",
        *(
            f"tests/nsqadmin/test_{name}.py"
            for name in "actions_trouble api_trouble kept_state messages poller problems rates".split()
        ),
    ),
    "nsqadmin": ("tests/nsqadmin",),
    "transfer": tuple(
        f"tests/tools/test_{name}.py"
        for name in (
            "nsq_to_http",
            "nsq_to_http_client",
            "nsq_to_http_go",
            "nsq_to_http_parts",
            "nsq_to_nsq",
            "nsq_to_nsq_json",
            "nsq_to_nsq_trouble",
        )
    ),
    "compat": ("tests/compat",),
    "nsq_to_file": ("tests/tools/nsq_to_file",),
    "replay": tuple(
        f"tests/tools/test_{name}.py" for name in ("replay", "replay_trouble", "backup")
    ),
    "nsqd": ("tests/nsqd",),
    "examples": tuple(
        f"tests/client/test_{name}.py"
        for name in ("examples", "integrations", "other_languages", "spark_examples")
    ),
    "spool": ("tests/spool", "tests/archives"),
    "tools": ("tests/tools",),
    "durability": ("tests/durability",),
    "source": (
        "tests/source",
        "tests/client/test_programs.py",
    ),  # mypy's cache is for one at a time
    "ext": ("tests/ext",),
    "others": ("tests",),
    "fuzz": ("tests/fuzz",),
}
# A failure here is the product's until it is explained: no second look.
GUARDS = (
    "tests/compat",
    "tests/durability",
    "tests/ext",
    "tests/fuzz",
    "tests/nsqd/test_lifecycle.py",
    "tests/spool",
    "tests/tools/test_backup.py",
)


def list_files() -> list[str]:
    """All files of tests, as paths from the root."""
    return sorted(str(path.relative_to(ROOT)) for path in (ROOT / "tests").rglob("test_*.py"))


def is_within(path: str, place: str) -> bool:
    return path == place or path.startswith(place + "/")


def name_suite(path: str) -> str:
    """Whose file it is: a name in SUITES."""
    closeness = {
        name: max((len(place) for place in places if is_within(path, place)), default=0)
        for name, places in SUITES.items()
    }
    return max(closeness, key=lambda name: closeness[name])


def divide(paths: list[str]) -> dict[str, list[str]]:
    """The files of each suite that has any, in the order of SUITES."""
    found: dict[str, list[str]] = {name: [] for name in SUITES}
    for path in paths:
        found[name_suite(path)].append(path)
    return {name: files for name, files in found.items() if files}


def guards_messages(test: str) -> bool:
    """Whether a failure of this node id may mean a lost message; with checks or sanitizers compiled in any may."""
    is_checked = any(os.environ.get(f"NSQFAST_{one}", "0") != "0" for one in ("DEBUG", "SANITIZE"))
    return is_checked or "kill" in test or any(is_within(test, place) for place in GUARDS)
