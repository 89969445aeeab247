from nsqfast._ext.client.consume_connection import ConsumeConnection

def finish_rows(
    connections: list[ConsumeConnection], identities: bytes, sources: bytes, chosen: bytes
) -> int: ...
def requeue_rows(
    connections: list[ConsumeConnection],
    identities: bytes,
    sources: bytes,
    chosen: bytes,
    delay_ms: int,
    backoff: bool = False,
) -> int: ...
def touch_rows(
    connections: list[ConsumeConnection], identities: bytes, sources: bytes, chosen: bytes
) -> int: ...
