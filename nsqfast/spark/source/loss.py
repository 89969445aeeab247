"""What becomes of messages that are not there: an error, or a warning and the rest."""

from nsqfast.logs import logger
from nsqfast.spark.spool.identity import SpoolError

SAID_MAX = 1000  # texts that are remembered, so as not to be said again

log = logger("nsqfast.spark.source")


class LossPolicy:
    """failOnDataLoss."""

    def __init__(self, *, is_strict: bool) -> None:
        self.is_strict = is_strict
        self._said: set[str] = set()

    def report(self, loss: str, otherwise: str) -> None:
        """SpoolError if it is strict. `otherwise` is what is done if it is not, which a warning says once."""
        if self.is_strict:
            raise SpoolError(f"{loss}; with failOnDataLoss=false {otherwise}")
        if len(self._said) == SAID_MAX:
            self._said.clear()
        if loss not in self._said:
            self._said.add(loss)
            log.warning("%s; failOnDataLoss=false: %s", loss, otherwise)
