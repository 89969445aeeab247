"""Logging in the Python processes that Spark starts, which nobody else configures."""

import logging

from nsqfast.program.logs import escape_controls

log = logging.getLogger("nsqfast.spark")


def set_up_worker_log() -> None:
    """Write nsqfast's log to stderr, from INFO on, unless it is configured already.

    A worker's stderr is that of its executor, and with a local master that of the driver.
    """
    ours = logging.getLogger("nsqfast")
    if ours.level == logging.NOTSET:
        ours.setLevel(logging.INFO)
    if not ours.hasHandlers():
        handler = logging.StreamHandler()
        handler.setFormatter(_Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
        ours.addHandler(handler)


class _Formatter(logging.Formatter):
    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's name
        return escape_controls(super().formatMessage(record))
