REASONS: tuple[str, ...]

class DeadLetters:
    refusal: str | None
    takes_dropped: bool
