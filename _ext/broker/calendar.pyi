from nsqfast._ext.broker.channel import Channel

STEPS_MAX: int

class DeferralCalendar:
    later_count: int
    last_ns: int
    def __init__(self, channel: Channel, first_ns: int, step_ns: int, count: int) -> None: ...
    @property
    def counts(self) -> list[int]: ...
    def go_on(self) -> bool: ...
