class Breaker:
    share: float
    window_ns: int
    pause_ns: int
    is_open: bool
    retry_ns: int
    open_count: int
    def __init__(self, share: float, window_ns: int, pause_ns: int) -> None: ...
