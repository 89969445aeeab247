"""--rate: a token bucket. Time is an argument."""

WAIT_S_MIN = 0.001


class TokenBucket:
    """One token at the start, `rate` more each second, and never more than `rate`."""

    def __init__(self, rate: int, now_s: float) -> None:
        self._rate = rate
        self._tokens = 1.0
        self._since_s = now_s

    def take(self, wanted: int, now_s: float) -> int:
        """How many of this many messages may go now."""
        more = (now_s - self._since_s) * self._rate
        self._tokens = min(self._tokens + more, float(self._rate))
        self._since_s = now_s
        count = min(int(self._tokens), wanted)
        self._tokens -= count
        return count

    @property
    def wait_s(self) -> float:
        """Time until the next token."""
        return max((1 - self._tokens) / self._rate, WAIT_S_MIN)
