"""The header Retry-After: when a server wants to be asked again."""

import time
from datetime import UTC
from email.utils import parsedate_to_datetime

SECONDS_MIN = 1.0  # less would overload it further
SECONDS_MAX = 300.0  # whatever a server says


def parse_retry_after(value: bytes) -> float | None:
    """Seconds from now, within bounds; None if it cannot be understood."""
    text = value.decode("latin-1").strip()
    if text.isascii() and text.isdigit():
        # Ten digits already exceed the bound by far.
        return _bounded(float(text.lstrip("0")[:10] or 0))
    try:
        moment = parsedate_to_datetime(text)
    except ValueError:
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return _bounded(moment.timestamp() - time.time())


def _bounded(seconds: float) -> float:
    return min(max(seconds, SECONDS_MIN), SECONDS_MAX)
