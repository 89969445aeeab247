class Retry:
    min_ns: int
    max_ns: int
    multiplier: float
    jitter: float
    def __init__(self, min_ns: int, max_ns: int, multiplier: float, jitter: float) -> None: ...
