"""What a channel knows of its dead letters; `dead_letter_topic` puts them into a topic."""

REASONS = ("failed", "expired", "over_limit", "rejected")


cdef class DeadLetters:
    cdef bint is_exempt(self) noexcept:
        pass

    cdef bint take(self, Delivery *delivery, Reason reason, Consumer consumer, bytes error) except -1:
        pass
