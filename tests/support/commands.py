"""Commands that tests run to their end."""

import subprocess
from typing import Any


def run_command(
    *command: str, timeout: float | None = 60, **options: Any
) -> subprocess.CompletedProcess[str]:
    """How it ended and what it said."""
    return subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=timeout, **options
    )
