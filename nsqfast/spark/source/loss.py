"""Handles missing messages: an error, or a warning and the rest."""

from nsqfast.program.logs import logger
from nsqfast.spark.spool.identity import SpoolError

SAID_MAX = 1000  # texts that are remembered, so as not to be repeated

log = logger("nsqfast.spark.source")


class LossPolicy:
    """The option failOnDataLoss."""

    def __init__(self, *, is_strict: bool) -> None:
        self.is_strict = is_strict
        self._said: set[str] = set()

    def report(self, loss: str, otherwise: str) -> None:
        """Raise SpoolError if it is strict; else warn once, with `otherwise` as what is done instead."""
        if self.is_strict:
            raise SpoolError(f"{loss}; with failOnDataLoss=false {otherwise}")
        if len(self._said) == SAID_MAX:
            self._said.clear()
        if loss not in self._said:
            self._said.add(loss)
            log.warning("%s; failOnDataLoss=false: %s", loss, otherwise)
