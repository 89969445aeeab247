"""What --check prints: one line for each thing that was looked at.

ok       data path: /var/lib/nsqd, ext4, 41.2 GiB of 100.0 GiB free
warning  vm.max_map_count: 1000, and queues on disk may need 65530: sysctl vm.max_map_count=65530
error    --tcp-address: 0.0.0.0:4150: address already in use
"""

from collections.abc import Iterable
from typing import NamedTuple

from nsqfast.program.logs import escape_controls
from nsqfast.program.stdout import print_text

OK, WARNING, ERROR = "ok", "warning", "error"


class Finding(NamedTuple):
    """One line; `level` is OK, WARNING or ERROR."""

    level: str
    subject: str
    text: str


def report(findings: Iterable[Finding]) -> int:
    """Print all of them, as far as somebody reads them; the exit status is 1 if one is an error."""
    status = 0
    for level, subject, text in findings:
        if level == ERROR:
            status = 1
        print_text(escape_controls(f"{level:<8} {subject}: {text}"))
    return status
