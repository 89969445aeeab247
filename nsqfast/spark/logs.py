"""Log lines of the Python processes that Spark starts; nobody else sets them up."""

import logging

log = logging.getLogger("nsqfast.spark")


def set_up_worker_log() -> None:
    """Have what nsqfast says written to stderr, from INFO on, if nobody has asked for something else.

    A worker's stderr is that of its executor, and with a local master that of the driver.
    """
    ours = logging.getLogger("nsqfast")
    if ours.level == logging.NOTSET:
        ours.setLevel(logging.INFO)
    if not ours.hasHandlers():
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
        ours.addHandler(handler)
