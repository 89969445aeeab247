from typing import Any

class SimulatedFiles:
    errors: list[BaseException]

    def __init__(self, disk: object) -> None: ...

class RecordingFiles:
    calls: list[tuple[str, tuple[Any, ...], int]]
