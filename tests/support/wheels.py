"""The wheels that are looked at: those that `make wheel` or `make wheels` made, with their folder in NSQFAST_WHEELS."""

import os
from pathlib import Path

FOLDER = os.environ.get("NSQFAST_WHEELS")
WHEELS = sorted(Path(FOLDER).resolve().glob("nsqfast-*.whl")) if FOLDER else []
