REASONS: tuple[str, ...]

class DeadLetters:
    name: str
    refusal: str | None
    takes_dropped: bool
