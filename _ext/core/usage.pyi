class Usage:
    connections_max: int
    rate_max: int
    connection_count: int
    def pay_now(self, count: int) -> int: ...
